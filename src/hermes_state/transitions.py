"""Define the state machines of the store: the states of each kind of row and their legal moves.

The database refuses every other move. Each engine generates its triggers from `MACHINES`.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple


class TurnState(StrEnum):
    """The states of a turn."""

    ACCEPTED = "accepted"
    RUNNING = "running"
    ANSWERED = "answered"
    FAILED = "failed"
    INTERRUPTED = "interrupted"

    @property
    def is_open(self) -> bool:
        """Return whether the turn is open."""
        return self in (TurnState.ACCEPTED, TurnState.RUNNING)


class EffectState(StrEnum):
    """The states of a tool call."""

    INTENDED = "intended"
    STARTED = "started"
    DONE = "done"
    UNKNOWN = "unknown"
    CANCELLED = "cancelled"

    @property
    def is_open(self) -> bool:
        """Return whether the call is open."""
        return self in (EffectState.INTENDED, EffectState.STARTED)


class InboxOutcome(StrEnum):
    """The outcomes of an inbound message."""

    TURN = "turn"
    COMMAND = "command"
    IGNORED = "ignored"


class PartState(StrEnum):
    """The states of an outbound part."""

    PENDING = "pending"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"


class QuestionState(StrEnum):
    """The states of a question."""

    PENDING = "pending"
    ANSWERED = "answered"
    CANCELLED = "withdrawn"


class ReservationState(StrEnum):
    """The states of a reservation."""

    OPEN = "open"
    SETTLED = "settled"


class Machine(NamedTuple):
    """The state machine of one table."""

    table: str
    noun: str
    """The name of a row in error messages, such as "a turn"."""
    states: type[StrEnum]
    column: str = "state"
    first: StrEnum | None = None
    """The state in which every row begins; None: rows may begin in any."""
    open: StrEnum | None = None
    """The state that a row leaves once, for any other; None stands for NULL unless there are `moves`."""
    moves: Mapping[StrEnum, Sequence[StrEnum]] | None = None
    """The states that follow each state, where a row moves more than once."""
    moves_if: Mapping[tuple[StrEnum, StrEnum], str] = {}
    """Moves that are legal only for rows with a certain column set to 1."""
    freezes_row: bool = False
    """Whether no column changes any more once the row has left `open`."""
    rule: str = "move"
    """The second half of the name of the trigger that guards the moves."""


class Growth(NamedTuple):
    """A column whose number never decreases."""

    table: str
    column: str
    noun: str


TURNS = Machine(
    "turns",
    "a turn",
    TurnState,
    first=TurnState.ACCEPTED,
    moves={
        TurnState.ACCEPTED: (TurnState.RUNNING, TurnState.FAILED, TurnState.INTERRUPTED),
        # A turn that is run again after a crash stays what it is: one more attempt.
        TurnState.RUNNING: (
            TurnState.RUNNING,
            TurnState.ANSWERED,
            TurnState.FAILED,
            TurnState.INTERRUPTED,
        ),
    },
)
EFFECTS = Machine(
    "effects",
    "an effect",
    EffectState,
    first=EffectState.INTENDED,
    moves={
        EffectState.INTENDED: (EffectState.STARTED, EffectState.CANCELLED),
        EffectState.STARTED: (EffectState.DONE, EffectState.UNKNOWN),
    },
    # A call that only reads may be started again after a crash; any other may not.
    moves_if={(EffectState.STARTED, EffectState.STARTED): "read_only"},
)
INBOX = Machine("inbox", "what was delivered", InboxOutcome, column="outcome", rule="settled_once")
OUTBOX = Machine(
    "outbox",
    "a piece",
    PartState,
    first=PartState.PENDING,
    moves={
        PartState.PENDING: (PartState.SENDING, PartState.FAILED),
        PartState.SENDING: (PartState.SENT, PartState.PENDING, PartState.FAILED),
    },
)
QUESTIONS = Machine(
    "questions",
    "a question",
    QuestionState,
    first=QuestionState.PENDING,
    open=QuestionState.PENDING,
)
RESERVATIONS = Machine(
    "reservations",
    "a reservation",
    ReservationState,
    open=ReservationState.OPEN,
    freezes_row=True,
)

MACHINES = (TURNS, EFFECTS, INBOX, OUTBOX, QUESTIONS, RESERVATIONS)
GROWTHS = (Growth("leases", "token", "a lease token"),)
