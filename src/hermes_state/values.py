"""The values that the store takes and gives; no driver is imported here."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from hermes_core.errors import BudgetSpent
from hermes_core.text import usd

Row = dict[str, Any]
"""A row as callers see it."""


class NewMessage(NamedTuple):
    """A message on its way into the store."""

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
"""The source of sub-agents' sessions: nobody's conversation, told of by the one that sent them."""


DIRECT = "dm"
"""The type of a chat with one person; every other one has listeners."""


class Scope(NamedTuple):
    """The conversations of one person, or of one place in a chat; without one, everything is seen."""

    source: str
    """The platform that they are on."""
    user_id: str | None = None
    """Whose they are; None: those that belong to nobody alone, as in a group that shares one."""
    chat_id: str | None = None
    """The one chat that is looked at; None: every chat of the person."""
    thread_id: str | None = None
    """The thread of that chat; None: outside of any."""
    in_group: bool = False
    """Whether a group looks: what was said there while it was a direct chat stays hidden."""
    with_local: bool = False
    """Whether those of no messenger at all, the terminal's, are seen as well."""


DEFAULT_TTL_S = 60.0


class Lease(NamedTuple):
    """The right to run a conversation, until it expires or somebody with a newer token has it."""

    conversation_id: str
    holder: str
    token: int


class Route(NamedTuple):
    """The way from a chat to its conversation, without the conversation."""

    session_key: str
    entry: str = "{}"
    scope: str = ""
    expired: bool = False
    """Whether the conversation is over, as the chat was silent for too long."""


Outcome = Literal["turn", "command", "ignored"]


class InboundMessage(NamedTuple):
    """One message as a platform names it."""

    platform: str
    chat_id: str
    message_id: str
    payload: str = "{}"
    session_key: str | None = None
    """The key of the chat that it came from."""
    edits: str | None = None
    """The message that this is a new version of."""
    parts: Sequence[str] = ()
    """The messages that it was put together from, if there were several."""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.platform, self.chat_id, self.message_id


class OutboundPart(NamedTuple):
    """A part of a reply that the platform takes in one go."""

    platform: str
    chat_id: str
    content: str
    thread_id: str | None = None
    key: str | None = None
    """Its name: a second piece of the same name is not put."""
    extra: str | None = None
    """What goes along with the text, as JSON of the gateway's own."""
    question_id: str | None = None
    """The question that it asks."""
    buttons: str | None = None
    """The buttons below it, as JSON of the gateway's own."""
    failure: str | None = None
    """Why it is not to be sent: it is on record as failed from the beginning."""
    is_sent: bool = False
    """Whether it was said on the request itself: it is on record as sent from the beginning."""


class Call(NamedTuple):
    """One tool call that a step of the model asks for."""

    tool_call_id: str
    tool_name: str
    arguments: str
    read_only: bool


class Settled(NamedTuple):
    """How a call ended, and the message that tells the model."""

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


class Limit(NamedTuple):
    """The most that may be used of one unit: in a turn, in a day (UTC) by all, or by one person."""

    unit: Literal["steps", "seconds", "tokens", "usd"]
    scope: Literal["turn", "day", "person"]
    most: float
    """0 does not limit."""

    def __str__(self) -> str:
        if self.unit == "usd":
            per = {"turn": "message", "day": "day", "person": "day for you"}[self.scope]
            end = "" if self.scope == "turn" else " (a day ends at midnight UTC)"
            return f"{usd(self.most)} per {per}{end}"
        return f"{self.most:,.0f} {self.unit}" if self.most >= 1 else f"{self.most:g} {self.unit}"

    @property
    def is_shared(self) -> bool:
        """Whether turns beside this one may use it up, so that a call must be reserved first."""
        return self.unit in ("tokens", "usd")

    def check(self, used: float, estimate: "Estimate", task: str) -> None:
        """Raise BudgetSpent when a call would pass the limit."""
        wanted = {
            "steps": used + (not task),
            "seconds": estimate.elapsed_s,
            "tokens": used + estimate.tokens,
            "usd": used + estimate.cost_usd,
        }[self.unit]
        if wanted > self.most:
            raise BudgetSpent(f"the limit of {self} is reached")


