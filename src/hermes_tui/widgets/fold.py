"""Something with a title that opens and closes; what is inside is made when it is first seen."""

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static


class FoldTitle(Static, can_focus=True):
    """The line that opens and closes."""

    DEFAULT_CSS = """
    FoldTitle {
        width: 1fr;
        height: auto;
        max-height: 2;
        padding: 0 1;
        text-overflow: ellipsis;
        text-wrap: nowrap;
        &:hover {
            background: $surface;
        }
        &:focus {
            background: $panel;
        }
    }
    """

    BINDINGS = [  # noqa: RUF012 -- Textual's own
        Binding("enter", "fold", "Open or close", show=False),
    ]
    ALLOW_SELECT = False

    class Toggled(Message):
        """Somebody wants it open, or closed."""

    def action_fold(self) -> None:
        self.post_message(self.Toggled())

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(self.Toggled())


class Fold(Vertical):
    """A title, a part that is always seen, and a body that is seen when it is open."""

    DEFAULT_CSS = """
    Fold {
        height: auto;
        .fold-body {
            height: auto;
            max-height: 50vh;
            overflow-y: auto;
            margin: 0 0 1 3;
            padding: 0 1;
            border-left: outer $panel;
            Static {
                height: auto;
            }
        }
        .glimpse {
            height: auto;
            margin: 0 0 0 3;
            padding: 0 1;
            color: $text-muted;
            border-left: outer $panel;
        }
    }
    """

    is_open = reactive(False, init=False)

    def compose(self) -> ComposeResult:
        yield FoldTitle(self._headline())
        yield from self.always()

    def title(self) -> Content:
        """Return the title; called again by `retitle`."""
        raise NotImplementedError

    def always(self) -> ComposeResult:
        """Compose what is visible whether it is open or not."""
        yield from ()

    def body(self) -> Widget:
        """Return what is visible when it is open."""
        raise NotImplementedError

    def _headline(self) -> Content:
        mark = "▾ " if self.is_open else "▸ "
        return Content.assemble((mark, "dim"), self.title())

    def retitle(self) -> None:
        """Show the title as it is now."""
        if self.is_mounted:
            self.query_one(FoldTitle).update(self._headline())

    async def renew(self) -> None:
        """Make the body anew from what it is made of now."""
        await self.query(".fold-body").remove()
        if self.is_open:
            await self.mount(self._made_body())

    def _made_body(self) -> Widget:
        return self.body().add_class("fold-body")

    async def watch_is_open(self) -> None:
        self.retitle()
        bodies = self.query(".fold-body")
        if self.is_open and not bodies:
            await self.mount(self._made_body())
        for body in bodies:
            body.display = self.is_open

    @on(FoldTitle.Toggled)
    def _toggle(self, event: FoldTitle.Toggled) -> None:
        event.stop()
        self.is_open = not self.is_open
