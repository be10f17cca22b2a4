"""Letting go of a session: the shared end of a conversation, also for one that is only half built."""

import logging
from contextlib import nullcontext
from typing import Any

from hermes_agent import ending
from hermes_cli import plugins
from hermes_state.ledger import lineage, sessions
from tui_gateway import info, turns
from tui_gateway.runtime import SOURCE, LiveSession, Runtime

logger = logging.getLogger(__name__)

_PATIENCE_S = 0.5
"""How long the end of a running turn is waited for."""
_LEAVES = frozenset({"tui_close", "tui_shutdown", "ws_disconnect", "ws_orphan_reap"})
"""Ends of a client, not of what was asked: prompts that wait go on when the conversation is resumed."""


def let_go(rt: Runtime, session: LiveSession, end_reason: str) -> None:
    """End the conversation of a session as every surface does; nothing is left of an empty one."""
    leaving = _Leaving(rt, session, drops_queue=end_reason not in _LEAVES)
    if leaving.is_ours_to_end():
        ending.let_go(leaving, end_reason, completed=False, interrupted=True)
    else:
        leaving.stop()
        leaving.close()


class _Leaving:
    """A session as the end of its conversation sees it; its agent may be missing, or be a scenario's."""

    def __init__(self, rt: Runtime, session: LiveSession, *, drops_queue: bool) -> None:
        self._rt = rt
        self._session = session
        self._drops_queue = drops_queue
        self._agent: Any = session.get("agent")
        with session.get("history_lock") or nullcontext():
            self._history = list(session.get("history") or [])

    @property
    def session_id(self) -> str:
        return info.key_of(self._session)

    def is_ours_to_end(self) -> bool:
        """Whether something was said in it, and no other process runs it or has it open."""
        try:
            store = self._rt.db()
            is_stored = store.read(sessions.find, self.session_id) is not None
            root = store.read(lineage.root, self.session_id)
            is_open = root in self._rt.presence.elsewhere()
            is_elsewhere = is_stored and (is_open or ending.is_run_elsewhere(store, root))
        except Exception:
            logger.exception("ending %s: the store does not say whose it is", self.session_id)
            return True  # then as much as can be done is done
        return (is_stored or bool(self._history)) and not is_elsewhere

    def stop(self) -> None:
        live = self._rt.live(self._session)
        with live.accepting, live.lock:  # a prompt that is being taken in is in line, or refused
            live.is_closing = True  # from now on there comes no agent, and no turn begins
            live.is_over = self._drops_queue
            self._agent = self._session.get("agent")
        if self._agent is not None or self._drops_queue:
            turns.interrupt(self._rt, self._session, drops_queue=self._drops_queue)
        if live.is_building:
            live.ready.wait(_PATIENCE_S)
        if (wait := getattr(self._agent, "wait_until_idle", None)) is not None:
            wait(_PATIENCE_S)

    def flush(self) -> None:
        fresher = getattr(self._agent, "_session_messages", None)
        snapshot = fresher or self._history
        persist = getattr(self._agent, "_persist_session", None)
        if snapshot and persist is not None:
            persist(snapshot, conversation_history=self._history)

    def remember(self) -> None:
        learn = getattr(self._agent, "commit_memory_session", None)
        if learn is not None:
            learn(self._history)

    def tell_end(self, *, completed: bool, interrupted: bool) -> None:
        if self._agent is None:
            return
        plugins.invoke_hook(
            "on_session_end",
            session_id=self.session_id,
            completed=completed,
            interrupted=interrupted,
            model=info.model_name(self._agent),
            platform=self._platform,
        )

    @property
    def _platform(self) -> str:
        return getattr(self._agent, "platform", None) or SOURCE

    def record(self, end_reason: str) -> None:
        store = self._rt.db()
        row = store.read(sessions.find, self.session_id)
        if row is not None and isinstance(row["session_key"], str):
            return  # a messenger's chat, which only its gateway ends
        store.end_session(self.session_id, end_reason)

    def tell_finalized(self) -> None:
        self._rt.notify_boundary("on_session_finalize", self.session_id, self._platform)

    def close(self) -> None:
        self._rt.presence.remove(self._rt.live(self._session).conversation_id)
        if (close := getattr(self._agent, "close", None)) is not None:
            close()
