"""The server: open sessions, the table of methods, and how a request becomes an answer.

The names that begin with an underscore are pinned (docs/reference/pins.md): scenarios replace them, so
everything else reaches them through `_Runtime`, which reads them when they are needed.
"""

import contextvars
import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from hermes_core.errors import HermesError
from hermes_core.loading import loading
from hermes_protocol import errors, events
from hermes_protocol.errors import BUSY, NO_SUCH_SESSION, TOO_MANY
from hermes_protocol.structs import WireStruct
from tui_gateway import clients, methods, protocol
from tui_gateway.pool import Pool, run_logged
from tui_gateway.protocol import Frame, Result, Rid, RpcError
from tui_gateway.resources import Resources
from tui_gateway.runtime import LiveSession, Renderer, SessionState, Settle
from tui_gateway.transport import Transport, decode

if TYPE_CHECKING:
    from hermes_agent.assembly import Assembly
    from hermes_core.paths import Home
    from hermes_core.settings import Settings
    from hermes_engine.engine import Engine
    from hermes_state.store import Store
    from tui_gateway.presence import Presence

logger = logging.getLogger(__name__)

MAX_SESSIONS = 256
_MAX_REQUESTS = 8
"""How many long requests are worked on at once; the others wait."""
_MAX_TURNS = 64
"""How many turns run at once; the others are queued."""
_DRAIN_TIMEOUT_S = 0.2
_ENDING_S = 10.0
"""How long a client that opens a conversation waits for its close, during which hooks run."""
_MAX_SHOWN_CHARS = 200

_sessions: dict[str, LiveSession] = {}
"""The open sessions by their id here, which dies with the process."""
_sessions_lock = threading.RLock()
_ends = threading.Condition(_sessions_lock)
"""Told when a session that was being ended has come to its end."""
_ending: list[LiveSession] = []
"""Sessions that are being ended: not open any more, but not over."""
_resources = Resources()
_pool = Pool(threads=_MAX_REQUESTS)
"""For requests that take a while."""
_background = Pool()
"""For what may wait for a model or a plugin, and agents that are being made."""
_stdio: Transport | None = None
"""The client whose child this process is, if there is one."""

_caller: contextvars.ContextVar[Transport | None] = contextvars.ContextVar("caller", default=None)
_request_id: contextvars.ContextVar[Rid] = contextvars.ContextVar("request_id", default=None)
_after: contextvars.ContextVar[list[Callable[[], None]] | None] = contextvars.ContextVar(
    "after", default=None
)


# -- what scenarios replace --------------------------------------------------------------------------


def _get_db() -> "Store":
    """The store that all sessions share, opened when it is first needed; raises StoreError."""
    return _resources.store()


def _emit(event: str, sid: str, payload: dict[str, Any] | None = None) -> None:
    """Tell the clients of a session that something happened."""
    write_json(protocol.frame(event, sid, payload))


def make_stream_renderer(cols: int) -> Renderer | None:
    """Renders a reply while it comes in, for clients that want text for a terminal."""
    with loading:
        from tui_gateway.rendering import StreamRenderer  # noqa: PLC0415 -- few clients want it

    return StreamRenderer(cols)


def render_message(text: str, cols: int) -> str | None:
    """A whole reply as text for a terminal."""
    with loading:
        from tui_gateway.rendering import rendered  # noqa: PLC0415 -- as above

    return rendered(text, cols)


def _notify_session_boundary(event: str, session_id: str, source: str) -> None:
    """Tell plugins that a session began or is over; never raises."""
    with loading:
        from hermes_cli import plugins  # noqa: PLC0415 -- loaded with the first session

    invoke = partial(plugins.invoke_hook, event, session_id=session_id, platform=source)
    run_logged(invoke, f"The hook {event}")


def _finalize_session(session: LiveSession | None, end_reason: str = "tui_close") -> None:
    """Release a session: once, even if a step fails, with the agent's current session id."""
    with loading:
        from tui_gateway import closing  # noqa: PLC0415 -- loaded with the first session

    if not session:
        return
    with _sessions_lock:
        if session.get("_finalized"):
            return
        session["_finalized"] = True
    closing.close_session(_runtime, session, end_reason)


def _sync_session_key_after_compress(
    sid: str,
    session: LiveSession,
    *,
    clear_pending_title: bool = True,
    restart_slash_worker: bool = True,
) -> None:
    """Follow the agent to the session that a compaction moved its conversation to.

    Commands run in this process, so there is no worker to restart; the argument is part of the contract.
    """
    del restart_slash_worker
    old = session["session_key"]
    new: object = getattr(session.get("agent"), "session_id", None)
    if not isinstance(new, str) or not new or new == old:
        return
    session["session_key"] = new
    if clear_pending_title:
        session["pending_title"] = None
    logger.info("session %s continues in %s (was %s)", sid, new, old)


