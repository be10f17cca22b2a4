"""The events that clients are told, and what each carries. A client ignores those it does not know."""

from typing import Any, NotRequired, TypedDict


class EventParams(TypedDict):
    """The parameters of the notification `event`.

    An event of a conversation's log has its number and the id of the log; the number grows by at least 1
    from one to the next, and no two events have the same one. Who reconnects with the last number it
    saw is sent exactly those after it. Snapshots of a state (`session.info`, `prompt.queue`,
    `usage.update`), notes of the server (`notification.show`, `session.changed`) and `error`, which
    `message.complete` repeats, may have neither.
    """

    type: str
    session_id: NotRequired[str]
    """The open session; missing when the event is about the server."""
    seq: NotRequired[int]
    log: NotRequired[str]
    payload: NotRequired[dict[str, Any]]


class Ready(TypedDict):
    """The server takes requests. It is the first frame; it belongs to no session."""

    skin: dict[str, Any]
    url: NotRequired[str]
    token_file: NotRequired[str]


class Start(TypedDict):
    """A turn begins. `user` is what it answers, with the files of its `images`; `is_recovered`: an
    earlier process was cut off in it."""

    turn_id: str
    user: str
    images: NotRequired[list[str]]
    is_recovered: bool
    queued: int


class Delta(TypedDict):
    """The next piece of the reply."""

    text: str
    rendered: NotRequired[str]


class Interim(TypedDict):
    """The model said this before it called tools; it is on disk."""

    text: str
    already_streamed: bool


class Complete(TypedDict):
    """The turn has its end, on disk: `complete`, `interrupted` or `error`."""

    text: str
    status: str
    turn_id: str
    usage: dict[str, Any]
    error: NotRequired[str]
    reasoning: NotRequired[str]
    warning: NotRequired[str]
    rendered: NotRequired[str | None]


class Reasoning(TypedDict):
    """The next piece of what the model thinks aloud."""

    text: str


class Generating(TypedDict):
    """The model writes a tool call."""

    name: str


class ToolStart(TypedDict):
    """A tool runs; `context` says on one line what about."""

    tool_id: str
    name: str
    context: str
    args_text: NotRequired[str]


class ToolProgress(TypedDict):
    """A running tool has something to show: whole lines, to be put after those before."""

    tool_id: str
    text: str


class ToolComplete(TypedDict):
    """A tool has ended and its result is on disk. `exit_code`: of a command, when it was not 0."""

    tool_id: str
    name: str
    args: dict[str, Any]
    context: str
    result: str
    result_text: str
    duration_s: float
    is_error: bool
    exit_code: NotRequired[int]
    inline_diff: NotRequired[str]


class Approval(TypedDict):
    """Something needs a yes; `approval.respond` gives it. Also sent to a client that comes later.
    `remembers` says what a lasting yes is for; empty when that is not known."""

    request_id: str
    tool_name: str
    command: str
    description: str
    choices: list[str]
    allow_permanent: bool
    remembers: str


class Clarification(TypedDict):
    """The model asks something; `clarify.respond` answers it."""

    request_id: str
    question: str
    choices: list[str]


class Settled(TypedDict):
    """A question needs no answer any more; `answer` is empty when nobody gave one."""

    request_id: str
    answer: str


class Status(TypedDict):
    """The activity: `compressing`, `compacting`, `compacted`, `ready`, `retry`, `waiting`. With `void`,
    what was streamed of this step does not count."""

    kind: str
    text: str
    void: NotRequired[bool]


class UsageUpdate(TypedDict, total=False):
    """The use of the model's context window."""

    context_used: int
    context_max: int
    context_percent: float


class Title(TypedDict):
    """The conversation has a title; `session_id` is its id in the store."""

    session_id: str
    title: str


class Changed(TypedDict):
    """The session does not show any more what there is: `undo` (something was taken back), `compress`
    (it was shortened, or that was undone), `expand` (messages were brought back), `open` (it is in
    another conversation now), `elsewhere` (another process has answered in it). `session.activate`
    tells what there is. The client that did it is not told."""

    reason: str
    stored_session_id: str


class Closed(TypedDict):
    """The session is closed: `reason` is its end reason. `session.resume` opens the conversation again.
    Who closed it is not told."""

    reason: str
    stored_session_id: str


class Steered(TypedDict):
    """A message to the running turn is on disk, and the model is shown it next."""

    text: str


class Queue(TypedDict):
    """Other prompts wait than before: all that do, the next one first, each with `turn_id`, `text` and,
    if any go along, the files of its `images`. `dropped` are the turns of those that a stop has ended;
    whoever sent them may give them back."""

    queued: list[dict[str, Any]]
    dropped: list[str]


class Notification(TypedDict):
    """Something a person should know."""

    text: str
    level: str
    kind: str


class BackgroundDone(TypedDict):
    """A prompt of `prompt.background` was answered; its conversation is `stored_session_id`."""

    task_id: str
    text: str
    stored_session_id: str


class Failure(TypedDict):
    """Something went wrong in a turn."""

    message: str
    turn_id: str


class Progress(TypedDict):
    """The progress of `model.pull` in bytes; with a `total` of 0 there is only something to say."""

    text: str
    done: int
    total: int


class Info(TypedDict, total=False):
    """The state of a session. `lazy` until there is an agent. `offer`: there is no model, and
    `model.pull` fetches this one (name, title, bytes, why)."""

    model: str
    provider: str
    tools: dict[str, list[str]]
    skills: dict[str, Any]
    cwd: str
    branch: str
    project: str
    running: bool
    title: str
    stored_session_id: str
    approval_mode: str
    yolo: bool
    busy: str
    desktop_contract: int
    version: str
    profile_name: str
    usage: dict[str, Any]
    lazy: bool
    advice: str
    credential_warning: str
    config_warning: str
    offer: dict[str, Any]


EVENTS: dict[str, Any] = {
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
    "usage.update": UsageUpdate,
    "model.progress": Progress,
    "background.complete": BackgroundDone,
    "notification.show": Notification,
    "error": Failure,
}
"""Every event by its name."""
