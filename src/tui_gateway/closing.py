"""Closing a session: the conversation as on every surface, also when its agent is only half built."""

import logging
from contextlib import nullcontext
from typing import Any

from hermes_agent import lease
from hermes_cli import plugins
from hermes_core.errors import StoreError
from hermes_engine import closing
from hermes_engine.surface import Running
from hermes_state.ledger import lineage, sessions, turns
from hermes_state.transitions import TurnState
from tui_gateway import info, prompts
from tui_gateway.runtime import SOURCE, LiveSession, Runtime

logger = logging.getLogger(__name__)

_LEAVE_TIMEOUT_S = 0.5
"""How long to wait for a turn that was stopped, and for an agent that is being made."""
_LEAVES = frozenset({"tui_close", "tui_shutdown", "ws_disconnect", "ws_orphan_reap"})
"""Ends of a client, not of what was asked: prompts that wait go on when the conversation is resumed."""


def close_session(rt: Runtime, session: LiveSession, end_reason: str) -> None:
    """Close the conversation of a session as every surface does; an empty one leaves nothing behind."""

    def stop() -> None:
        _stop(rt, session, drops_queue=end_reason not in _LEAVES)
        conversation.agent = session.get("agent")
        conversation.platform = getattr(conversation.agent, "platform", None) or SOURCE

    def record(session_id: str) -> None:
        store = rt.db()
        if not closing.is_of_chat(store, session_id):
            store.end_session(session_id, end_reason)

    conversation = closing.OpenConversation(
        session_id=lambda: info.key_of(session),
        platform=SOURCE,
        hooks=plugins,
        record=record,
        agent=session.get("agent"),
        history=_history(session),
        stop=stop,
    )
    if _is_ours_to_end(rt, session):
        closing.close(conversation)
    else:
        stop()
        if (close := getattr(conversation.agent, "close", None)) is not None:
            close()
    _stop_following(rt, session)


def _history(session: LiveSession) -> list[dict[str, Any]]:
    with session.get("history_lock") or nullcontext():
        return list(session.get("history") or [])


def _is_ours_to_end(rt: Runtime, session: LiveSession) -> bool:
    """Return whether something was said in it, and no other process runs it or has it open."""
    session_id = info.key_of(session)
    try:
        store = rt.db()
        is_stored = store.read(sessions.find, session_id) is not None
        root = store.read(lineage.root, session_id)
        is_open = root in rt.presence.elsewhere()
        is_elsewhere = is_stored and (is_open or lease.is_held_elsewhere(store, root))
    except Exception:
        logger.exception("Session %s: the store does not say whose it is", session_id)
        return True  # then as much as can be done is done
    return (is_stored or bool(_history(session))) and not is_elsewhere


def _stop(rt: Runtime, session: LiveSession, *, drops_queue: bool) -> None:
    """Stop what runs, and wait a moment for it and for an agent that is being made."""
    live = rt.live(session)
    with live.lock:  # a prompt is accepted before this, or refused
        live.is_closing = True  # from now on no turn begins
    if live.is_building:
        live.ready.wait(_LEAVE_TIMEOUT_S)
    if live.log is None:
        return
    engine = rt.engine()
    with engine.paused(live.conversation_id, timeout_s=0):
        if drops_queue:
            prompts.interrupt(rt, session, cancels_queue=True)
        running = engine.work.get(live.conversation_id)
        if running is not None and not drops_queue and not _has_begun(rt, running):
            running.stop.suspend()  # it has not begun, and runs when the conversation is opened
        else:
            engine.interrupt(live.conversation_id)
        engine.work.wait_until_idle(live.conversation_id, _LEAVE_TIMEOUT_S)


def _has_begun(rt: Runtime, running: Running) -> bool:
    """Return whether a turn was started on disk; before that it may have an agent already."""
    try:
        row = rt.db().read(turns.find, running.turn.id)
    except StoreError:
        return running.agent is not None
    return row is None or row["state"] != TurnState.ACCEPTED


def _stop_following(rt: Runtime, session: LiveSession) -> None:
    """Stop following the conversation: it is not open here any more."""
    live = rt.live(session)
    rt.presence.remove(live.conversation_id)
    if live.log is not None:
        for feed in list(live.feeds.values()):
            live.log.unsubscribe(feed)
        live.feeds.clear()
        if (agent := rt.engine().agents.drop(live.conversation_id)) is not None:
            agent.close()
    live.opened.close()
