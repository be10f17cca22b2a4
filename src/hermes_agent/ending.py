"""The end of a conversation, the same on every surface: stop, flush, end reason, memory, hooks.

Each part is tried even when the one before it failed, and a conversation is ended once. What is ours to
store is stored before any plugin is called: who leaves has a second, and a plugin may take all of it.
"""

import logging
import os
from typing import TYPE_CHECKING, Protocol

from hermes_agent import lease
from hermes_state.ledger import leases, sessions

if TYPE_CHECKING:  # a surface that ends half-built conversations need not load the agent for it
    from hermes_agent.agent import Agent
    from hermes_state.store import Store

logger = logging.getLogger(__name__)

_PATIENCE_S = 0.5
"""How long the end of a running turn is waited for; it needs a fifth of a second."""


class Conversation(Protocol):
    """A conversation that is let go of. What its parts do is up to the surface, their order is not."""

    @property
    def session_id(self) -> str:
        """The session it is in now: stopping a turn may be the last that moves it."""
        ...

    def stop(self) -> None:
        """Stop what runs, and wait a moment for what it still has to store."""
        ...

    def flush(self) -> None:
        """Store what nobody stored."""
        ...

    def remember(self) -> None:
        """Let memory learn from it."""
        ...

    def tell_end(self, *, completed: bool, interrupted: bool) -> None:
        """Call the hook on_session_end."""
        ...

    def record(self, end_reason: str) -> None:
        """Give the session its end in the store."""
        ...

    def tell_finalized(self) -> None:
        """Call the hook on_session_finalize."""
        ...

    def close(self) -> None:
        """Let go of processes and connections."""
        ...


def end(
    agent: "Agent", end_reason: str, *, completed: bool = False, interrupted: bool = True
) -> None:
    """Let go of an agent's conversation. What was never spoken in leaves nothing behind."""
    if agent.is_ended or agent.store.read(sessions.find, agent.session_id) is None:
        agent.close()
        return
    agent.is_ended = True
    let_go(_Held(agent), end_reason, completed=completed, interrupted=interrupted)


def let_go(
    conversation: Conversation, end_reason: str, *, completed: bool, interrupted: bool
) -> None:
    """End a conversation, part by part; one that fails is logged and the others go on."""
    parts = (
        conversation.stop,
        conversation.flush,
        lambda: conversation.record(end_reason),
        conversation.remember,
        lambda: conversation.tell_end(completed=completed, interrupted=interrupted),
        conversation.tell_finalized,
        conversation.close,
    )
    for part in parts:
        try:
            part()
        except Exception:
            logger.exception("ending %s: a part failed, the others go on", conversation.session_id)


def is_run_elsewhere(store: "Store", conversation_id: str) -> bool:
    """Tell whether another living process runs the conversation, so that it is not ours to end."""
    holder = store.read(leases.holder_of, conversation_id)
    if not isinstance(holder, str) or f":{os.getpid()}:" in holder:
        return False
    return not lease.is_gone(holder)


class _Held:
    """The conversation of an agent."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self.platform = agent.platform
        self.flush = agent.flush
        self.remember = agent.commit_memory_session
        self.close = agent.close

    @property
    def session_id(self) -> str:
        return self._agent.session_id

    @property
    def model_name(self) -> str:
        return self._agent.model.facts.name

    def stop(self) -> None:
        self._agent.interrupt()
        self._agent.wait_until_idle(_PATIENCE_S)

    def tell_end(self, *, completed: bool, interrupted: bool) -> None:
        self._agent.hooks.invoke_hook(
            "on_session_end",
            session_id=self.session_id,
            completed=completed,
            interrupted=interrupted,
            model=self.model_name,
            platform=self.platform,
        )

    def record(self, end_reason: str) -> None:
        self._agent.store.write(sessions.end, self.session_id, end_reason)

    def tell_finalized(self) -> None:
        self._agent.hooks.invoke_hook(
            "on_session_finalize", session_id=self.session_id, platform=self.platform
        )
