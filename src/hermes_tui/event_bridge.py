"""The bridge of the application: what the client hears becomes messages for the chat."""

from hermes_tui import messages, wire
from hermes_tui.client import Listener
from hermes_tui.screens.chat import ChatScreen


class EventBridge(Listener):
    """Posts to the chat; events of other sessions than the open one are not for it."""

    def __init__(self) -> None:
        self.chat: ChatScreen | None = None
        self._piece: messages.Piece | None = None
        """The piece that was posted last, when nothing was posted after it."""

    def heard(self, kind: str, session_id: str, payload: wire.Json) -> None:
        event = messages.from_event(kind, session_id, payload)
        if event is None or self.chat is None:
            return
        live = self.chat.session.conversation.live_id
        if (not session_id or not live or session_id == live) and not self._is_added(event):
            self.chat.turn_view.post_message(event)
            self._piece = event if isinstance(event, messages.Piece) else None

    def _is_added(self, event: messages.Event) -> bool:
        """Add a piece to the one before it, when that has not been shown yet."""
        before = self._piece
        if before is None or before.is_taken or not isinstance(event, messages.Piece):
            return False
        if before.origin != event.origin:
            return False
        before.text += event.text
        return True

    def connected(self, attempt: int) -> None:
        if self.chat is not None:
            self.chat.post_message(messages.ServerConnected(attempt))

    def lost(self, reason: str, delay_s: float | None) -> None:
        if self.chat is not None:
            self.chat.post_message(messages.ServerLost(reason, delay_s))
