"""The bridge of the application: what the client hears becomes messages for the chat."""

from typing import Any

from hermes_protocol import results
from hermes_tui import messages, wire
from hermes_tui.client import Listener
from hermes_tui.screens.chat import ChatScreen


class EventBridge(Listener):
    """Posts to the chat; events of sessions that are not open here are not for it."""

    def __init__(self) -> None:
        self.chat: ChatScreen | None = None
        self._pieces: dict[str, messages.TextPiece[Any]] = {}
        """By session: the piece that was posted last, when nothing was posted after it."""

    def on_event(
        self, kind: str, session_id: str, payload: wire.Json, position: results.Position
    ) -> None:
        event = messages.from_event(kind, session_id, payload)
        if event is None or self.chat is None or self.chat.tabs.find(session_id) is None:
            return
        event.position, event.connection = position, self.chat.tabs.connection
        last = self._pieces.pop(session_id, None)
        if isinstance(event, messages.TextPiece):
            if last is not None and not last.is_taken and last.origin == event.origin:
                last.join(event)  # it has not been shown yet
                self._pieces[session_id] = last
                return
            self._pieces[session_id] = event
        self.chat.turn_view.post_message(event)

    def connected(self, attempt: int) -> None:
        if self.chat is not None:
            self.chat.post_message(messages.ServerConnected(attempt))

    def lost(self, reason: str, delay_s: float | None) -> None:
        self._pieces.clear()
        if self.chat is not None:
            self.chat.tabs.connection += 1
            self.chat.post_message(messages.ServerLost(reason, delay_s))
