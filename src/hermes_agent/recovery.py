"""Recovery: turns that a crash cut off are found and run to their end.

A turn whose process is gone is run again from its transcript by the same loop; after three attempts it
fails with a notice. One that waits behind another runs after it.
"""

from collections.abc import Callable
from typing import Any

from hermes_agent import lease
from hermes_agent.agent import Agent
from hermes_core.errors import ConversationBusyError
from hermes_state.protocol import Store
from hermes_state.records import Row


def unfinished(store: Store, conversation_id: str | None = None) -> list[Row]:
    """Turns without an end that nobody runs, the oldest first."""
    lease.expire_dead_leases(store)
    return [
        row for row in store.turns.unfinished() if conversation_id in (None, row["conversation_id"])
    ]


def resume(agent: Agent) -> list[dict[str, Any]]:
    """Run the unfinished turns of an agent's conversation; returns how each came out."""
    return [agent.run_turn(row["id"]) for row in unfinished(agent.store, agent.conversation_id)]


def recover(store: Store, agent_for: Callable[[str], Agent]) -> list[dict[str, Any]]:
    """Run every unfinished turn of a store; `agent_for` makes the agent of a session.

    A sub-agent's turn is left to its parent, which finds it again.
    """
    told: list[dict[str, Any]] = []
    for row in unfinished(store):
        session = store.get_session(row["session_id"])
        if session is None or session["relation"] == "delegate":
            continue
        agent = agent_for(row["session_id"])
        try:
            told.append(agent.run_turn(row["id"]))
        except ConversationBusyError:
            continue  # somebody was faster
        finally:
            agent.close()
    return told
