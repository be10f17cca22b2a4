"""Tell a person who looks elsewhere: the title of the window, a bell, a desktop notification."""

from collections.abc import Callable
from typing import Literal

from hermes_core import config
from hermes_core.text import one_line, truncate, visible
from hermes_tui.tabs import Badge

Notify = Literal["off", "bell", "desktop"]

LONG_S = 10.0
"""A turn that took longer may have sent the person away, also where a terminal does not say so."""
_MAX_TITLE = 60
_MAX_TEXT = 120
_MARKS: dict[Badge, str] = {
    "working": "● ",
    "waiting": "▲ ",
    "finished": "✓ ",
    "lost": "✗ ",
    "": "",
}


class Attention:
    """Writes to the terminal; no text in it can end its sequence."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self.notify: Notify = "bell"
        self._write = write
        self._title = ""

    def entitle(self, badge: Badge, title: str) -> None:
        """Name the window after the conversation and what it does."""
        text = f"{_MARKS[badge]}{_plain(title, _MAX_TITLE)} · Hermes" if title else "Hermes"
        if text != self._title:
            self._title = text
            self._write(f"\x1b]2;{text}\x07")

    def call(self, text: str) -> None:
        """Call the person, as the preferences say."""
        if self.notify == "bell":
            self._write("\x07")
        elif self.notify == "desktop":
            text = _plain(text, _MAX_TEXT)
            is_vte = bool(config.variable("VTE_VERSION"))
            self._write(f"\x1b]777;notify;Hermes;{text}\x07" if is_vte else f"\x1b]9;{text}\x07")


def _plain(text: str, limit: int) -> str:
    return truncate(visible(one_line(text)).replace(";", ","), limit)
