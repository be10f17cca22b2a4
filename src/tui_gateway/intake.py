"""Taking prompts in: each is on disk before its sender is answered, and then waits for its turn.

The queue in memory only orders what the store holds already; a process that dies loses nothing of it.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

from hermes_agent import lease, recovery
from hermes_agent.turn.stop import Stop
from hermes_core import clock
from hermes_protocol.errors import NO_SUCH_SESSION
from hermes_state.ledger import inbox, lineage, sessions
from hermes_state.ledger import turns as turn_ledger
from hermes_state.ledger.turns import FOLDED, TurnSource
from hermes_state.store import Store
from hermes_state.values import NewSession, Row
from tui_gateway import info, line, turns
from tui_gateway.projection import text_of
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import Live, LiveSession, Runtime, Steering, Waiting, busy, check_idle


def submit(
    rt: Runtime,
    sid: str,
    session: LiveSession,
    content: Any,  # noqa: ANN401 -- text or parts
    key: str | None = None,
    replaces: int | None = None,
) -> dict[str, Any]:
    """Have a prompt answered: now, or after those that wait. It is on disk when this returns.

    `replaces` is a user message that is taken back for it, with all after it.
    """
    live = rt.live(session)
    with live.accepting:
        recover(rt, sid, session, with_messages=False)  # it came before this one
        waiting, is_new = _take_in(rt, session, content, key, replaces)
        if not is_new and (known := _known(rt, session, waiting)) is not None:
            return known
        return {"status": _line_up(rt, sid, session, waiting), "turn_id": waiting.turn_id}


def steer(rt: Runtime, session: LiveSession, steering: Steering) -> bool:
    """Say something to the running turn; False when none runs that would hear it.

    It is on disk at once, as a turn that waits; when the running one takes it in, the two are one. Its
    sender is answered then. What the turn does not hear is next in line.
    """
    live = rt.live(session)
    with live.accepting:
        agent = session.get("agent")
        if agent is None or not live.takes_steers or live.is_closing:
            return False
        waiting, is_new = _take_in(rt, session, steering.text, steering.key)
        if not is_new and (known := _known(rt, session, waiting)) is not None:
            steering.settle(known)
            return True
        steering.waiting = waiting
        with live.lock:
            is_heard = live.takes_steers
            if is_heard:
                live.steering.append(steering)
                agent.steer(steering.text, waiting.turn_id)
    if not is_heard:  # its turn has just ended
        steering.tell(_line_up(rt, live.sid, session, waiting))
    return True


def _line_up(rt: Runtime, sid: str, session: LiveSession, waiting: Waiting) -> str:
    """Have a turn run after those that wait; tells whether it waits or begins."""
    live = rt.live(session)
    with live.lock:
        was_running, session["running"] = bool(session.get("running")), True
        if was_running or live.queue:
            live.queue.append(waiting)
        else:
            live.begin(waiting)  # from now on a stop is meant for it
    if not was_running:
        _start(rt, sid, session)
    rt.afterwards(lambda: line.tell(rt, live))  # its sender knows by then which turn it is
    return "queued" if was_running else "streaming"


def recover(rt: Runtime, sid: str, session: LiveSession, *, with_messages: bool = True) -> int:
    """Queue the turns that another process left open; returns how many.

    They run when the client has its answer, which may mention them. Of several processes that have the
    conversation open, the first one queues them, unless it hangs: then any of them does. `with_messages`
    includes what came by a messenger, whose gateway may be about to start it.
    """
    store, live = rt.db(), rt.live(session)
    with live.accepting:
        if live.is_closing or not _others(
            store, session, live, partial(store.read, turn_ledger.still_open)
        ):
            return 0
        conversation_id = store.read(lineage.root, info.key_of(session))
        if not (rt.presence.is_first(conversation_id) or lease.is_hung(store, conversation_id)):
            return 0  # the process that has had it open for longest runs them
        look = partial(recovery.unfinished, store, conversation_id)
        found = [
            row
            for row in _others(store, session, live, look)
            if with_messages or store.read(inbox.of_turn, row["id"]) is None
        ]
        live.own |= {row["user_message_id"] for row in found}
        left = [
            Waiting(
                row["id"],
                None,
                store.read(turn_ledger.user_text, row["id"]),
                store.read(turn_ledger.opens, row["id"]),
            )
            for row in found
        ]
        for waiting in left:
            waiting.is_recovered, waiting.came = True, -1
        with live.lock:
            live.queue.extendleft(reversed(left))  # they came before all that is new
            is_due = bool(left) and not session.get("running")
            if is_due:
                live.begin(live.queue.popleft())
                session["running"] = True
    rt.afterwards(lambda: line.tell(rt, live))
    if is_due:
        rt.afterwards(lambda: _start(rt, sid, session))
    return len(left)


def _others(
    store: Store, session: LiveSession, live: Live, look: Callable[[], list[Row]]
) -> list[Row]:
    """Those turns of a conversation that are not in line here."""
    tip = store.read(lineage.tip, info.key_of(session))
    with live.lock:  # before the look: what ends meanwhile is not left by anybody
        said = [one.waiting for one in live.steering]
        ours = {one.turn_id for one in (*live.queue, *said, live.current) if one is not None}
    return [row for row in look() if row["session_id"] == tip and row["id"] not in ours]


def appear(rt: Runtime, session_id: str, live: Live) -> None:
    """Have others see that a conversation is open here."""
    if not live.conversation_id:
        root = cast("object", rt.db().read(lineage.root, session_id))
        conversation_id = root if isinstance(root, str) else session_id  # a scenario's store
        rt.presence.add(conversation_id)
        live.conversation_id = conversation_id


def reopen(rt: Runtime, session_id: str, live: Live) -> None:
    """Have a stored conversation open here, and say so in the store."""
    store = rt.db()
    appear(rt, session_id, live)
    row = store.read(sessions.find, session_id)
    if row is not None and row["ended_at"] is not None and row["is_tip"]:
        store.write(sessions.reopen, session_id)


def recall_model(rt: Runtime, session_id: str, live: Live) -> None:
    """Have a stored conversation answered by the model that was chosen for it, if one was."""
    row = rt.db().read(sessions.find, session_id)
    live.model_name = sessions.chosen_model(row) if row is not None else ""
    live.is_model_remembered = bool(live.model_name)


def choose_model(rt: Runtime, session: LiveSession, name: str, model: str) -> None:
    """Have a conversation answered by the model of this name from now on, also by a later process."""
    live, store, key = rt.live(session), rt.db(), info.key_of(session)
    live.model_name, live.is_model_remembered = name, False
    if store.read(sessions.find, key) is not None:
        store.write(sessions.change_model, key, model, chosen_as=name)


@contextmanager
def compacting(rt: Runtime, sid: str, session: LiveSession) -> Generator[Stop]:
    """Keep the session busy while its conversation is compacted; yields the stop of that."""
    live = rt.live(session)
    check_idle(session, live)
    with live.lock:
        if session.get("running"):
            raise busy()
        session["running"] = True
        live.compaction = stop = Stop()
    rt.emit("status.update", sid, {"kind": "compressing", "text": "Shortening the conversation."})
    try:
        yield stop
    finally:
        with live.lock:
            session["running"], live.compaction = False, None
        rt.emit("status.update", sid, {"kind": "ready", "text": ""})
        rt.sync_key(sid, session, clear_pending_title=True)
        resume_waiting(rt, sid, session)


def resume_waiting(rt: Runtime, sid: str, session: LiveSession) -> None:
    """Answer what came in while something else than a turn kept the session busy."""
    live = rt.live(session)
    with live.lock:
        is_due = bool(live.queue) and not session.get("running")
        session["running"] = bool(session.get("running")) or is_due
    if is_due:
        _start(rt, sid, session)


def _take_in(
    rt: Runtime,
    session: LiveSession,
    content: Any,  # noqa: ANN401 -- text or parts
    key: str | None,
    replaces: int | None = None,
) -> tuple[Waiting, bool]:
    live, store = rt.live(session), rt.db()
    if live.is_closing:
        raise RpcError(NO_SUCH_SESSION, "The session is being closed.")
    session_id = info.key_of(session)
    appear(rt, session_id, live)
    accepted = store.write(
        turn_ledger.accept,
        session_id,
        {"role": "user", "content": content},
        idempotency_key=key or None,
        opening=opening_of(session, live),
        reopens=True,
        replaces=replaces,
        source=TurnSource(live.source, lease.process_name()),
    )
    live.last_active = clock.now()
    if accepted.makes_session:
        live.seed = []
        turns.apply_title(rt, session)
    live.own.add(accepted.message_id)
    waiting = Waiting(accepted.turn_id, content, text_of(content), accepted.makes_session)
    return waiting, accepted.is_new


def opening_of(session: LiveSession, live: Live) -> NewSession:
    """The session that the first message, or a title, makes."""
    fields: dict[str, Any] = {"cwd": str(live.cwd)}
    if (agent := session.get("agent")) is not None:
        fields["model"] = info.model_name(agent)
    marks = {"_branched_from": live.parent_session_id, sessions.CHOSEN_MODEL: live.model_name}
    fields["model_config"] = {name: value for name, value in marks.items() if value} or None
    return NewSession(live.source, fields, live.parent_session_id, live.seed)


def _known(rt: Runtime, session: LiveSession, waiting: Waiting) -> dict[str, Any] | None:
    """Where a prompt stands that was sent before; None when it is still to be run."""
    store, live = rt.db(), rt.live(session)
    told = {"turn_id": waiting.turn_id, "duplicate": True}
    row = store.read(turn_ledger.find, waiting.turn_id)
    if row is not None and not _is_of(store, row["session_id"], session):
        return {**told, "status": row["state"], "stored_session_id": row["session_id"]}
    if row is not None and row["ended_at"] is not None:
        return {**told, "status": "steered" if row["reason"] == FOLDED else row["state"]}
    with live.lock:
        if live.current is not None and live.current.turn_id == waiting.turn_id:
            return {**told, "status": "streaming"}
        said = [one.waiting for one in live.steering]
        if any(one and one.turn_id == waiting.turn_id for one in (*live.queue, *said)):
            return {**told, "status": "queued"}
    waiting.is_recovered = True
    waiting.makes_session = store.read(turn_ledger.opens, waiting.turn_id)
    return None


def _is_of(store: Store, session_id: str, session: LiveSession) -> bool:
    """Whether a stored session belongs to the conversation that is open here."""
    roots = map(partial(store.read, lineage.root), (session_id, info.key_of(session)))
    return len(set(roots)) == 1


def _start(rt: Runtime, sid: str, session: LiveSession) -> None:
    live = rt.live(session)
    rt.afterwards(lambda: rt.spawn(lambda: turns.run_waiting(rt, sid, session, live)))
