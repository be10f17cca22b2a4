"""The runtime that methods use, and the open sessions as it holds them.

A session is a dictionary, because scenarios build it as one and may leave keys out; what else there is
to remember of it is in `SessionState`, under one of its keys.
"""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Required, TypedDict

import msgspec

from hermes_core import clock
from hermes_core.errors import HermesError
from hermes_protocol.errors import BUSY
from hermes_protocol.structs import WireStruct
from tui_gateway import folder
from tui_gateway.protocol import Result, RpcError
from tui_gateway.transport import Transport

if (
    TYPE_CHECKING
):  # each of these brings parts of the agent, which a session loads when it needs them
    from hermes_agent.assembly import Assembly
    from hermes_core.paths import Home
    from hermes_core.settings import Settings
    from hermes_engine.engine import Engine
    from hermes_engine.events import EventLog, Subscriber
    from hermes_state.store import Store
    from tui_gateway.inflight import Inflight
    from tui_gateway.presence import Presence

SOURCE = "tui"
"""What the store says about conversations that were begun here."""

Settle = Callable[[Result | HermesError], None]
"""Answers a request later: with its result, or with why there is none."""
Steers = dict[str, Callable[[str], None]]
"""Queued turns that the running turn is to hear, and what answers their senders with a status."""


class SessionState(msgspec.Struct):
    """The state of an open session that no scenario has to know."""

    sid: str = ""
    conversation_id: str = ""
    """The session in which the conversation began; empty in what a scenario made."""
    source: str = SOURCE
    cwd: Path = msgspec.field(default_factory=folder.current)
    model_name: str = ""
    """The model that was chosen for this session; empty: the one of the settings."""
    is_model_remembered: bool = False
    """Whether it was chosen earlier, so that it may be gone by now."""
    model_lock: threading.Lock = msgspec.field(default_factory=threading.Lock)
    """Held while that is found out, which may take a while."""
    parent_session_id: str | None = None
    """The session that this one is a branch of, until it is stored."""
    seed: list[dict[str, Any]] = msgspec.field(default_factory=list[dict[str, Any]])
    """Messages the client brought along; stored with the first prompt."""
    watchers: list[Transport] = msgspec.field(default_factory=list[Transport])
    """The clients that are told what happens."""
    closes_with_client: bool = False
    is_rendered: bool = False
    """Whether clients want replies also as text for a terminal."""
    created_at: float = msgspec.field(default_factory=clock.now)
    last_active: float = msgspec.field(default_factory=clock.now)
    lock: threading.RLock = msgspec.field(default_factory=threading.RLock)
    """Held while a prompt is accepted or undone, and while clients come and leave.

    Not to be taken by a subscriber of the event log.
    """
    opened: ExitStack = msgspec.field(default_factory=ExitStack)
    """Closed when the session is: the conversation is not open here any more."""
    log: "EventLog | None" = None
    """The events of the conversation, once the engine has it open."""
    read_inflight: "Callable[[], Inflight] | None" = None
    """Reads what events have reported of the running turn."""
    feeds: "dict[Transport, Subscriber]" = msgspec.field(default_factory=dict)
    """The clients that are sent the events of the log."""
    steers: Steers = msgspec.field(default_factory=dict)
    queue_lock: threading.Lock = msgspec.field(default_factory=threading.Lock)
    """Held while clients are sent the queue."""
    sent_queue: list[str] = msgspec.field(default_factory=list[str])
    """The queued turns that clients were sent last."""
    last_message_id: int = 0
    """The last message that clients were sent when they asked for the conversation."""
    rewinds: tuple[str, int] = ("", 0)
    """How often something had been undone by then, and in which session."""
    own: set[int] = msgspec.field(default_factory=set[int])
    """The user messages whose turns run here, so that events tell clients of them."""
    used_tokens: int | None = None
    """How many tokens of the window are in use; None when only the store may know."""
    sandbox: str = ""
    network: str = ""
    """Where commands run and what they reach, as of `info.find_sandbox`."""
    is_building: bool = False
    ready: threading.Event = msgspec.field(default_factory=threading.Event)
    """Set when there is an agent, or none could be made."""
    error: HermesError | None = None
    """Why no agent could be made."""
    fetch: threading.Event | None = None
    """A model is being fetched for it; set to stop that."""
    waits_for_model: bool = False
    """Whether its client offers to fetch a model, so that prompts wait for one and do not fail."""
    warning: str = ""
    """Something a person should know about this conversation."""
    is_closing: bool = False
    detached_at: float | None = None
    """When the last client went away."""


