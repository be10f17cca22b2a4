"""Closing a session: what of it runs is stopped, and the engine closes its conversation."""

import logging
from contextlib import nullcontext
from typing import Any

from hermes_cli import plugins
from hermes_core.errors import StoreError
from hermes_engine import closing
from hermes_engine.engine import Engine
from hermes_engine.surface import Running
from hermes_state.ledger import sessions, turns
from hermes_state.transitions import TurnState
from tui_gateway import foreign_agents, info, prompts
from tui_gateway.runtime import SOURCE, LiveSession, Runtime

logger = logging.getLogger(__name__)

_LEAVE_TIMEOUT_S = 0.5
"""How long to wait for a turn that was stopped, and for an agent that is being made."""
_LEAVES = frozenset({"tui_close", "tui_shutdown", "ws_disconnect", "ws_orphan_reap"})
"""Ends of a client, not of what was asked: prompts that wait go on when the conversation is resumed."""


def close_session(rt: Runtime, session: LiveSession, end_reason: str) -> None:
    """Close the conversation of a session as every surface does; an empty one leaves nothing behind."""
    live = rt.live(session)
    with live.lock:  # a prompt is accepted before this, or refused
        live.is_closing = True  # from now on no turn begins
    if live.is_building:
        live.ready.wait(_LEAVE_TIMEOUT_S)
    try:
        if not live.conversation_id or foreign_agents.is_foreign(session):
            _close_foreign(rt, session, end_reason)
        elif live.log is not None or rt.db().read(sessions.find, session["session_key"]):
            _close_ours(rt, session, end_reason)
    except (StoreError, OSError):
        logger.exception("Session %s could not be closed", session["session_key"])
    finally:
        _stop_following(rt, session)


def _close_ours(rt: Runtime, session: LiveSession, end_reason: str) -> None:
    engine, conversation_id = rt.engine(), rt.live(session).conversation_id
    with engine.paused(conversation_id, timeout_s=0):
        if end_reason not in _LEAVES:
            prompts.interrupt(rt, session, cancels_queue=True)
        else:
            _suspend_unstarted(engine, conversation_id)
        if conversation_id in rt.presence.elsewhere():
            engine.interrupt(conversation_id)
            engine.work.wait_until_idle(conversation_id, _LEAVE_TIMEOUT_S)
        else:
            engine.close_conversation(info.key_of(session), end_reason)


def _suspend_unstarted(engine: Engine, conversation_id: str) -> None:
    """Suspend a turn that has not begun: it runs when the conversation is opened again."""
    running = engine.work.get(conversation_id)
    if running is not None and not _has_begun(engine, running):
        running.stop.suspend()


def _has_begun(engine: Engine, running: Running) -> bool:
    """Return whether a turn was started on disk; before that it may have an agent already."""
    try:
        row = engine.store.read(turns.find, running.turn.id)
    except StoreError:
        return running.agent is not None
    return row is None or row["state"] != TurnState.ACCEPTED


def _close_foreign(rt: Runtime, session: LiveSession, end_reason: str) -> None:
    """Close the conversation of a scenario's agent, which the engine does not know."""
    foreign_agents.interrupt(session)
    agent, key = session.get("agent"), info.key_of(session)
    with session.get("history_lock") or nullcontext():
        history = list[dict[str, Any]](session.get("history") or [])
    conversation = closing.OpenConversation(
        session_id=lambda: info.key_of(session),
        platform=getattr(agent, "platform", None) or SOURCE,
        hooks=plugins,
        record=lambda session_id: closing.record_end(rt.db(), session_id, end_reason),
        agent=agent,
        history=history,
    )
    if history or _is_stored(rt, key):
        closing.close(conversation)
    elif (close := getattr(agent, "close", None)) is not None:
        close()


def _is_stored(rt: Runtime, session_id: str) -> bool:
    try:
        return rt.db().read(sessions.find, session_id) is not None
    except Exception:
        logger.exception("Session %s: the store does not say whether it is there", session_id)
        return True  # then as much as can be done is done


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
