"""A turn while it runs: who it is, what it holds, and how it came out."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec

from hermes_agent.turn.events import Sink
from hermes_agent.turn.stop import Stop
from hermes_state.values import Lease, OutboundPart

Status = Literal["answered", "failed", "interrupted", "suspended"]
"""A `suspended` turn is still open on disk, and continues at the next start."""


class Turn(msgspec.Struct):
    """A turn that this process runs. The session changes when the conversation is compacted."""

    id: str
    conversation_id: str
    session_id: str
    user_message_id: int
    lease: Lease
    stop: Stop
    report: Sink
    is_resumed: bool = False
    """Whether another attempt at it was cut off or put off."""
    attempts_lost: int = 0
    """How many were cut off."""
    steps: int = 0
    """Model calls of this attempt."""
    was_cut: bool = False
    """Whether the model ran out of tokens in its last step, so that its calls may break off."""


class Outcome(msgspec.Struct, frozen=True):
    """The end of a turn, which is on disk, unless it was suspended."""

    status: Status
    text: str
    """The reply, or what was streamed of one that was cut off."""
    reason: str = ""
    """Why it failed or stopped, for a person."""
    code: str = ""
    """The same for a program: an error's code, `budget`, `empty`, `interrupted`."""
    is_partial: bool = False
    """Whether the text was cut off by a limit of the model or by a stop."""
    reasoning: str = ""
    """What the model thought aloud before it answered."""
    is_recorded: bool = False
    """Whether somebody else ended the turn, and this is what is on disk of it."""


class Steer(NamedTuple):
    """Something said to a running turn; with a turn of its own that waits, that one is over by it."""

    text: str
    turn_id: str | None = None


Deliver = Callable[[str, Outcome], Sequence[OutboundPart]]
"""What must be sent when a turn ends so; it is on disk together with the end."""


def deliver_nothing(_turn_id: str, _outcome: Outcome) -> Sequence[OutboundPart]:
    """For a surface whose person is there and sees the reply."""
    return ()
