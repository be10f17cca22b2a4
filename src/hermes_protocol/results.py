"""The results of requests, which the server sends and clients read."""

from typing import Any, ClassVar

from hermes_protocol.structs import WireStruct


class Usage(WireStruct, frozen=True):
    """Tokens and cost of a conversation so far, and the use of the model's context window."""

    model: str | None = None
    input: int | None = None
    output: int | None = None
    reasoning: int | None = None
    cache_read: int | None = None
    prompt: int | None = None
    completion: int | None = None
    total: int | None = None
    calls: int | None = None
    cost_usd: float | None = None
    compressions: int | None = None
    active_subagents: int | None = None
    context_used: int | None = None
    context_max: int | None = None
    context_percent: float | None = None


class Offer(WireStruct, frozen=True):
    """A model to download because there is no other; the name is empty if there is none."""

    name: str = ""
    title: str = ""
    bytes: int = 0
    why: str | None = None


class Info(WireStruct, frozen=True):
    """The state of a session; missing fields are unchanged. `lazy` until the agent exists. `offer`:
    there is no model, and `model.pull` downloads this one."""

    model: str = ""
    provider: str = ""
    tools: dict[str, list[str]] = {}
    skills: dict[str, Any] = {}
    cwd: str = ""
    branch: str = ""
    project: str = ""
    running: bool | None = None
    title: str | None = None
    stored_session_id: str = ""
    approval_mode: str = ""
    yolo: bool = False
    sandbox: str = ""
    """Where commands run: its name, `host` or `none`; empty until that is known."""
    network: str = ""
    """The network of commands in the sandbox: on, asks for new hosts, or off."""
    busy: str = ""
    desktop_contract: int = 0
    version: str = ""
    profile_name: str = ""
    usage: Usage = Usage()
    lazy: bool | None = None
    advice: str | None = None
    install_warning: str | None = None
    credential_warning: str | None = None
    config_warning: str | None = None
    offer: Offer = Offer()


class Message(WireStruct, frozen=True):
    """A stored message. A tool result has `result_text` and its fields, others have `text`."""

    id: int | None = None
    role: str = ""
    text: str | None = None
    timestamp: float | None = None
    kind: str | None = None
    reasoning: str | None = None
    images: list[str] | None = None
    files: list[str] | None = None
    """The attached files, each with its size."""
    name: str | None = None
    context: str | None = None
    tool_id: str | None = None
    result_text: str | None = None
    is_error: bool | None = None
    exit_code: int | None = None
    inline_diff: str | None = None
    refusal: str | None = None
    """`denied` or `blocked`: the call was not allowed to run."""
    duration_s: float | None = None
    status: str | None = None
    """The end of the turn whose last message this is, if it was not answered."""
    error: str | None = None


class RunningTool(WireStruct, frozen=True):
    """A call that ran when the conversation was opened, with its output so far."""

    tool_id: str = ""
    name: str = ""
    context: str | None = ""
    text: str | None = ""


class Inflight(WireStruct, frozen=True):
    """A turn that ran when the conversation was opened: its steps, and the reply so far."""

    turn_id: str = ""
    user: str | None = ""
    images: list[str] = []
    messages: list[Message] = []
    tools: list[RunningTool] = []
    assistant: str | None = ""
    streaming: bool = False


class Queued(WireStruct, frozen=True):
    """A queued prompt."""

    turn_id: str = ""
    text: str = ""
    images: list[str] | None = None
    """Its picture files."""


class Queue(WireStruct, frozen=True):
    """Queued prompts, in their order."""

    queued: list[Queued] = []


class Position(WireStruct, frozen=True):
    """A position in the event log of a conversation; `session.resume` takes it as `after`."""

    log: str = ""
    """The id of the log. Another id means that numbers started again."""
    seq: int = 0
    """The number of the last event that was seen; 0 before the first."""


class Resumption(Position, frozen=True):
    """The position that a snapshot corresponds to: all events after it follow."""

    replayed: bool = False
    """Whether the missed events follow this answer, one by one.

    Then `seq` is the position that was asked for, and there are no messages: the client has them.
    """


class Created(WireStruct, frozen=True):
    """A session in which nothing runs yet; `messages` are those that the client sent."""

    session_id: str = ""
    stored_session_id: str = ""
    message_count: int = 0
    messages: list[Message] = []
    info: Info = Info()


