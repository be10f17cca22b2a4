"""Reasoning of the model: one line while it thinks, the whole of it on request."""

from textual.app import ComposeResult
from textual.content import Content
from textual.widget import Widget

from hermes_core.text import one_line
from hermes_tui.entries import Thought
from hermes_tui.widgets.fold import Fold
from hermes_tui.widgets.plain import Plain

_GLIMPSE = 400


class Reasoning(Fold):
    """A thought, closed unless somebody wants to read it."""

    DEFAULT_CSS = """
    Reasoning {
        color: $text-muted;
        .glimpse {
            height: 1;
            border-left: none;
            text-overflow: ellipsis;
            text-wrap: nowrap;
        }
    }
    """

    def __init__(self, entry: Thought) -> None:
        super().__init__(classes="reasoning")
        self.entry = entry

    def title(self) -> Content:
        if not self.entry.is_done:
            return Content.styled("Thinking …", "italic")
        seconds = self.entry.seconds
        took = f" for {seconds:.0f} s" if seconds is not None and seconds >= 1 else ""
        return Content.styled(f"Thought{took}", "italic")

    def always(self) -> ComposeResult:
        yield Plain(self._glimpse(), classes="glimpse")

    def body(self) -> Widget:
        return Plain(self.entry.text.strip())

    def on_mount(self) -> None:
        self.follow()

    def follow(self) -> None:
        """Show the thought as it is now."""
        self.retitle()
        glimpse = self.query_one(".glimpse", Plain)
        glimpse.display = not self.entry.is_done and not self.is_open
        if glimpse.display:
            glimpse.show(self._glimpse())
        for body in self.query(".fold-body").results(Plain):
            body.show(self.entry.text.strip())

    def _glimpse(self) -> str:
        return one_line(self.entry.text[-_GLIMPSE:])

    async def watch_is_open(self) -> None:
        await super().watch_is_open()
        self.follow()
