"""The first thing in a new conversation: who answers, where it works, and what one can do."""

from pathlib import Path

from textual.content import Content
from textual.widgets import Static

from hermes_core.text import fit
from hermes_core.version import VERSION
from hermes_tui import keymap
from hermes_tui.entries import Welcome

_COLUMN = 36


class WelcomeView(Static):
    """A few lines that scroll away with the first messages."""

    DEFAULT_CSS = """
    WelcomeView {
        height: auto;
        padding: 0 1;
        margin: 1 0;
    }
    """

    def __init__(self, entry: Welcome) -> None:
        super().__init__(markup=False)
        self.entry = entry

    def on_mount(self) -> None:
        self.follow()

    def follow(self) -> None:
        """Show who answers now."""
        lines = [self._head(), Content(""), *_tips()]
        if count := self.entry.unanswered:
            lines += [Content(""), _unanswered(count)]
        self.update(Content("\n").join(lines))

    def _head(self) -> Content:
        facts = [f"{self.entry.model} answers" * bool(self.entry.model), _short(self.entry.cwd)]
        told = " · ".join(fact for fact in facts if fact)
        return Content.assemble((f"Hermes {VERSION}", "bold $text-primary"), (f"  {told}", "dim"))


def _unanswered(count: int) -> Content:
    left = "1 conversation was" if count == 1 else f"{count} conversations were"
    return Content.styled(f"{left} left unanswered: {_key('open')}", "$text-warning")


def _tips() -> list[Content]:
    """What one can do, two to the line."""
    tips = [
        ("/", "commands"),
        (_key("open"), "earlier conversations"),
        ("@", "name a file"),
        (_key("model"), "another model"),
        (_key("help"), "all keys"),
        (_key("stop"), "stops; twice leaves"),
    ]
    cells = [
        Content.assemble((fit(key, 8), "bold $text-accent"), (fit(does, _COLUMN - 8), "dim"))
        for key, does in tips
    ]
    return [left + right for left, right in zip(cells[::2], cells[1::2], strict=True)]


def _key(name: str) -> str:
    keys = next(key.keys for key in keymap.KEYS if key.name == name)
    return keymap.shown(keys.split(",")[0])


def _short(folder: str) -> str:
    """A folder as people write it."""
    home = str(Path.home())
    return f"~{folder.removeprefix(home)}" if folder.startswith(home) else folder