class Opened(Created, frozen=True):
    """An open session at this moment. The steps of the running turn are in `inflight`."""

    sends_null: ClassVar[bool] = True

    session_key: str = ""
    resumed: str | None = ""
    inflight: Inflight | None = None
    queued: list[Queued] = []
    running: bool = False
    started_at: float = 0.0
    status: str = ""
    events: Resumption = Resumption()

    @property
    def durable_id(self) -> str:
        """The id of the conversation in the store."""
        return self.stored_session_id or self.session_key or self.resumed or ""


class History(WireStruct, frozen=True):
    """A page of messages, oldest first. `count` is the number of messages of the session; it leaves out
    those before a compaction, which are shown."""

    count: int = 0
    messages: list[Message] = []


class ConversationRow(WireStruct, frozen=True):
    """A conversation in a list."""

    sends_null: ClassVar[bool] = True

    id: str = ""
    title: str | None = ""
    preview: str | None = ""
    started_at: float | None = None
    last_active: float | None = None
    message_count: int = 0
    model: str | None = ""


class Row(ConversationRow, frozen=True):
    """A stored conversation in a list."""

    ended_at: float | None = None
    source: str | None = ""
    cwd: str | None = ""
    cost_usd: float | None = 0.0
    relation: str | None = ""
    parent_session_id: str | None = None
    compressions: int = 0
    pending: int = 0
    """Prompts without an answer, because their process ended."""


class Rows(WireStruct, frozen=True):
    """Stored conversations, the most recently active first."""

    sessions: list[Row] = []


class OpenRow(ConversationRow, frozen=True):
    """A session that is open in the server; `current`: the requesting client shows it."""

    session_key: str = ""
    status: str = ""
    current: bool = False


class OpenRows(WireStruct, frozen=True):
    """The sessions that are open in the server."""

    sessions: list[OpenRow] = []


class Hit(WireStruct, frozen=True):
    """A conversation found by a message."""

    session_id: str = ""
    role: str = ""
    message_id: int | None = None
    """The message; `session.history` returns the messages before it."""
    title: str | None = ""
    snippet: str | None = ""
    timestamp: float | None = None
    message_count: int = 0


class Hits(WireStruct, frozen=True):
    """Conversations with a matching message, and the text around the match."""

    hits: list[Hit] = []


class TreeNode(WireStruct, frozen=True):
    """A session of a conversation: the first, a branch, or a continuation after a compaction."""

    sends_null: ClassVar[bool] = True

    id: str = ""
    parent_session_id: str | None = None
    relation: str | None = None
    is_tip: int = 0
    """1 where the conversation continues, else 0."""
    title: str | None = None
    preview: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    end_reason: str | None = None
    message_count: int = 0
    level: int = 0
    """Its depth in the tree."""


class TreeNodes(WireStruct, frozen=True):
    """The whole of a conversation, parents before children."""

    sessions: list[TreeNode] = []


class ModelChoice(WireStruct, frozen=True):
    """A model that can be chosen by its name, and where it was found."""

    name: str = ""
    provider: str = ""
    reason: str | None = ""
    used: bool = False


class ModelProvider(WireStruct, frozen=True):
    """A provider with all its models, at any of its addresses."""

    slug: str = ""
    name: str = ""
    models: list[str] = []
    total_models: int = 0
    authenticated: bool = False
    source: str | None = ""


class ModelOptions(WireStruct, frozen=True):
    """The models that can be chosen, the one that answers, or why none does.

    `config.set model` takes the `name` of a model.
    """

    model: str = ""
    provider: str = ""
    models: list[ModelChoice] = []
    providers: list[ModelProvider] = []
    error: str | None = ""


class CommandOutcome(WireStruct, frozen=True):
    """The outcome of a command. `send`, `skill`: the client submits `message`, with `busy` if any.
    `session`: the conversation that the command opened."""

    type: str = ""
    output: str = ""
    message: str | None = None
    busy: str | None = None
    name: str | None = None
    session: Opened | None = None
    leave: bool | None = None


class Item(WireStruct, frozen=True):
    """A completion of the typed text."""

    text: str = ""
    display: str = ""
    meta: str | None = ""


class Mention(WireStruct, frozen=True):
    """A file or folder that a prompt names: its size, and whether its content goes to the model."""

    name: str = ""
    note: str = ""
    is_included: bool = False


class Mentions(WireStruct, frozen=True):
    """The named files that exist."""

    files: list[Mention] = []


class Items(WireStruct, frozen=True):
    """At most 30 completions; the `text` of one replaces the typed text from `replace_from` on."""

    items: list[Item] = []
    replace_from: int = 0
