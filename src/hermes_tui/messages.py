"""The events of the server as Textual messages, one class an event, and what the client adds to them."""

import logging
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from textual.message import Message

from hermes_protocol import events, results
from hermes_protocol.structs import WireStruct
from hermes_tui import wire

logger = logging.getLogger(__name__)

# The classes are neither compared nor printed: that would triple what they cost at every start.


_HELD_UP = {"retry": "trying again", "waiting": "waiting"}
_FEW_WORDS = 26


P = TypeVar("P", bound=WireStruct)


class Event(Message, Generic[P]):
    """Something the server reports about a session; empty: about itself."""

    def __init__(self, session_id: str, payload: P) -> None:
        super().__init__()
        self.session_id = session_id
        self.payload = payload
        self.position: results.Position = results.Position()
        """Its place in the log of its conversation; 0 for a snapshot of a state."""
        self.connection: int = 0
        """The connection that it came by, counted from 0."""


class TurnStarted(Event[events.Start]):
    """A turn begins; tells what it answers, when the server says so."""


class QueueChanged(Event[events.Queue]):
    """Other prompts wait than before; tells which of them a stop has ended."""


class Steered(Event[events.Steered]):
    """The running turn has heard something that was said to it."""


T = TypeVar("T", events.Delta, events.Reasoning, events.ToolProgress)


class TextPiece(Event[T]):
    """A piece of a text; those that follow it are added to it until it is shown."""

    def __init__(self, session_id: str, payload: T) -> None:
        super().__init__(session_id, payload)
        self.is_taken = False
        self._texts: list[str] = [payload.text]

    @property
    def origin(self) -> tuple[type, str, str]:
        """Identify the text that the piece belongs to."""
        return type(self), self.session_id, ""

    def join(self, piece: "TextPiece[Any]") -> None:
        """Add the piece that follows."""
        self._texts.append(piece.payload.text)
        self.position = piece.position

    def take(self) -> str:
        """The text, to which nothing is added any more."""
        self.is_taken = True
        return "".join(self._texts)


class ReplyDelta(TextPiece[events.Delta]):
    """The next piece of the reply."""


class ReplyInterim(Event[events.Interim]):
    """The complete text of the model before it used tools."""


class TurnEnded(Event[events.Complete]):
    """A turn has ended: complete, interrupted or error."""


class ReasoningDelta(TextPiece[events.Reasoning]):
    """The next piece of what the model thinks aloud."""


class ToolGenerating(Event[events.Generating]):
    """The model writes a tool call."""


class ToolStarted(Event[events.ToolStart]):
    """A tool runs."""


class ToolProgress(TextPiece[events.ToolProgress]):
    """A running tool has something to show."""

    @property
    def origin(self) -> tuple[type, str, str]:
        return type(self), self.session_id, self.payload.tool_id


class ToolEnded(Event[events.ToolComplete]):
    """A tool has ended."""


class StatusChanged(Event[events.Status]):
    """A word about what the server is doing, such as compressing."""

    @property
    def words(self) -> str:
        """Describe the activity in a few words for the status line."""
        status = self.payload
        return _HELD_UP[status.kind] if self.delay_reason else status.text or status.kind

    @property
    def delay_reason(self) -> str:
        """Explain the delay of the turn, when that takes a sentence."""
        status = self.payload
        return status.text if status.kind in _HELD_UP and len(status.text) > _FEW_WORDS else ""


class UsageChanged(Event[results.Usage]):
    """The use of the context window changed; missing fields stay as they were."""


class SessionChanged(Event[results.Info]):
    """The state of the session changed; missing fields stay as they were."""

    def __init__(self, session_id: str, payload: results.Info, mentioned: wire.Json) -> None:
        super().__init__(session_id, payload)
        self.mentioned = mentioned
        """The fields that were sent."""


class TitleChanged(Event[events.Title]):
    """The conversation got a title."""


class ApprovalAsked(Event[events.Approval]):
    """A dangerous call needs a yes."""


class QuestionAsked(Event[events.Clarification]):
    """The model wants to know something."""


class RequestExpired(Event[events.Settled]):
    """Nobody needs the answer to a question any more."""


class BackgroundDone(Event[events.BackgroundDone]):
    """A prompt of /background was answered."""


class Notified(Event[events.Notification]):
    """Something a person should see for a moment."""


class ModelProgress(Event[events.Progress]):
    """Progress of a model download in bytes; without a total there is only a text."""


class ServerFailed(Event[events.Failure]):
    """The server could not do something."""


class HistoryChanged(Event[events.Changed]):
    """Somebody else has changed what was said, such as by taking something back."""


@dataclass(repr=False, eq=False)
class ServerConnected(Message):
    """The server is there; above attempt 0 it is there again."""

    attempt: int = 0


@dataclass(repr=False, eq=False)
class ServerLost(Message):
    """The server went away; it is started again after the delay, or not at all."""

    reason: str = ""
    delay_s: float | None = None


_EVENTS: dict[str, type[Event[Any]]] = {
    "message.start": TurnStarted,
    "message.delta": ReplyDelta,
    "message.interim": ReplyInterim,
    "message.complete": TurnEnded,
    "reasoning.delta": ReasoningDelta,
    "tool.generating": ToolGenerating,
    "tool.start": ToolStarted,
    "tool.progress": ToolProgress,
    "tool.complete": ToolEnded,
    "status.update": StatusChanged,
    "usage.update": UsageChanged,
    "session.title": TitleChanged,
    "session.changed": HistoryChanged,
    "prompt.steered": Steered,
    "prompt.queue": QueueChanged,
    "approval.request": ApprovalAsked,
    "clarify.request": QuestionAsked,
    "question.settled": RequestExpired,
    "model.progress": ModelProgress,
    "notification.show": Notified,
    "background.complete": BackgroundDone,
    "error": ServerFailed,
}


def from_event(name: str, session_id: str, payload: wire.Json) -> Event[Any] | None:
    """The message that an event becomes; None for one that the interface has no use for."""
    mentioned = {key: value for key, value in payload.items() if value is not None}
    try:
        if name == "session.info":
            info = wire.read(mentioned, results.Info)
            return SessionChanged(session_id, info, mentioned)
        if (kind := _EVENTS.get(name)) is not None:
            return kind(session_id, wire.read(mentioned, events.EVENTS[name]))
    except msgspec.ValidationError as error:
        logger.warning("The server reported %s wrongly: %s", name, error)
    return None