class Limits(NamedTuple):
    """The limits of a turn."""

    all: tuple[Limit, ...] = ()
    person: str = ""
    """Who pays, when it is not the owner of the machine."""

    @classmethod
    def of(cls, *limits: Limit, person: str = "") -> "Limits":
        """Return those of the limits that limit anything."""
        return cls(tuple(limit for limit in limits if limit.most), person)

    @property
    def need_reservations(self) -> bool:
        """Whether a call may be one too many for what other turns spend meanwhile."""
        return any(limit.is_shared for limit in self.all)


class Estimate(NamedTuple):
    """The most that one model call can take."""

    tokens: int
    cost_usd: float
    elapsed_s: float
    """Working time of the turn so far, over all attempts."""


class Reservation(NamedTuple):
    """What was set aside for a call, or would have been if anything limited it."""

    id: int | None
    elapsed_s: float = 0.0
    account: str | None = None
    """The turn that pays, when it is another one."""
    person: str = ""


class Receipt(NamedTuple):
    """What a call did cost."""

    reservation: Reservation
    spent: Spent
    task: str = ""


Kind = Literal["approval", "clarify"]


EVERYWHERE = ""
"""The scope of a yes that holds for all conversations."""


class Question(NamedTuple):
    """A question on its way to a person."""

    turn_id: str
    tool_call_id: str
    kind: Kind
    tool_name: str
    text: str
    detail: str = ""
    choices: Sequence[str] = ()


Role = Literal["owner", "member", "guest"]


class Person(NamedTuple):
    """Somebody who was let in."""

    platform: str
    user_id: str
    role: Role
    name: str | None
    chat_id: str | None
    added_at: float
    added_by: str


class Stranger(NamedTuple):
    """Somebody who asks to be let in."""

    platform: str
    user_id: str
    chat_id: str
    name: str | None = None


class Redeemed(NamedTuple):
    """What came of a code: a person, or none, and then whether and until when nobody may try again."""

    person: Person | None
    locked_until: float = 0.0


Carried = int | Mapping[str, Any]
"""What a new session begins with: the id of a message that is kept, or a message that is new."""


End = Literal["answered", "failed", "interrupted"]
"""The states of a turn that has ended."""


class Accepted(NamedTuple):
    """A turn that is on disk, and whether this call put it there."""

    turn_id: str
    session_id: str
    conversation_id: str
    message_id: int
    is_new: bool
    makes_session: bool = False
    """Whether the session was made with it."""


class TurnSource(NamedTuple):
    """The surface, worker and permissions of a turn."""

    surface: str = ""
    worker: str | None = None
    """The process that accepted it; None: any that has its conversation open."""
    permissions: str | None = None
    """What its person may do, as JSON; None: everything."""


NO_SOURCE = TurnSource()


class ClaimedTurn(NamedTuple):
    """A turn that is about to run, and the lease it runs under."""

    lease: Lease
    attempt: int
    row: Row
    """The turn as it was before."""

    @property
    def is_resumed(self) -> bool:
        """Whether it was begun before, and cut off or put off."""
        return self.row["state"] == "running"


class NewSession(NamedTuple):
    """The session that a first message makes, so that no empty one is ever there."""

    source: str
    fields: Mapping[str, Any] = {}
    parent_session_id: str | None = None
    messages: Sequence[Mapping[str, Any]] = ()
    """What was said before the first message, elsewhere."""
    route: Route | None = None
    """The chat that leads to it from now on."""


Sort = Literal["newest", "oldest", "relevance"]
"""The order of what a search finds."""


class Filter(NamedTuple):
    """Which conversations to list."""

    source: str | None = None
    exclude_sources: Collection[str] = ()
    cwd_prefix: str | None = None
    min_message_count: int = 0
    include_archived: bool = False
    archived_only: bool = False
    include_children: bool = False
    search_query: str | None = None
    scope: Scope | None = None
