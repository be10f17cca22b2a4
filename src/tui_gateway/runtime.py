"""What a method may touch: the runtime, and the open sessions as it holds them.

A session is a dictionary, because scenarios build it as one and may leave keys out; what else there is
to remember of it is in `Live`, under one of its keys.
"""

import itertools
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Required, TypedDict

import msgspec

from hermes_agent.turn.stop import Stop
from hermes_core import clock
from hermes_core.errors import HermesError
from hermes_protocol.errors import BUSY
from tui_gateway import folder
from tui_gateway.protocol import Rid, RpcError
from tui_gateway.transport import Transport

if (
    TYPE_CHECKING
):  # each of these brings parts of the agent, which a session loads when it needs them
    from hermes_agent.assembly import Assembly
    from hermes_core.paths import Home
    from hermes_core.settings import Settings
    from hermes_state.store import Store
    from tui_gateway.presence import Presence

SOURCE = "tui"
"""What the store says about conversations that were begun here."""
_LEAVING_S = 3.0


class Waiting(msgspec.Struct):
    """A prompt that is on disk and is to be answered."""

    turn_id: str
    content: Any
    """Text, or parts when it has more than text."""
    text: str
    makes_session: bool = False
    """Whether the session was made by accepting it."""
    came: int = msgspec.field(default_factory=partial(next, itertools.count()))
    """Its place among those that this process took in; what was left by another comes before."""
    is_recovered: bool = False
    """Whether it was accepted by a process that is gone."""
    stop: Stop = msgspec.field(default_factory=Stop)
    is_told: bool = False
    """Whether its end is told, or about to be: what is left of it takes a moment."""
    done: threading.Event = msgspec.field(default_factory=threading.Event)
    """Set when it runs no more, and is not the current one."""


Settle = Callable[[dict[str, Any] | HermesError], None]
"""Answers a request later: with its result, or with why there is none."""


class Steering(msgspec.Struct):
    """Something said to the running turn. It waits as a turn of its own until it has been heard."""

    text: str
    key: str | None
    settle: "Settle"
    waiting: "Waiting | None" = None

    def tell(self, status: str) -> None:
        """Answer its sender: steered, queued (it is a prompt of its own), rejected (it was dropped)."""
        turn_id = self.waiting.turn_id if self.waiting is not None else ""
        self.settle({"status": status, "text": self.text, "turn_id": turn_id})


class RunningTool(msgspec.Struct):
    """A call that has begun and not ended, for a client that comes in the middle of it."""

    tool_id: str
    name: str
    arguments: dict[str, object]
    output: str = ""
    """The end of what it has shown so far."""


class Live(msgspec.Struct):
    """What the server remembers of an open session and no scenario has to know."""

    sid: str = ""
    conversation_id: str = ""
    """The conversation that others see open here; empty until something was said in it."""
    source: str = SOURCE
    cwd: Path = msgspec.field(default_factory=folder.own)
    model_name: str = ""
    """The model that was chosen for this session; empty: the one of the settings."""
    is_model_remembered: bool = False
    """Whether it was chosen earlier, so that it may be gone by now."""
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
    """Held while the queue, the current turn or `running` change."""
    accepting: threading.RLock = msgspec.field(default_factory=threading.RLock)
    """Held while a prompt is taken in, so that the order on disk is the order of the queue."""
    queue: deque[Waiting] = msgspec.field(default_factory=deque[Waiting])
    told: list[str] = msgspec.field(default_factory=list[str])
    """The turns that wait, as the clients were told last."""
    telling: threading.Lock = msgspec.field(default_factory=threading.Lock)
    """Held while they are told what waits."""
    current: Waiting | None = None
    compaction: Stop | None = None
    """The stop of the compaction that runs now."""
    shown: int = 0
    """The last message that clients were shown when they asked for the conversation."""
    rewinds: tuple[str, int] = ("", 0)
    """How often something had been taken back by then, and in which session."""
    own: set[int] = msgspec.field(default_factory=set[int])
    """The user messages that are answered here, of which clients are told by events."""
    streamed: list[str] = msgspec.field(default_factory=list[str])
    """What was streamed of the current reply."""
    tools: dict[str, RunningTool] = msgspec.field(default_factory=dict[str, RunningTool])
    """The calls that run now, by their ids."""
    steering: list[Steering] = msgspec.field(default_factory=list[Steering])
    takes_steers: bool = False
    """Whether a turn runs that hears what is said to it."""
    taken: int | None = None
    """How many tokens of the window are in use; None when only the store may know."""
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
    is_over: bool = False
    """Whether nothing of it is to go on, also not what was about to begin."""
    detached_at: float | None = None
    """When the last client went away."""

    def begin(self, waiting: Waiting | None) -> None:
        """From now on this prompt is the current one, of which nothing was streamed yet."""
        self.current = waiting
        self.streamed.clear()
        self.tools.clear()


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
    """Whether a turn runs or is about to."""
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
    """Whether it was let go of; set once."""
    live: Live


class Renderer(Protocol):
    """Makes text for a terminal of a reply that comes in pieces."""

    def feed(self, text: str) -> str | None:
        """What can be shown by now, or None."""
        ...


def is_busy(session: LiveSession, live: Live) -> bool:
    """Whether a turn runs, or something else that must not be disturbed.

    A turn whose end was told is waited for: a client that has heard of it may ask for what comes next.
    """
    current = live.current
    if current is not None and current.is_told:
        current.done.wait(_LEAVING_S)
    return bool(session.get("running"))


def check_idle(session: LiveSession, live: Live) -> None:
    """Refuse what cannot be done while a turn runs."""
    if is_busy(session, live):
        raise busy()


def busy() -> RpcError:
    return RpcError(BUSY, "A turn is running.", fix="Interrupt it first.")


def at_rest(key: str, live: Live) -> LiveSession:
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
        """What agents are made of."""
        ...

    def reload(self) -> None:
        """Read the settings anew."""
        ...

    def live(self, session: LiveSession) -> Live: ...
    def session(self, sid: str) -> LiveSession:
        """An open session; raises RpcError."""
        ...

    def take_up(self, sid: str, session: LiveSession) -> int:
        """Take up what a process that is gone left unfinished in a session; returns how many turns."""
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
    def emit(self, kind: str, sid: str, payload: dict[str, Any] | None = None) -> None: ...
    def emit_to_others(self, kind: str, sid: str, payload: dict[str, Any]) -> None:
        """Tell the clients of a session but the one that asked."""
        ...

    def make_stream_renderer(self, cols: int) -> Renderer | None: ...
    def render_message(self, text: str, cols: int) -> str | None: ...
    def watch(self, session: LiveSession) -> None:
        """Have the client that asked told what happens in a session."""
        ...

    def spawn(self, target: Callable[[], None]) -> None:
        """Run a function beside the others, in a thread that it need not share."""
        ...

    def later(self, rid: Rid) -> Settle:
        """How a request is answered whose method returns None."""
        ...

    def afterwards(self, target: Callable[[], None]) -> None:
        """Run a function when the client has its answer."""
        ...
