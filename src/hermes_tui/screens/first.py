"""The first frame: what the chat will look like, drawn before anything of it is loaded.

Keys that are pressed meanwhile are kept for the composer.
"""

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Static


class FirstScreen(Screen[None]):
    """An empty composer and a status line."""

    def __init__(self) -> None:
        super().__init__()
        self.typed = ""

    def compose(self) -> ComposeResult:
        yield Static(id="turn-view")
        yield Static(id="composer")
        yield Static("○ starting", id="status")

    def on_key(self, event: events.Key) -> None:
        if event.is_printable and event.character:
            self.typed += event.character

    def on_paste(self, event: events.Paste) -> None:
        self.typed += event.text
