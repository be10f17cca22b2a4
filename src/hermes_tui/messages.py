"""The events of the server as Textual messages, one class an event, and what the client adds to them."""

import logging
from dataclasses import dataclass, field
from typing import Any

import msgspec
from textual.message import Message

from hermes_protocol import results
from hermes_tui import wire

logger = logging.getLogger(__name__)

# The classes are neither compared nor printed: that would triple what they cost at every start.


_HELD_UP = {"retry": "trying again", "waiting": "waiting"}
_FEW_WORDS = 26


@dataclass(repr=False, eq=False)
class Event(Message):
    """Something the server reports about a session; empty: about itself."""

    session_id: str = ""
    position = results.Position()
    """Its place in the log of its conversation; 0 for a snapshot of a state."""
    connection = 0
    """The connection that it came by, counted from 0."""


@dataclass(repr=False, eq=False)
class TextEvent(Event):
    """An event that consists of words."""

    text: str = ""


@dataclass(repr=False, eq=False)
class TurnStarted(Event):
    """A turn begins; tells what it answers, when the server says so."""

    turn_id: str = ""
    user: str = ""
    images: list[str] = field(default_factory=list)
    is_recovered: bool = False
    """Whether a process that is gone has left it unfinished."""

    @property
    def is_told(self) -> bool:
        """Return whether the server says which prompt it answers."""
        return bool(self.user or self.images)


@dataclass(repr=False, eq=False)
class QueueChanged(Event):
    """Other prompts wait than before; tells which of them a stop has ended."""

    queued: list[results.Queued] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)


class Steered(TextEvent):
    """The running turn has heard something that was said to it."""


@dataclass(repr=False, eq=False)
class TextPiece(TextEvent):
    """A piece of a text; those that follow it are added to it until it is shown."""

    is_taken: bool = False

    @property
    def origin(self) -> tuple[type, str, str]:
        """Identify the text that the piece belongs to."""
        return type(self), self.session_id, ""

    def take(self) -> str:
        """The text, to which nothing is added any more."""
        self.is_taken = True
        return self.text


class ReplyDelta(TextPiece):
    """The next piece of the reply."""


@dataclass(repr=False, eq=False)
class ReplyInterim(Event):
    """The complete text of the model before it used tools."""

    text: str = ""
    already_streamed: bool = False


@dataclass(repr=False, eq=False)
class TurnEnded(Event):
    """A turn has ended: complete, interrupted or error."""

    text: str = ""
    status: str = "complete"
    usage: wire.Json = field(default_factory=dict)
    reasoning: str | None = ""
    warning: str | None = ""
    error: str | None = ""


class ReasoningDelta(TextPiece):
    """The next piece of what the model thinks aloud."""


@dataclass(repr=False, eq=False)
class ToolGenerating(Event):
    """The model writes a tool call."""

    name: str = ""


@dataclass(repr=False, eq=False)
class ToolStarted(Event):
    """A tool runs."""

    tool_id: str = ""
    name: str = ""
    context: str | None = ""
    args_text: str | None = ""


@dataclass(repr=False, eq=False)
class ToolProgress(TextPiece):
    """A running tool has something to show."""

    tool_id: str = ""

    @property
    def origin(self) -> tuple[type, str, str]:
        return type(self), self.session_id, self.tool_id


@dataclass(repr=False, eq=False)
class ToolEnded(Event):
    """A tool has ended."""

    tool_id: str = ""
    name: str = ""
    context: str | None = ""
    args: Any = None
    result: Any = None
    duration_s: float | None = None
    result_text: str | None = ""
    inline_diff: str | None = ""
    is_error: bool = False
    exit_code: int | None = None


@dataclass(repr=False, eq=False)
class StatusChanged(Event):
    """A word about what the server is doing, such as compressing."""

    kind: str = ""
    text: str = ""
    void: bool = False
    """Whether what was streamed of this step does not count, because it is asked again."""

    @property
    def words(self) -> str:
        """Describe the activity in a few words for the status line."""
        return _HELD_UP[self.kind] if self.delay_reason else self.text or self.kind

    @property
    def delay_reason(self) -> str:
        """Explain the delay of the turn, when that takes a sentence."""
        return self.text if self.kind in _HELD_UP and len(self.text) > _FEW_WORDS else ""


@dataclass(repr=False, eq=False)
class UsageChanged(Event):
    """The use of the context window changed; missing fields stay as they were."""

    usage: wire.Json = field(default_factory=dict)


@dataclass(repr=False, eq=False)
class SessionChanged(Event):
    """The state of the session changed; missing fields stay as they were."""

    info: wire.Json = field(default_factory=dict)


@dataclass(repr=False, eq=False)
class TitleChanged(Event):
    """The conversation got a title."""

    title: str = ""


@dataclass(repr=False, eq=False)
class ApprovalAsked(Event):
    """A dangerous call needs a yes."""

    request_id: str = ""
    command: str = ""
    description: str | None = ""
    choices: list[str] = field(default_factory=list)
    allow_permanent: bool = True
    remembers: str = ""
    """What a lasting yes is for, as far as that is known."""


@dataclass(repr=False, eq=False)
class QuestionAsked(Event):
    """The model wants to know something."""

    request_id: str = ""
    question: str = ""
    choices: list[str] | None = None


@dataclass(repr=False, eq=False)
class RequestExpired(Event):
    """Nobody needs the answer to a question any more."""

    request_id: str = ""


class BackgroundDone(TextEvent):
    """A prompt of /background was answered."""


@dataclass(repr=False, eq=False)
class Notified(Event):
    """Something a person should see for a moment."""

    text: str = ""
    level: str = "info"


@dataclass(repr=False, eq=False)
class ModelProgress(Event):
    """Progress of a model download in bytes; without a total there is only a text."""

    text: str = ""
    done: int = 0
    total: int = 0


@dataclass(repr=False, eq=False)
class ServerFailed(Event):
    """The server could not do something."""

    message: str = ""


@dataclass(repr=False, eq=False)
class ServerConnected(Message):
    """The server is there; above attempt 0 it is there again."""

    attempt: int = 0


@dataclass(repr=False, eq=False)
class ServerLost(Message):
    """The server went away; it is started again after the delay, or not at all."""

    reason: str = ""
    delay_s: float | None = None


@dataclass(repr=False, eq=False)
class HistoryChanged(Event):
    """Somebody else has changed what was said, such as by taking something back."""

    reason: str = ""


_EVENTS: dict[str, type[Event]] = {
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


def from_event(kind: str, session_id: str, payload: wire.Json) -> Event | None:
    """The message that an event becomes; None for one that the interface has no use for."""
    fields = {key: value for key, value in payload.items() if key != "session_id"}
    if kind == "session.info":
        return SessionChanged(session_id, fields)
    if kind == "usage.update":
        return UsageChanged(session_id, fields)
    event_type = _EVENTS.get(kind)
    return _convert(event_type, session_id, fields) if event_type is not None else None


def _convert(kind: type[Event], session_id: str, fields: wire.Json) -> Event | None:
    try:
        return msgspec.convert({**fields, "session_id": session_id}, kind, strict=False)
    except msgspec.ValidationError as error:
        logger.warning("the server reported %s wrongly: %s", kind.__name__, error)
        return None
