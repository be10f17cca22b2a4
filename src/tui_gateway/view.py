"""A conversation as a client finds it: what was said, what runs, what waits, what is asked."""

from contextlib import AbstractContextManager
from threading import Lock
from weakref import WeakValueDictionary

from msgspec.structs import replace

from hermes_agent.turn.call_summary import summary_of
from hermes_core.loading import loading
from hermes_protocol import results
from hermes_protocol.errors import NOT_STORED
from hermes_protocol.events import Changed
from hermes_protocol.results import Opened, Position, Resumption
from hermes_state.ledger import lineage, questions, sessions, titles, turns
from hermes_state.ledger import messages as message_ledger
from hermes_state.store import Store
from hermes_state.transitions import TurnState
from hermes_state.values import Row
from tui_gateway import clients, feeds, info, queue, surface
from tui_gateway.inflight import NOTHING, Inflight
from tui_gateway.projection import TURN_END, projected
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import LiveSession, Runtime

PAGE = 50
_MAX_SHOWN_CHARS = 200
_deciding: WeakValueDictionary[str, Lock] = WeakValueDictionary()
_choosing = Lock()


def opening_lock(store: Store, key: str) -> AbstractContextManager[bool]:
    """Held while it is found out whether a conversation is open and what follows from that is done, so
    that it is opened once, and not deleted while it is being opened. Others do not wait for it.
    """
    with _choosing:
        return _deciding.setdefault(store.read(lineage.root, key), Lock())


def snapshot(rt: Runtime, sid: str, limit: int | None, after: Position | None = None) -> Opened:
    """Return what a client needs that comes in the middle; it is sent all events that follow.

    A client that names its position is sent exactly what it missed, and no messages, if that is kept.
    """
    session, store = rt.session(sid), rt.db()
    surface.attach(rt, session)
    live, key = rt.live(session), info.key_of(session)
    clients.subscribe(live, rt.transport)
    events, reported = _position(rt, session, after)
    row = store.read(sessions.find, store.read(lineage.tip, key))
    messages, inflight = list[Row](), None
    if not events.replayed:
        messages = transcript(store, key, limit) or live.seed
        live.last_message_id = max((message.get("id") or 0 for message in messages), default=0)
        live.rewinds = info.rewinds_of(store, key)
        messages, inflight = _divide(rt, session, messages, reported)
    description = info.describe(rt, session)
    if row is not None:  # known before there is an agent
        title, usage = row["title"] or "", info.usage(rt, session)
        description = replace(description, title=title, usage=usage)
    rt.run_after_answer(lambda: _ask_again(rt, sid, session))
    return Opened(
        session_id=sid,
        session_key=key,
        stored_session_id=key,
        resumed=key,
        message_count=row["message_count"] if row else len(live.seed),
        messages=projected(messages),
        info=description,
        inflight=inflight,
        queued=queue.queued(rt, live),
        running=info.is_running(rt, session),
        started_at=row["started_at"] if row else live.created_at,
        status=status_of(rt, session),
        events=events,
    )


def _position(
    rt: Runtime, session: LiveSession, after: Position | None
) -> tuple[Resumption, Inflight]:
    """Return the position of a snapshot, and what events have reported of the running turn by then.

    The client is sent what follows as soon as it has its answer.
    """
    live, transport = rt.live(session), rt.transport
    log = live.log
    if log is None or live.read_inflight is None:  # a scenario's session
        return Resumption(), NOTHING
    if transport is not None:
        feeds.stop(rt, session, transport)
    seq, reported = log.capture(live.read_inflight)
    replayed = after is not None and log.keeps(after.log, after.seq)
    if after is not None and replayed:
        seq = after.seq
    feeds.follow_after_answer(rt, session, transport, seq)
    return Resumption(log.id, seq, replayed), reported


def notify_foreign_turns(rt: Runtime, sid: str, session: LiveSession) -> bool:
    """Tell the clients of a session that nothing runs in when another process has answered in its
    conversation; returns whether one has.
    """
    live = rt.live(session)
    if live.is_closing or not live.watchers or info.is_running(rt, session):
        return False
    latest = rt.db().read(message_ledger.page, info.key_of(session), None, PAGE)
    new = [
        message["id"]
        for message in latest
        if message["id"] > live.last_message_id and _exchange(message) not in live.own
    ]
    rewinds = info.rewinds_of(rt.db(), info.key_of(session))
    is_cut = rewinds[0] == live.rewinds[0] and rewinds != live.rewinds
    if info.is_running(rt, session) or not (new or is_cut):
        return False
    live.last_message_id, live.rewinds = max(new, default=live.last_message_id), rewinds
    rt.emit(sid, Changed("elsewhere", info.key_of(session)))
    return True


def stored(store: Store, name: str) -> str:
    """The session where a stored conversation is now: by id, title, or beginning of an id."""
    found = store.read(titles.resolve_name, name)
    if found is None:
        raise RpcError(
            NOT_STORED,
            f"There is no conversation {name[:_MAX_SHOWN_CHARS]!r}.",
            fix="`hermes sessions list` shows them.",
        )
    return store.read(lineage.tip, found)


