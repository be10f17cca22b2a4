"""Results of requests, as clients read them.

Everything has a default and unknown fields are ignored, so that an older or a newer server is understood
as far as it goes.
"""

from typing import Any

import msgspec

Json = dict[str, Any]


class Usage(msgspec.Struct, frozen=True):
    """Tokens and cost of a conversation so far."""

    model: str = ""
    input: int = 0
    output: int = 0
    total: int = 0
    calls: int = 0
    context_used: int | None = None
    context_max: int | None = None
    context_percent: float | None = None
    compressions: int = 0
    cost_usd: float | None = None


class Offer(msgspec.Struct, frozen=True):
    """A model that can be fetched because there is no other; without a name there is none."""

    name: str = ""
    title: str = ""
    bytes: int = 0


class Info(msgspec.Struct, frozen=True):
    """The state of an open conversation."""

    model: str = ""
    provider: str = ""
    title: str | None = None
    stored_session_id: str = ""
    cwd: str = ""
    branch: str | None = None
    running: bool = False
    usage: Usage = Usage()
    install_warning: str = ""
    credential_warning: str = ""
    config_warning: str = ""
    offer: Offer = Offer()


class Message(msgspec.Struct, frozen=True):
    """A stored message as the server projects it."""

    id: int | None = None
    role: str = ""
    text: str | None = ""
    name: str = ""
    context: str | None = ""
    reasoning: str | None = ""
    result_text: str | None = ""
    inline_diff: str | None = ""
    kind: str | None = ""
    is_error: bool = False
    exit_code: int | None = None
    images: list[str] = []
    status: str | None = ""
    """How the turn ended whose last message this is, when it was not answered."""
    error: str | None = ""


class RunningTool(msgspec.Struct, frozen=True):
    """A call that ran when the conversation was opened, with what it had shown."""

    tool_id: str = ""
    name: str = ""
    context: str | None = ""
    text: str | None = ""


class Inflight(msgspec.Struct, frozen=True):
    """A turn that ran when the conversation was opened: its steps, and what is being written."""

    user: str | None = ""
    images: list[str] = []
    messages: list[Message] = []
    tools: list[RunningTool] = []
    assistant: str | None = ""
    streaming: bool = False


class Queued(msgspec.Struct, frozen=True):
    """A prompt that waits for its turn."""

    turn_id: str = ""
    text: str = ""
    images: list[str] = []
    """Files of the pictures that go along."""


class Position(msgspec.Struct, frozen=True):
    """A position in the event log of a conversation; `session.resume` takes it as `after`."""

    log: str = ""
    """The id of the log. Another id means that the numbers began anew."""
    seq: int = 0
    """The number of the last event that was seen; 0 before the first."""


class Resumption(Position, frozen=True):
    """The position that a snapshot corresponds to: all events after it follow."""

    replayed: bool = False
    """Whether the missed events follow this answer, one by one.

    Then `seq` is the position that was asked for, and there are no messages: the client has them.
    """


class Opened(msgspec.Struct, frozen=True):
    """The answer to creating, resuming or activating a session."""

    session_id: str = ""
    stored_session_id: str = ""
    session_key: str = ""
    resumed: str | None = ""
    message_count: int = 0
    messages: list[Message] = []
    info: Json = {}
    inflight: Inflight | None = None
    running: bool = False
    queued: list[Queued] = []
    events: Resumption = Resumption()

    @property
    def durable_id(self) -> str:
        """The id under which the store knows the conversation."""
        return self.stored_session_id or self.session_key or self.resumed or ""


class History(msgspec.Struct, frozen=True):
    """A page of stored messages."""

    count: int = 0
    messages: list[Message] = []


class Row(msgspec.Struct, frozen=True):
    """A conversation in a list."""

    id: str = ""
    title: str | None = ""
    preview: str | None = ""
    started_at: float | None = None
    last_active: float | None = None
    message_count: int = 0
    source: str | None = ""
    status: str = ""
    session_key: str = ""
    model: str | None = ""
    current: bool = False
    pending: int = 0
    """Prompts that nobody has answered, because the process ended that was to do it."""


class Rows(msgspec.Struct, frozen=True):
    """A list of conversations."""

    sessions: list[Row] = []


class Hit(msgspec.Struct, frozen=True):
    """A conversation that was found by a message."""

    session_id: str = ""
    role: str = ""
    message_id: int | None = None
    """The message; `session.history` gives what was said before it."""
    title: str | None = ""
    snippet: str | None = ""
    timestamp: float | None = None
    message_count: int = 0


class Hits(msgspec.Struct, frozen=True):
    """Conversations with a message that fits: where each is now, and around what was found."""

    hits: list[Hit] = []


class TreeNode(msgspec.Struct, frozen=True):
    """A part of a conversation: the beginning, a branch, or what goes on after a shortening."""

    id: str = ""
    parent_session_id: str | None = ""
    relation: str | None = ""
    title: str | None = ""
    preview: str | None = ""
    message_count: int = 0
    started_at: float | None = None


class TreeNodes(msgspec.Struct, frozen=True):
    """The whole of a conversation, parents before children."""

    sessions: list[TreeNode] = []


class ModelChoice(msgspec.Struct, frozen=True):
    """A model that can be chosen by its name, and why it is there."""

    name: str = ""
    provider: str = ""
    reason: str | None = ""
    used: bool = False


class ModelOptions(msgspec.Struct, frozen=True):
    """The models that can be chosen, or why there are none."""

    models: list[ModelChoice] = []
    error: str | None = ""


class Item(msgspec.Struct, frozen=True):
    """Something that completes what is being typed."""

    text: str = ""
    display: str = ""
    meta: str | None = ""


class Items(msgspec.Struct, frozen=True):
    """At most 30 possibilities; the `text` of one replaces what stands from `replace_from` on."""

    items: list[Item] = []
    replace_from: int = 0