# -- sessions ----------------------------------------------------------------------------------------


def _check_room() -> None:
    if len(_sessions) >= MAX_SESSIONS:
        raise RpcError(TOO_MANY, f"{MAX_SESSIONS} sessions are open.", fix="Close one first.")


def _register(session: LiveSession) -> str:
    with _sessions_lock:
        _check_room()
        while (sid := os.urandom(4).hex()) in _sessions:
            pass
        _sessions[sid] = session
    _live_of(session).sid = sid
    return sid


def _live_of(session: LiveSession) -> SessionState:
    """Return the state of a session; of one that a scenario made, from now on."""
    live = session.get("live")
    if live is None:
        with _sessions_lock:
            live = session.setdefault("live", SessionState())
    return live


def _close_session_by_id(sid: str, end_reason: str = "tui_close") -> bool:
    """End a session and forget it; tells whether there was one."""
    with _sessions_lock:
        session = _sessions.pop(sid, None)
        if session is None:
            return False
        _ending.append(session)
    live = _live_of(session)
    closed = events.Closed(end_reason, session["session_key"])
    _end(session, end_reason)
    clients.send_to_others(live, protocol.event(sid, closed), _caller.get())
    return True


def _end(session: LiveSession, end_reason: str) -> None:
    """Bring a session to its end that is noted as ending."""
    try:
        _finalize_session(session, end_reason)
    finally:
        with _ends:
            # the same one may be noted twice, and two that are alike are not the same
            _ending.pop(next(n for n, other in enumerate(_ending) if other is session))
            _ends.notify_all()


