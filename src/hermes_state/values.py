"""Define the values that the store takes and returns; imports no database driver."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from hermes_core.errors import BudgetSpent
from hermes_core.text import usd
from hermes_state.transitions import TurnState

Row = dict[str, Any]
"""A row as a dictionary by column."""


class NewMessage(NamedTuple):
    """A message to be stored."""

    role: str
    content: Any = None
    tool_calls: Any = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    timestamp: float | None = None
    token_count: int | None = None
    finish_reason: str | None = None
    reasoning: str | None = None
    platform_message_id: str | None = None
    extra: Mapping[str, Any] | None = None
    kind: str = "message"
    origin_id: int | None = None
    observed: bool = False
    active: bool = True
    answers: int | None = None
    compacted: bool = False


DELEGATE = "delegate"
"""The source of the sessions of sub-agents, which are reported by their parents."""


DIRECT = "dm"
"""The type of a chat with one person; in all others, several people read."""


class Scope(NamedTuple):
    """Restricts queries to the conversations of one person or one chat."""

    source: str
    """The platform of the conversations."""
    user_id: str | None = None
    """The owner; None: conversations that a group shares."""
    chat_id: str | None = None
    """The chat; None: every chat of the person."""
    thread_id: str | None = None
    """The thread of that chat; None: outside of threads."""
    in_group: bool = False
    """Whether a group reads the result: messages from when it was a direct chat stay hidden."""
    with_local: bool = False
    """Whether conversations of the terminal are included."""


DEFAULT_TTL_S = 60.0


class Lease(NamedTuple):
    """The right to run a conversation, until it expires or a process with a newer token holds it."""

    conversation_id: str
    holder: str
    token: int


class Route(NamedTuple):
    """The route of a chat, without its session."""

    session_key: str
    entry: str = "{}"
    scope: str = ""
    expired: bool = False
    """Whether the conversation ended because the chat was idle for too long."""


Outcome = Literal["turn", "command", "ignored"]


class InboundMessage(NamedTuple):
    """A message that a platform delivered."""

    platform: str
    chat_id: str
    message_id: str
    payload: str = "{}"
    session_key: str | None = None
    """The key of its chat."""
    edits: str | None = None
    """The id of the message that this one replaces."""
    parts: Sequence[str] = ()
    """The ids of the messages that it combines, if there are several."""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.platform, self.chat_id, self.message_id


class OutboundPart(NamedTuple):
    """A part of a reply, sent as one platform message."""

    platform: str
    chat_id: str
    content: str
    thread_id: str | None = None
    key: str | None = None
    """An idempotency key: a second part with the same key is not stored."""
    extra: str | None = None
    """Private JSON of the gateway."""
    question_id: str | None = None
    """The question that it shows."""
    buttons: str | None = None
    """The buttons below it, as private JSON of the gateway."""
    failure: str | None = None
    """The reason not to send it: it is stored as failed."""
    is_sent: bool = False
    """Whether it was sent in the response to a request: it is stored as sent."""


class Call(NamedTuple):
    """A tool call in a step."""

    tool_call_id: str
    tool_name: str
    arguments: str
    read_only: bool


class Settled(NamedTuple):
    """The end of a tool call, with its result message."""

    effect_id: int
    state: Literal["done", "unknown", "cancelled"]
    result: Mapping[str, Any]


class Spent(NamedTuple):
    """The tokens and the money of one model call."""

    model: str
    provider: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float = 0.0


TOKENS = tuple(name for name in Spent._fields if name.endswith("_tokens"))


class Limit(NamedTuple):
    """The maximum use of one unit: per turn, per day (UTC) by all, or per day by one person."""

    unit: Literal["steps", "seconds", "tokens", "usd"]
    scope: Literal["turn", "day", "person"]
    most: float
    """0 means no limit."""

    def __str__(self) -> str:
        if self.unit == "usd":
            per = {"turn": "message", "day": "day", "person": "day for you"}[self.scope]
            end = "" if self.scope == "turn" else " (a day ends at midnight UTC)"
            return f"{usd(self.most)} per {per}{end}"
        return f"{self.most:,.0f} {self.unit}" if self.most >= 1 else f"{self.most:g} {self.unit}"

    @property
    def is_shared(self) -> bool:
        """Return whether concurrent turns share it, so that a call must be reserved first."""
        return self.unit in ("tokens", "usd")

    def check(self, used: float, estimate: "Estimate", task: str) -> None:
        """Raise BudgetSpent when a call would exceed the limit."""
        total = {
            "steps": used + (not task),
            "seconds": estimate.elapsed_s,
            "tokens": used + estimate.tokens,
            "usd": used + estimate.cost_usd,
        }[self.unit]
        if total > self.most:
            raise BudgetSpent(f"the limit of {self} is reached")


class Limits(NamedTuple):
    """The limits of a turn."""

    all: tuple[Limit, ...] = ()
    person: str = ""
    """The person who pays, if not the owner of the machine."""

    @classmethod
    def of(cls, *limits: Limit, person: str = "") -> "Limits":
        """Return the limits that are not 0."""
        return cls(tuple(limit for limit in limits if limit.most), person)

    @property
    def need_reservations(self) -> bool:
        """Return whether calls must be reserved because other turns share a limit."""
        return any(limit.is_shared for limit in self.all)


class Estimate(NamedTuple):
    """The maximum use of one model call."""

    tokens: int
    cost_usd: float
    elapsed_s: float
    """The working time of the turn so far, over all attempts."""


class Reservation(NamedTuple):
    """The reservation of a call; without an id if no limit required one."""

    id: int | None
    elapsed_s: float = 0.0
    account: str | None = None
    """The turn that pays, if it is another one."""
    person: str = ""


class Receipt(NamedTuple):
    """The actual cost of a call."""

    reservation: Reservation
    spent: Spent
    task: str = ""


Kind = Literal["approval", "clarify"]


EVERYWHERE = ""
"""The scope of a grant for all conversations."""


UNSHOWN = "unshown"
"""Begins the answer to an approval that nobody gave, as the question could not be delivered."""


class Grant(NamedTuple):
    """A yes that lasts: the key that later calls are compared with, and what it is for, for people."""

    key: str
    tool_name: str = ""
    subject: str = ""
    """The command, the path or the host."""
    folder: str = ""
    reasons: str = ""
    granted_by: str = ""


class Question(NamedTuple):
    """A question to a person."""

    turn_id: str
    tool_call_id: str
    kind: Kind
    tool_name: str
    text: str
    detail: str = ""
    choices: Sequence[str] = ()


class TaintSource(NamedTuple):
    """Something that a conversation has read, which counts when something is to leave it."""

    kind: Literal["outside", "private"]
    """Text that somebody else wrote, or data of the person that is not in the workspace."""
    source: str
    """For people, in a few words."""


Role = Literal["owner", "member", "guest"]


class Person(NamedTuple):
    """A person who was admitted."""

    platform: str
    user_id: str
    role: Role
    name: str | None
    chat_id: str | None
    added_at: float
    added_by: str


class Stranger(NamedTuple):
    """A person who asks to be admitted."""

    platform: str
    user_id: str
    chat_id: str
    name: str | None = None


class Redeemed(NamedTuple):
    """The result of a pairing code: the admitted person, or the end of a lock."""

    person: Person | None
    locked_until: float = 0.0


Carried = int | Mapping[str, Any]
"""A first message of a new session: the id of one to copy, or a new one."""


End = Literal["answered", "failed", "interrupted"]
"""The states of a turn that has ended."""


class Accepted(NamedTuple):
    """An accepted turn, and whether this call stored it."""

    turn_id: str
    session_id: str
    conversation_id: str
    message_id: int
    is_new: bool
    makes_session: bool = False
    """Whether this call created the session."""


class TurnSource(NamedTuple):
    """The surface, worker and permissions of a turn."""

    surface: str = ""
    worker: str | None = None
    """The process that accepted it; None: any process that has its conversation open."""
    permissions: str | None = None
    """The permissions of its person as JSON; None: unrestricted."""


NO_SOURCE = TurnSource()


class ClaimedTurn(NamedTuple):
    """A turn that is about to run, with its lease."""

    lease: Lease
    attempt: int
    row: Row
    """The row of the turn before it was claimed."""

    @property
    def is_resumed(self) -> bool:
        """Return whether an earlier attempt crashed or was suspended."""
        return self.row["state"] == TurnState.RUNNING


class NewSession(NamedTuple):
    """A session to be created with its first message, so that none is empty."""

    source: str
    fields: Mapping[str, Any] = {}
    parent_session_id: str | None = None
    messages: Sequence[Mapping[str, Any]] = ()
    """Messages that precede the first one."""
    route: Route | None = None
    """The route that leads to it from now on."""


Sort = Literal["newest", "oldest", "relevance"]
"""The order of search results."""


class Filter(NamedTuple):
    """Selects conversations to list."""

    source: str | None = None
    exclude_sources: Collection[str] = ()
    cwd_prefix: str | None = None
    min_message_count: int = 0
    include_archived: bool = False
    archived_only: bool = False
    include_children: bool = False
    search_query: str | None = None
    scope: Scope | None = None
