"""The events that the server sends to clients. A client ignores unknown events."""

from typing import Any, NotRequired, TypedDict

from hermes_protocol.results import Info, Queued, Usage
from hermes_protocol.structs import WireStruct


class EventParams(TypedDict):
    """The parameters of the notification `event`.

    An event of a conversation's log has its number and the id of the log; the number grows by at least
    1 from one to the next, and no two events have the same one. A client that reconnects with the last
    number it saw gets exactly the events after it. Snapshots of a state (`session.info`,
    `prompt.queue`, `usage.update`), notes of the server (`notification.show`, `session.changed`) and
    `error`, which `message.complete` repeats, may have neither.
    """

    type: str
    session_id: NotRequired[str]
    """The open session; missing when the event is about the server."""
    seq: NotRequired[int]
    log: NotRequired[str]
    payload: NotRequired[dict[str, Any]]


class Ready(WireStruct, frozen=True):
    """The server accepts requests. This is the first frame; it has no session."""

    skin: dict[str, Any] = {}
    url: str | None = None
    token_file: str | None = None


class Start(WireStruct, frozen=True):
    """A turn begins. `user` is the text that it answers, `images` its picture files. `is_recovered`: an
    earlier process died in it."""

    turn_id: str = ""
    user: str = ""
    images: list[str] | None = None
    is_recovered: bool = False
    queued: int = 0


class Delta(WireStruct, frozen=True):
    """The next text of the reply."""

    text: str = ""
    rendered: str | None = None


class Interim(WireStruct, frozen=True):
    """The text that the model wrote before its tool calls; it is on disk."""

    text: str = ""
    already_streamed: bool = False


class Complete(WireStruct, frozen=True):
    """The turn has ended and its end is on disk: `complete`, `interrupted` or `error`."""

    text: str = ""
    status: str = "complete"
    turn_id: str = ""
    usage: Usage = Usage()
    error: str | None = None
    reasoning: str | None = None
    warning: str | None = None
    rendered: str | None = None


class Reasoning(WireStruct, frozen=True):
    """The next text of the model's reasoning."""

    text: str = ""


class Generating(WireStruct, frozen=True):
    """The model writes a tool call."""

    name: str = ""


class ToolStart(WireStruct, frozen=True):
    """A tool runs; `context` is its main argument on one line."""

    tool_id: str = ""
    name: str = ""
    context: str = ""
    args_text: str | None = None


class ToolProgress(WireStruct, frozen=True):
    """More output of a running tool: whole lines, to append."""

    tool_id: str = ""
    text: str = ""


class ToolComplete(WireStruct, frozen=True):
    """A tool has ended and its result is on disk. `exit_code` is that of a command, if it is not 0;
    `refusal` is `denied` or `blocked` if the call was not allowed to run."""

    tool_id: str = ""
    name: str = ""
    args: dict[str, Any] = {}
    context: str = ""
    result: str = ""
    result_text: str = ""
    duration_s: float = 0.0
    is_error: bool = False
    exit_code: int | None = None
    inline_diff: str | None = None
    refusal: str | None = None


class Approval(WireStruct, frozen=True):
    """A tool call needs an approval; `approval.respond` answers. Clients that connect later get it too.
    `remembers` says what a lasting approval covers, in a sentence; empty if there is none."""

    request_id: str = ""
    tool_name: str = ""
    command: str = ""
    description: str = ""
    choices: list[str] = []
    allow_permanent: bool = True
    remembers: str = ""


class Clarification(WireStruct, frozen=True):
    """The model asks a question; `clarify.respond` answers it."""

    request_id: str = ""
    question: str = ""
    choices: list[str] = []


class Settled(WireStruct, frozen=True):
    """A question is settled; `answer` is empty if it got none."""

    request_id: str = ""
    answer: str = ""


class Status(WireStruct, frozen=True):
    """The activity: `compressing`, `compacting`, `compacted`, `ready`, `retry`, `waiting`. With `void`,
    discard the text that was streamed in this step."""

    kind: str = ""
    text: str = ""
    void: bool | None = None


class Title(WireStruct, frozen=True):
    """The conversation has a title; `session_id` is its id in the store."""

    session_id: str = ""
    title: str = ""


class Changed(WireStruct, frozen=True):
    """Report that clients show an outdated state of the session: after `undo`, `compress` (also
    undone), `expand` (compacted messages are back), `open` (it is in another conversation now) or
    `elsewhere` (another process has answered). `session.activate` returns the current state. The
    client that made the change gets no event."""

    reason: str = ""
    stored_session_id: str = ""


class Closed(WireStruct, frozen=True):
    """The session is closed: `reason` is its end reason. `session.resume` opens the conversation again.
    The client that closed it gets no event."""

    reason: str = ""
    stored_session_id: str = ""


class Steered(WireStruct, frozen=True):
    """A message to the running turn is on disk; the next model call includes it."""

    text: str = ""


class Queue(WireStruct, frozen=True):
    """The queue has changed. `queued` has all queued prompts, the next one first. `dropped` has the
    turns that an interrupt ended; a client may return them to the composer."""

    queued: list[Queued] = []
    dropped: list[str] = []


class Notification(WireStruct, frozen=True):
    """A notice for the person."""

    text: str = ""
    level: str = "info"
    kind: str = ""


class BackgroundDone(WireStruct, frozen=True):
    """A prompt of `prompt.background` was answered in the conversation `stored_session_id`."""

    task_id: str = ""
    text: str = ""
    stored_session_id: str = ""


class Failure(WireStruct, frozen=True):
    """A turn had an error."""

    message: str = ""
    turn_id: str = ""


class Progress(WireStruct, frozen=True):
    """The progress of `model.pull` in bytes; with a `total` of 0 there is only a text."""

    text: str = ""
    done: int = 0
    total: int = 0


EVENTS: dict[str, type[WireStruct]] = {
    "gateway.ready": Ready,
    "session.info": Info,
    "session.title": Title,
    "session.changed": Changed,
    "session.closed": Closed,
    "message.start": Start,
    "message.delta": Delta,
    "message.interim": Interim,
    "message.complete": Complete,
    "reasoning.delta": Reasoning,
    "tool.generating": Generating,
    "tool.start": ToolStart,
    "tool.progress": ToolProgress,
    "tool.complete": ToolComplete,
    "approval.request": Approval,
    "clarify.request": Clarification,
    "question.settled": Settled,
    "prompt.steered": Steered,
    "prompt.queue": Queue,
    "status.update": Status,
    "usage.update": Usage,
    "model.progress": Progress,
    "background.complete": BackgroundDone,
    "notification.show": Notification,
    "error": Failure,
}
"""Every event by its name."""

_NAMES = {kind: name for name, kind in EVENTS.items()}


def name_of(event: WireStruct) -> str:
    """Return the name of an event."""
    return _NAMES[type(event)]