class LiveSession(TypedDict, total=False):
    """An open session. Every key may be missing but `session_key`."""

    agent: Any
    """Who answers; None until it is made."""
    session_key: Required[str]
    """The session in the store, which changes when the conversation is compacted."""
    history: list[dict[str, Any]]
    """The transcript after the last turn, for an agent that does not look into the store itself."""
    history_lock: threading.Lock
    history_version: int
    """Counts changes of the history, so that a turn notices one that happened meanwhile."""
    running: bool
    """Whether the agent of a scenario works; for ours the store says it."""
    attached_images: list[str]
    """Files that go along with the next prompt."""
    image_counter: int
    cols: int
    """The width of the client's terminal."""
    show_reasoning: bool
    tool_progress_mode: str
    """Which tool events are sent: off, new, all, verbose."""
    pending_title: str | None
    """A title for when the session is stored."""
    _finalized: bool
    """Whether it was released; set once."""
    live: SessionState


class Renderer(Protocol):
    """Makes text for a terminal of a reply that comes in pieces."""

    def feed(self, text: str) -> str | None:
        """Return what can be shown by now, or None."""
        ...


def busy() -> RpcError:
    return RpcError(BUSY, "A turn is running.", fix="Interrupt it first.")


def at_rest(key: str, live: SessionState) -> LiveSession:
    """A session in which nothing was said here yet."""
    return {
        "agent": None,
        "session_key": key,
        "history": [],
        "history_lock": threading.Lock(),
        "history_version": 0,
        "running": False,
        "attached_images": [],
        "pending_title": None,
        "_finalized": False,
        "live": live,
    }


class Runtime(Protocol):
    """The server, as methods and turns see it."""

    @property
    def sessions(self) -> dict[str, LiveSession]: ...
    @property
    def transport(self) -> Transport | None:
        """The client that asked."""
        ...

    @property
    def home(self) -> "Home": ...
    @property
    def settings(self) -> "Settings": ...
    @property
    def presence(self) -> "Presence": ...

    def db(self) -> "Store":
        """The store; raises StoreError when it cannot be opened."""
        ...

    def assembly(self) -> "Assembly":
        """Return what agents are made of."""
        ...

    def engine(self) -> "Engine":
        """The engine that runs the turns; made when it is first needed. Raises StoreError."""
        ...

    def reload(self) -> None:
        """Read the settings anew."""
        ...

    def live(self, session: LiveSession) -> SessionState: ...
    def session(self, sid: str) -> LiveSession:
        """An open session; raises RpcError."""
        ...

    def find(self, conversation_id: str) -> LiveSession | None:
        """Return the open session of a conversation."""
        ...

    def check_room(self) -> None:
        """Raise RpcError when too many sessions are open for one more."""
        ...

    def register(self, session: LiveSession) -> str:
        """Add a session and return its id; raises RpcError when there are too many."""
        ...

    def close(self, sid: str, end_reason: str) -> bool:
        """End a session and forget it; tells whether there was one."""
        ...

    def wait_for_end(self, is_meant: Callable[[LiveSession], bool]) -> None:
        """Wait for sessions that are being ended; raises RpcError when that takes too long."""
        ...

    def finalize(self, session: LiveSession, end_reason: str) -> None: ...
    def sync_key(self, sid: str, session: LiveSession, *, clear_pending_title: bool) -> None: ...
    def emit(self, sid: str, event: WireStruct) -> None:
        """Tell the clients of a session that something happened."""
        ...

    def emit_to_others(self, sid: str, event: WireStruct) -> None:
        """Tell the clients of a session but the one that asked."""
        ...

    def make_stream_renderer(self, cols: int) -> Renderer | None: ...
    def render_message(self, text: str, cols: int) -> str | None: ...
    def watch(self, session: LiveSession) -> None:
        """Send the client that asked what happens in a session."""
        ...

    def spawn(self, target: Callable[[], None]) -> None:
        """Run a function beside the others, in a thread that it need not share."""
        ...

    def defer_answer(self) -> Settle:
        """Return what answers a request whose method returns None."""
        ...

    def run_after_answer(self, target: Callable[[], None]) -> None:
        """Run a function when the client has its answer."""
        ...
