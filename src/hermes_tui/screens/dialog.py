"""The base of all dialogs: a frame over the chat that Escape closes."""

from pathlib import Path
from typing import Generic, TypeVar

from textual import events
from textual.binding import Binding
from textual.screen import ModalScreen

Result = TypeVar("Result")


class Dialog(ModalScreen[Result], Generic[Result]):
    """Closes on Escape, on Ctrl+C and on a click beside it."""

    CSS_PATH = Path(__file__).parents[1] / "styles" / "dialogs.tcss"
    BINDINGS = [  # noqa: RUF012 -- Textual's own
        Binding("escape,ctrl+c", "close", "Close", priority=True),
        Binding("ctrl+q", "app.leave", "Quit", show=False, priority=True),
    ]

    def action_close(self) -> None:
        self.dismiss(None)

    def on_click(self, event: events.Click) -> None:
        if event.widget is self:
            self.dismiss(None)