def opened(rt: Runtime, key: str) -> str | None:
    """The open session in the conversation of a stored one; one that is being ended is waited for."""
    store = rt.db()
    root = store.read(lineage.root, key)

    def is_meant(session: LiveSession) -> bool:
        return store.read(lineage.root, info.key_of(session)) == root

    for sid, session in list(rt.sessions.items()):
        if is_meant(session):
            return sid
    rt.wait_for_end(is_meant)
    return None


def transcript(
    store: Store, key: str, limit: int | None, before_id: int | None = None
) -> list[Row]:
    """The originals of a conversation, or a page of them; unanswered turns are marked at their end."""
    if limit is None and before_id is None:
        found = store.read(message_ledger.originals, key)
    else:
        found = store.read(message_ledger.page, key, before_id, PAGE if limit is None else limit)
    following = (
        store.read(message_ledger.page, key, before_id + 1, 1) if before_id is not None else []
    )
    return _ended(store, _with_calling_step(store, key, found), following)


def _with_calling_step(store: Store, key: str, messages: list[Row]) -> list[Row]:
    """Add their calls to results at the top of a page, whose step is on the page before."""
    if messages and messages[0]["role"] == "tool":
        earlier = store.read(message_ledger.page, key, messages[0]["id"], PAGE)
        steps = (step["tool_calls"] for step in reversed(earlier) if step.get("tool_calls"))
        messages[0]["tool_calls"] = next(steps, None)
    return messages


def _ended(store: Store, messages: list[Row], following: list[Row]) -> list[Row]:
    """Mark the last message of each turn that failed or was stopped."""
    exchanges = [_exchange(message) for message in (*messages, *following)]
    cut = {row["user_message_id"]: row for row in store.read(turns.cut_short, set(exchanges))}
    for message, own, after in zip(messages, exchanges, [*exchanges[1:], None], strict=False):
        if own != after and own in cut:
            message[TURN_END] = _end_of(cut[own])
    return messages


def _end_of(turn: Row) -> dict[str, str]:
    """In the words of `message.complete`."""
    if turn["state"] == TurnState.INTERRUPTED:
        return {"status": "interrupted"}
    return {"status": "error", "error": turn["reason"] or ""}


def _divide(
    rt: Runtime, session: LiveSession, messages: list[Row], reported: Inflight
) -> tuple[list[Row], results.Inflight | None]:
    """Divide messages into those of ended turns and the running turn; queued prompts are in neither."""
    live, store = rt.live(session), rt.db()
    if live.log is None:
        return messages, None
    open_turns = rt.engine().open_turns(live.conversation_id)
    ids = [row["id"] for row in open_turns]
    ended = store.read(turns.find, reported.turn_id) if reported.turn_id not in ids else None
    if ended is not None:  # clients are about to be sent its end
        open_turns.insert(0, ended)
    if not open_turns:
        return messages, None
    first = min(row["user_message_id"] for row in open_turns)
    over = [message for message in messages if _exchange(message) < first]
    if rt.engine().work.is_compacting(live.conversation_id):
        return over, None
    current = open_turns[0]
    steps = [m for m in messages if m.get("answers") == current["user_message_id"]]
    if reported.turn_id == current["id"]:
        steps = [message for message in steps if reported.includes(message)]
    prompt = queue.prompt(store, current["id"])
    return over, results.Inflight(
        turn_id=current["id"],
        user=prompt.text,
        images=prompt.images or [],
        messages=projected(steps),
        tools=_running_tools(session, reported),
        assistant=reported.text,
        streaming=True,
    )


def _running_tools(session: LiveSession, reported: Inflight) -> list[results.RunningTool]:
    """Return the calls that run, as `tool.start` and `tool.progress` reported them."""
    if session.get("tool_progress_mode", "all") == "off":
        return []
    return [
        results.RunningTool(tool.tool_id, tool.name, summary_of(tool.arguments), tool.output)
        for tool in reported.tools
    ]


def _exchange(message: Row) -> int:
    """The user message that a message belongs to; one that a client brought along is old."""
    return message.get("answers") or message.get("origin_id") or message.get("id") or 0


def status_of(rt: Runtime, session: LiveSession) -> str:
    """Return what a session does: waiting (for a person), starting, working or idle."""
    if info.is_running(rt, session):
        return "waiting" if questions_of(rt, session) else "working"
    has_failed = rt.live(session).error is not None
    return "idle" if session.get("agent") is not None or has_failed else "starting"


def questions_of(rt: Runtime, session: LiveSession) -> list[Row]:
    """Return the open questions of a session, those of sub-agents included."""
    store = rt.db()
    root = store.read(lineage.root, info.key_of(session))
    return [
        row for row in store.read(questions.pending) if _origin(store, row["session_id"]) == root
    ]


def _origin(store: Store, session_id: str) -> str:
    """The conversation that a person sees of a session: a sub-agent's is its parent's."""
    row = store.read(sessions.find, session_id)
    while row is not None and row["relation"] == "delegate":
        row = store.read(sessions.find, row["parent_session_id"])
    return row["conversation_id"] if row is not None else session_id


def _ask_again(rt: Runtime, sid: str, session: LiveSession) -> None:
    """A client that comes in the middle is told what waits for an answer."""
    # brings the events of the agent, which a session that asks something has loaded
    with loading:
        from tui_gateway.translation import request_of  # noqa: PLC0415

    for question in questions_of(rt, session):
        rt.emit(sid, request_of(rt, session, question))
