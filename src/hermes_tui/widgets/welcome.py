"""The first thing in a new conversation: who answers, where it works, and what one can do."""

from pathlib import Path

from textual.content import Content
from textual.widgets import Static

from hermes_core.text import fit
from hermes_core.version import VERSION
from hermes_tui import keymap
from hermes_tui.entries import Welcome

_COLUMN = 38
_MARK = (
    ("█ █ ", "█▀█ "),
    ("█▀▀ ", "██▄ "),
    ("█▀█ ", "█▀▄ "),
    ("█▀▄▀█ ", "█ ▀ █ "),
    ("█▀▀ ", "██▄ "),
    ("█▀ ", "▄█ "),
)
_COLORS = ("$primary", "$primary", "$secondary", "$secondary", "$accent", "$accent")


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
        lines = [*_wordmark(), self._head(), Content(""), *_tips()]
        if count := self.entry.unanswered:
            lines += [Content(""), _unanswered(count)]
        self.update(Content("\n").join(lines))

    def _head(self) -> Content:
        facts = [f"{self.entry.model} answers" * bool(self.entry.model), _short(self.entry.cwd)]
        details = " · ".join(fact for fact in facts if fact)
        return Content.assemble(
            (f"Hermes {VERSION}", "bold $text-primary"), (f"  {details}", "dim")
        )


def _wordmark() -> list[Content]:
    """The name in two lines of blocks, in the colors of the theme."""
    letters = [
        [Content.styled(letter[line], color) for letter, color in zip(_MARK, _COLORS, strict=True)]
        for line in (0, 1)
    ]
    return [*(Content("").join(line) for line in letters), Content("")]


def _unanswered(count: int) -> Content:
    first = "1 conversation was" if count == 1 else f"{count} conversations were"
    return Content.styled(f"{first} left unanswered; press {_key('open')}", "$text-warning")


def _tips() -> list[Content]:
    """List the tips, two per line."""
    tips = [
        ("/", "commands"),
        (_key("open"), "History"),
        ("@", "name a file"),
        (_key("model"), "Switch model"),
        (_key("help"), "Keyboard shortcuts"),
        ("Esc", f"interrupt; {_key('stop')} twice: quit"),
    ]
    cells = [
        Content.assemble((fit(key, 8), "bold $text-accent"), (fit(does, _COLUMN - 8), "dim"))
        for key, does in tips
    ]
    return [first + right for first, right in zip(cells[::2], cells[1::2], strict=True)]


def _key(name: str) -> str:
    keys = next(key.keys for key in keymap.KEYS if key.name == name)
    return keymap.format_keys(keys.split(",")[0])


def _short(folder: str) -> str:
    """A folder as people write it."""
    home = str(Path.home())
    return f"~{folder.removeprefix(home)}" if folder.startswith(home) else folder
