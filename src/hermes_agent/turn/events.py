"""Events of a running turn, one small value per kind; a sink is any function that takes one."""

from collections.abc import Callable

import msgspec


class Event(msgspec.Struct, frozen=True, tag_field="event", tag=str.lower):
    """Something that happened in a turn; encodes to JSON with its kind in `event`."""


class TextDelta(Event, frozen=True):
    """The next piece of the reply."""

    text: str


class ReasoningDelta(Event, frozen=True):
    """The next piece of what the model thinks aloud."""

    text: str


class ToolCallBegun(Event, frozen=True):
    """The model started to write a tool call; its arguments are not complete yet."""

    name: str


class Retrying(Event, frozen=True):
    """A model call failed and is made again; what was streamed of this step is void."""

    reason: str
    delay_s: float
    attempt: int


class FellBack(Event, frozen=True):
    """The model could not answer and another one is asked; what was streamed of this step is void."""

    model: str
    reason: str


class Steered(Event, frozen=True):
    """A message to the running turn is on disk; the model gets it with the next step."""

    message_id: int
    text: str
    turn_id: str = ""
    """The queued turn that is over by it, as the running one answers it too."""


class StepStored(Event, frozen=True):
    """A message of the model is on disk."""

    message_id: int
    text: str
    tool_calls: int


class ToolStarted(Event, frozen=True):
    """A tool runs."""

    call_id: str
    name: str
    arguments: dict[str, object]


class ToolProgress(Event, frozen=True):
    """A running tool has something to show."""

    call_id: str
    text: str


class ToolEnded(Event, frozen=True):
    """A tool has ended and its result is on disk."""

    call_id: str
    name: str
    result: str
    is_error: bool
    seconds: float
    diff: str = ""
    arguments: dict[str, object] = {}
    """Also of a call that was refused, which no `ToolStarted` tells about."""
    exit_code: int = 0
    """Of a command, when it was not 0."""
    refusal: str = ""
    """`denied` or `blocked`, if the call was not allowed to run."""


class QuestionAsked(Event, frozen=True):
    """A person is asked: for an approval, or because the model wants to know something."""

    question_id: str
    kind: str
    tool_name: str
    text: str
    detail: str
    choices: list[str]


class QuestionAnswered(Event, frozen=True):
    """The question is settled; `answer` is empty when nobody answered in time."""

    question_id: str
    answer: str


class QuestionWithdrawn(Event, frozen=True):
    """The turn was stopped while it asked; nobody has to answer any more."""

    question_id: str


class Used(Event, frozen=True):
    """The cost of one model call, and how full the window is."""

    model: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cost_usd: float
    window: int


class Compacting(Event, frozen=True):
    """The conversation is being shortened."""

    message_count: int
    tokens: int


class Compacted(Event, frozen=True):
    """The conversation goes on in a new session."""

    old_session_id: str
    new_session_id: str
    tokens_before: int
    tokens_after: int
    strategy: str


class Titled(Event, frozen=True):
    """The conversation has got a name; comes when it is made, which may be after the turn."""

    session_id: str
    title: str


class Notice(Event, frozen=True):
    """Something a person should know, in words."""

    text: str


class TurnEnded(Event, frozen=True):
    """The turn has its end, on disk: answered, failed or interrupted."""

    status: str
    text: str
    reason: str
    reasoning: str = ""


Sink = Callable[[Event], None]


def ignore(_event: Event) -> None:
    """The sink of a turn that nobody watches."""