def _shutdown_sessions(end_reason: str = "tui_shutdown") -> None:
    """End every session, all at the same time; returns when each has come to its end."""
    with _sessions_lock:
        sids = list(_sessions)
    threads = [
        threading.Thread(target=partial(_close_session_by_id, sid, end_reason), daemon=True)
        for sid in sids
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with _ends:
        _ends.wait_for(lambda: not _ending)


def shut_down() -> None:
    """Answer what was asked, as far as that is soon done; end every session; close what is open."""
    _pool.drain(_DRAIN_TIMEOUT_S)
    _shutdown_sessions()
    _resources.close()


def interrupt_all() -> int:
    """Stop every turn that runs; returns how many."""
    with _sessions_lock:
        sessions = list(_sessions.values())
    running = [session for session in sessions if _is_running(session)]
    if running:
        with loading:
            from tui_gateway import prompts  # noqa: PLC0415 -- loaded with the first prompt

        for session in running:
            prompts.interrupt(_runtime, session, cancels_queue=True)
    return len(running)


def _is_running(session: LiveSession) -> bool:
    with loading:
        from tui_gateway import info  # noqa: PLC0415 -- loaded with the first session

    return info.is_running(_runtime, session)


def end_orphans() -> list[str]:
    """End what processes that are gone have left open; returns the sessions.

    Plugins and memory are told afterwards, however long they take.
    """
    if not _resources.home.database.exists():
        return []
    with loading:
        from tui_gateway import orphans  # noqa: PLC0415 -- brings the store

    ended = orphans.end_orphans(_get_db(), _resources.presence)
    if ended:
        _runtime.spawn(lambda: orphans.report(_runtime.assembly(), ended))
    return ended


def report_foreign_answers() -> None:
    """Tell clients what other processes have answered in conversations that are open here."""
    for sid, session in list(_sessions.items()):
        with loading:
            from tui_gateway import view  # noqa: PLC0415 -- loaded with the first session

        if session.get("live") is not None:
            view.notify_foreign_turns(_runtime, sid, session)


# -- clients -----------------------------------------------------------------------------------------


def serve_stdio(transport: Transport) -> None:
    """Send this client what no other client is sent."""
    global _stdio  # noqa: PLW0603 -- there is one, and it belongs to the process
    _stdio = transport


def write_json(frame: Frame) -> bool:
    """Send a frame: an event to the clients of its session, a response to its client."""
    params: Frame = frame.get("params") or {}
    live = _live_by(params.get("session_id", ""))
    return clients.send(live, frame, _caller.get() or _stdio)


def _live_by(sid: str) -> SessionState | None:
    """Return the state of a session that is open, or is being closed."""
    if (session := _sessions.get(sid)) is not None:
        return _live_of(session)
    with _sessions_lock:
        ending = [_live_of(session) for session in _ending]
    return next((live for live in ending if sid and live.sid == sid), None)


def detach(transport: Transport, now: float) -> list[str]:
    """A client is gone: its sessions live on, or end if it wished so; returns those left alone."""
    for _, live in _live_sessions():
        if (feed := live.feeds.pop(transport, None)) is not None and live.log is not None:
            live.log.unsubscribe(feed)
    alone = [sid for sid, live in _live_sessions() if clients.leave(live, transport, now)]
    return [sid for sid in alone if not _ends_with_client(sid)]


def _ends_with_client(sid: str) -> bool:
    session = _sessions.get(sid)
    if session is None or not _live_of(session).closes_with_client:
        return False
    return _close_session_by_id(sid, "ws_disconnect")


def end_abandoned(now: float, grace_s: float) -> list[str]:
    """End sessions that have had no client for so long and do nothing; returns them."""
    abandoned = clients.abandoned(_live_sessions(), now, grace_s)
    found = [(sid, _sessions.get(sid)) for sid in abandoned]
    idle = [sid for sid, session in found if session is not None and not _is_running(session)]
    return [sid for sid in idle if _close_session_by_id(sid, "ws_orphan_reap")]


def _live_sessions() -> list[tuple[str, SessionState]]:
    with _sessions_lock:
        return [(sid, _live_of(session)) for sid, session in _sessions.items()]


# -- requests ----------------------------------------------------------------------------------------


def receive(data: bytes | str, transport: Transport) -> None:
    """Deal with what a client sent: a line or a message."""
    try:
        request = decode(data)
    except (ValueError, RecursionError) as error:
        transport.write(protocol.refusal(None, errors.PARSE_ERROR, f"No JSON: {error}."))
        return
    dispatch(request, transport)


def dispatch(request: object, transport: Transport | None = None) -> Frame | None:
    """Answer a request to the client it came from; what may take a while is done beside.

    Without a client the answer is returned.
    """
    if transport is None:
        return handle_request(request)
    frame = cast("Frame", request) if isinstance(request, dict) else {}
    name = frame.get("method")
    entry = methods.TABLE.get(name) if isinstance(name, str) else None
    if entry is None or not entry.is_long:
        _answer(cast("object", request), transport)
    elif not (_background if entry.waits else _pool).run(partial(_answer, frame, transport)):
        busy = "Too many requests are waiting."
        transport.write(protocol.refusal(frame.get("id"), errors.SERVER_ERROR, busy))
    return None


def _answer(request: object, transport: Transport) -> None:
    token = _caller.set(transport)
    afterwards: list[Callable[[], None]] = []
    after_token = _after.set(afterwards)
    try:
        response = handle_request(request)
    finally:
        _after.reset(after_token)
        _caller.reset(token)
    if response is not None:
        transport.write(response)
    for target in afterwards:
        run_logged(target, "Work after a response")


def handle_request(request: object) -> Frame | None:
    """Do what a request asks and return the answer; None for a notification, or when it comes later.

    The boundary of a request: whatever goes wrong in it becomes an answer that says so.
    """
    if not isinstance(request, dict):
        return protocol.refusal(None, errors.INVALID_REQUEST, "A request is an object.")
    frame = cast("Frame", request)
    rid = frame.get("id")
    try:
        response = _handle(frame, rid)
    except HermesError as error:
        response = protocol.refusal_of(rid, error)
    except Exception as error:
        logger.exception("the request %s failed", str(frame.get("method"))[:_MAX_SHOWN_CHARS])
        response = protocol.refusal(rid, errors.INTERNAL_ERROR, f"Unexpected error: {error!r}.")
    is_notification = "id" not in frame and isinstance(frame.get("method"), str)
    return None if is_notification else response


def _handle(frame: Frame, rid: Rid) -> Frame | None:
    name, params = frame.get("method"), frame.get("params")
    if not isinstance(name, str) or not name:
        raise RpcError(errors.INVALID_REQUEST, "The name of the method is missing.")
    if params is not None and not isinstance(params, dict):
        raise RpcError(errors.INVALID_PARAMS, "The parameters have to be an object.")
    method = _methods.get(name)
    if method is None:
        raise methods.unknown(name[:_MAX_SHOWN_CHARS])
    return method(rid, cast("Frame", params or {}))


class _Runtime:
    """The runtime of methods and turns. It reads the module's names late, so that scenarios may replace
    them."""

    @property
    def sessions(self) -> dict[str, LiveSession]:
        return _sessions

    @property
    def transport(self) -> Transport | None:
        return _caller.get() or _stdio

    @property
    def home(self) -> "Home":
        return _resources.home

    @property
    def settings(self) -> "Settings":
        return _resources.settings

    @property
    def presence(self) -> "Presence":
        return _resources.presence

    def db(self) -> "Store":
        return _get_db()

    def assembly(self) -> "Assembly":
        return _resources.assembly(_get_db())

    def engine(self) -> "Engine":
        return _resources.engine(_get_db(), _make_engine)

    def reload(self) -> None:
        _resources.reload()

    def live(self, session: LiveSession) -> SessionState:
        return _live_of(session)

    def session(self, sid: str) -> LiveSession:
        session = _sessions.get(sid)
        if session is None:
            raise RpcError(
                NO_SUCH_SESSION,
                f"No session {sid[:_MAX_SHOWN_CHARS]!r} is open here.",
                fix="Create one, or resume a conversation.",
            )
        return session

    def find(self, conversation_id: str) -> LiveSession | None:
        for session in list(_sessions.values()):
            live = _live_of(session)
            if live.conversation_id == conversation_id and not live.is_closing:
                return session
        return None

    def check_room(self) -> None:
        _check_room()

    def register(self, session: LiveSession) -> str:
        return _register(session)

    def close(self, sid: str, end_reason: str) -> bool:
        return _close_session_by_id(sid, end_reason)

    def wait_for_end(self, is_meant: Callable[[LiveSession], bool]) -> None:
        with _ends:
            ending = list(_ending)
        meant = {id(session) for session in ending if is_meant(session)}
        with _ends:
            is_over = _ends.wait_for(lambda: meant.isdisjoint(map(id, _ending)), _ENDING_S)
        if not is_over:
            fix = "Try again in a moment."
            raise RpcError(BUSY, "The conversation is still closing.", fix=fix)

    def finalize(self, session: LiveSession, end_reason: str) -> None:
        with _sessions_lock:
            _ending.append(session)
        _end(session, end_reason)

    def sync_key(self, sid: str, session: LiveSession, *, clear_pending_title: bool) -> None:
        _sync_session_key_after_compress(sid, session, clear_pending_title=clear_pending_title)

    def emit(self, sid: str, event: WireStruct) -> None:
        _emit(events.name_of(event), sid, event.to_wire())

    def emit_to_others(self, sid: str, event: WireStruct) -> None:
        if (session := _sessions.get(sid)) is not None:
            frame = protocol.event(sid, event)
            clients.send_to_others(_live_of(session), frame, self.transport)

    def make_stream_renderer(self, cols: int) -> Renderer | None:
        return make_stream_renderer(cols)

    def render_message(self, text: str, cols: int) -> str | None:
        return render_message(text, cols)

    def watch(self, session: LiveSession) -> None:
        live = _live_of(session)
        clients.subscribe(live, self.transport)
        if live.log is not None:
            with loading:
                from tui_gateway import feeds  # noqa: PLC0415 -- loaded with the engine

            feeds.follow(self, session, self.transport)

    def spawn(self, target: Callable[[], None]) -> None:
        _background.run(target)

    def defer_answer(self) -> Settle:
        transport, rid = self.transport, _request_id.get()

        def settle(result: Result | HermesError) -> None:
            if isinstance(result, HermesError):
                frame = protocol.refusal_of(rid, result)
            else:
                frame = protocol.answer(rid, result)
            if transport is not None:
                transport.write(frame)

        return settle

    def run_after_answer(self, target: Callable[[], None]) -> None:
        waiting = _after.get()
        if waiting is None:
            target()
        else:
            waiting.append(target)


def _make_engine(assembly: "Assembly") -> "Engine":
    # the engine and the agent: loaded with the first session
    with loading:
        from hermes_engine.engine import Engine  # noqa: PLC0415
        from tui_gateway.surface import TerminalSurface  # noqa: PLC0415

    surface = TerminalSurface(_runtime)
    return Engine(assembly, [surface], max_turns=_MAX_TURNS, adopts_abandoned=False)


_runtime = _Runtime()


def _call(name: str, rid: Rid, params: Frame) -> Frame | None:
    token = _request_id.set(rid)
    try:
        result = methods.call(_runtime, name, params)
    except HermesError as error:
        return protocol.refusal_of(rid, error, methods.TABLE[name].code)
    except OSError as error:
        logger.warning("%s: %s", name, error)
        return protocol.refusal_of(rid, protocol.of_system(error), methods.TABLE[name].code)
    finally:
        _request_id.reset(token)
    return None if result is None else protocol.answer(rid, result)


_methods: dict[str, Callable[[Rid, Frame], Frame | None]] = {
    name: partial(_call, name) for name in methods.TABLE
}
"""Every method by its name, bound to this server."""
