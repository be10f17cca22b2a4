"""Prompts: accepted, said to the running turn, cancelled, interrupted. The engine runs them."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from hermes_agent import lease
from hermes_agent.turn.stop import Stop
from hermes_core import clock
from hermes_engine.inputs import Input
from hermes_engine.runner import STOPPED
from hermes_protocol import events
from hermes_protocol.errors import NO_SUCH_SESSION
from hermes_protocol.results import Queued
from hermes_state.ledger import turns as turn_ledger
from hermes_state.values import Accepted, TaintSource
from tui_gateway import agents, foreign_agents, info, queue, stored_session, surface
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import LiveSession, Runtime, Settle, busy

Json = dict[str, Any]


def submit(
    rt: Runtime,
    session: LiveSession,
    content: Any,  # noqa: ANN401 -- text or parts
    key: str | None = None,
    replaces: int | None = None,
    brings: Sequence[TaintSource] = (),
) -> Json:
    """Accept a prompt: it is on disk when this returns, and runs after those before it.

    `replaces` is a user message that is undone for it, with all after it; `brings` is the taint of its
    files.
    """
    if foreign_agents.is_foreign(session):
        return foreign_agents.submit(rt, session, content, key)
    live = rt.live(session)
    surface.attach(rt, session)
    with live.lock, surface.paused_until_answered(rt, session):
        accepted = _accept(rt, session, content, key, replaces, brings)
    rt.run_after_answer(lambda: _notify_waiting(rt, session))
    return _submission_result(rt, session, accepted)


def steer(
    rt: Runtime, session: LiveSession, text: str, settle: Settle, key: str | None = None
) -> bool:
    """Accept a message for the running turn; return False when none runs that could hear it.

    It is on disk at once, as a queued turn. Its sender is answered when the running turn has heard it
    (`steered`), has ended without it (`queued`: it is a prompt of its own), or was stopped (`rejected`).
    """
    live = rt.live(session)
    if live.log is None or foreign_agents.is_foreign(session):
        return False
    engine = rt.engine()
    running = engine.work.get(live.conversation_id)
    if running is None or running.agent is None or live.is_closing:
        return False
    if running.turn.id not in [row["id"] for row in engine.open_turns(live.conversation_id)]:
        return False  # it has its end
    with live.lock, surface.paused_until_answered(rt, session):
        accepted = _accept(rt, session, text, key)
        if not accepted.is_new:
            settle(_submission_result(rt, session, accepted))
            return True
        turn_id = accepted.turn_id
        live.steers[turn_id] = lambda status: settle(
            {"status": status, "text": text, "turn_id": turn_id}
        )
        is_offered = engine.steer(turn_id, live.conversation_id, text) is not None
        if not is_offered and (answer := live.steers.pop(turn_id, None)) is not None:
            answer("queued")
    return True


def _accept(
    rt: Runtime,
    session: LiveSession,
    content: Any,  # noqa: ANN401 -- text or parts
    key: str | None,
    replaces: int | None = None,
    brings: Sequence[TaintSource] = (),
) -> Accepted:
    live = rt.live(session)
    if live.is_closing:
        raise RpcError(NO_SUCH_SESSION, "The session is being closed.")
    rt.presence.add(live.conversation_id)
    accepted = rt.engine().accept(
        Input(
            surface.SURFACE,
            info.key_of(session),
            content,
            idempotency_key=key or None,
            opening=stored_session.opening_of(session, live),
            reopens=True,
            replaces=replaces,
            brings=brings,
        )
    )
    live.last_active = clock.now()
    if accepted.makes_session:
        live.seed = []
        stored_session.apply_title(rt, session)
    rt.run_after_answer(
        lambda: queue.send_if_changed(rt, live)
    )  # its sender knows by then which turn it is
    return accepted


def _submission_result(rt: Runtime, session: LiveSession, accepted: Accepted) -> Json:
    """Return what the sender of a prompt is answered: where its turn is."""
    live, store, engine = rt.live(session), rt.db(), rt.engine()
    found: Json = {"turn_id": accepted.turn_id}
    if not accepted.is_new:
        found["duplicate"] = True
        row = store.read(turn_ledger.find, accepted.turn_id)
        if accepted.conversation_id != live.conversation_id:
            state = row["state"] if row is not None else ""
            return {**found, "status": state, "stored_session_id": accepted.session_id}
        if row is not None and row["ended_at"] is not None:
            return {
                **found,
                "status": "steered" if row["reason"] == turn_ledger.MERGED else row["state"],
            }
    open_turns = engine.open_turns(live.conversation_id)
    is_first = bool(open_turns) and open_turns[0]["id"] == accepted.turn_id
    is_next = is_first and not engine.work.is_compacting(live.conversation_id)
    return {**found, "status": "streaming" if is_next else "queued"}


def _notify_waiting(rt: Runtime, session: LiveSession) -> None:
    """Say that another process runs the conversation, so that a prompt has to wait for it."""
    live = rt.live(session)
    if lease.is_held_elsewhere(rt.db(), live.conversation_id):
        text = "Another process is running this conversation; your prompt is queued."
        rt.emit(live.sid, events.Status("waiting", text))


def interrupt(rt: Runtime, session: LiveSession, *, cancels_queue: bool) -> None:
    """Stop the turn or the compaction that runs, or the turn that is about to; cancel queued ones."""
    live = rt.live(session)
    if foreign_agents.is_foreign(session):
        foreign_agents.interrupt(session)
    if live.log is None:
        return
    engine, conversation_id = rt.engine(), live.conversation_id
    with live.lock, engine.paused(conversation_id, timeout_s=0):
        open_turns = [row["id"] for row in engine.open_turns(conversation_id)]
        if engine.work.is_compacting(conversation_id):
            open_turns.insert(0, "")
        queued = open_turns[1:] if cancels_queue else []
        cancelled = [turn_id for turn_id in queued if engine.cancel(turn_id, STOPPED)]
        if open_turns:
            _interrupt_first(rt, session, open_turns[0])
    queue.send_if_changed(rt, live, cancelled)


def _interrupt_first(rt: Runtime, session: LiveSession, turn_id: str) -> None:
    """Stop the turn that runs, or end the one that is about to; it may have made the session."""
    engine, conversation_id = rt.engine(), rt.live(session).conversation_id
    makes_session = rt.db().read(turn_ledger.creates_session, turn_id)
    if not engine.interrupt_unstarted(turn_id, conversation_id, STOPPED):
        engine.interrupt(conversation_id)
    elif makes_session:
        rt.spawn(lambda: stored_session.invoke_start_hook(rt, session))


def cancel(rt: Runtime, session: LiveSession, turn_id: str) -> Queued | None:
    """Cancel a queued prompt and return it; None when it is not queued any more."""
    live = rt.live(session)
    if turn_id not in queue.turn_ids(rt, live):
        return None
    prompt = queue.prompt(rt.db(), turn_id)
    if not rt.engine().cancel(turn_id, STOPPED):
        return None
    queue.send_if_changed(rt, live)
    return prompt


# -- the session -----------------------------------------------------------------------------------


def check_idle(rt: Runtime, session: LiveSession) -> None:
    """Raise RpcError when a turn runs or is queued."""
    if info.is_busy(rt, session):
        raise busy()


@contextmanager
def compacting(rt: Runtime, session: LiveSession) -> Generator[Stop]:
    """Keep a session busy while its conversation is compacted; yield the Stop of that."""
    live = rt.live(session)
    check_idle(rt, session)
    with rt.engine().compacting(agents.get(rt, live.sid, session)) as stop:
        rt.emit(live.sid, events.Status("compressing", "Compacting the conversation."))
        try:
            yield stop
        finally:
            rt.emit(live.sid, events.Status("ready"))
            rt.sync_key(live.sid, session, clear_pending_title=True)
