"""Messages of the person, the interface and the server in the transcript."""

from pathlib import Path

from textual import events
from textual.content import Content
from textual.style import Style

from hermes_tui import wire
from hermes_tui.entries import Divider, Note, UserMessage
from hermes_tui.widgets.fold import Fold
from hermes_tui.widgets.plain import Plain

_LINES = 12


class UserMessageView(Plain):
    """A message of a person; a long one is shown in part until it is clicked."""

    DEFAULT_CSS = """
    UserMessageView {
        height: auto;
        margin: 1 0 1 0;
        padding: 0 1;
        border-left: outer $accent;
        background: $surface;
        &.unsent {
            color: $text-muted;
        }
    }
    """

    def __init__(self, entry: UserMessage) -> None:
        super().__init__(classes="said")
        self.entry = entry
        self._is_whole = False

    def on_mount(self) -> None:
        self.follow()

    def follow(self) -> None:
        """Show the message as it is now."""
        self.set_class(not self.entry.is_sent, "unsent")
        self.show(Content("\n").join(self._parts()))

    def _parts(self) -> list[Content]:
        lines = wire.clean(self.entry.text).strip("\n").split("\n")
        is_cut = len(lines) > _LINES + 1 and not self._is_whole
        parts = [Content("\n".join(lines[:_LINES] if is_cut else lines))]
        if is_cut:
            parts.append(Content.styled(f"… {len(lines) - _LINES} more lines", "dim italic"))
        files = [Content.styled(f"📎 {file}", "$text-muted") for file in self.entry.files]
        return [*parts, *files, *(_linked(image) for image in self.entry.images)]

    def on_click(self, event: events.Click) -> None:
        if not self.screen.get_selected_text():
            event.stop()
            self._is_whole = not self._is_whole
            self.follow()


def _linked(image: str) -> Content:
    """A picture as a link, which terminals that know links open."""
    address = Path(image).as_uri() if image.startswith("/") else image
    return Content.styled(f"🖼  {Path(image).name or image}", Style(link=address, underline=True))


class NoteView(Plain):
    """A line, or a card when something went wrong."""

    DEFAULT_CSS = """
    NoteView {
        height: auto;
        margin: 0 0 1 0;
        padding: 0 1;
        color: $text-muted;
        &.warning {
            color: $text-warning;
            border-left: outer $warning;
        }
        &.command {
            color: $foreground;
            margin: 1 0 0 0;
        }
        &.error {
            color: $foreground;
            border: round $error;
            margin: 1 0;
        }
    }
    """

    def __init__(self, entry: Note) -> None:
        super().__init__(classes=f"note {entry.tone}")
        self.entry = entry

    def on_mount(self) -> None:
        self.follow()

    def follow(self) -> None:
        """Show the note as it is now."""
        entry = self.entry
        if entry.tone == "command":
            self.show(Content.assemble(("› ", "bold $text-accent"), (entry.text, "bold")))
            return
        fix = [Content.styled(entry.fix, "bold")] if entry.fix else []
        self.show(Content("\n").join([Content(entry.text.strip()), *fix]))


class DividerView(Fold):
    """A line across the transcript; opening it shows what it stands for."""

    DEFAULT_CSS = """
    DividerView {
        color: $text-muted;
        margin: 1 0;
        FoldTitle {
            text-align: center;
        }
    }
    """

    def __init__(self, entry: Divider) -> None:
        super().__init__(classes="divider")
        self.entry = entry

    def title(self) -> Content:
        return Content.styled(f"── {self.entry.text} ──", "italic")

    def body(self) -> Plain:
        return Plain(self.entry.detail.strip() or "(no details)")

    def follow(self) -> None:
        """Show the line as it is now."""
        self.retitle()
