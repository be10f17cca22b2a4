"""Recovery: find the turns that a process left open and run them to their end.

A turn whose process has ended is run again from its transcript by the same loop; after three attempts it
fails with a notice. A turn that is queued behind another one runs after it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hermes_agent import lease
from hermes_core.errors import ConversationBusyError
from hermes_state.ledger import sessions, turns
from hermes_state.store import Store
from hermes_state.transitions import TurnState
from hermes_state.values import Row

if TYPE_CHECKING:  # a surface that only looks for open turns need not load the agent for it
    from hermes_agent.agent import Agent


def unfinished(store: Store, conversation_id: str | None = None) -> list[Row]:
    """Return the open turns of conversations whose lease is free, the oldest first."""
    lease.expire_dead_leases(store)
    return [
        row
        for row in store.read(turns.unfinished)
        if conversation_id in (None, row["conversation_id"])
    ]


def abandoned(store: Store, conversation_id: str | None = None) -> list[Row]:
    """Return the open turns of conversations in which a started turn has lost its process.

    That process has ended, or hung for longer than its lease lasts; what is queued behind the turn would
    wait in vain. A turn that was only accepted may be about to start in the process that accepted it.
    """
    found = unfinished(store, conversation_id)
    stuck = {row["conversation_id"] for row in found if row["state"] == TurnState.RUNNING}
    return [row for row in found if row["conversation_id"] in stuck]


def resume(agent: "Agent") -> list[dict[str, Any]]:
    """Run the unfinished turns of an agent's conversation; returns how each came out."""
    return [agent.run_turn(row["id"]) for row in unfinished(agent.store, agent.conversation_id)]


def recover(store: Store, agent_for: "Callable[[str], Agent]") -> list[dict[str, Any]]:
    """Run every unfinished turn of a store; `agent_for` makes the agent of a session.

    A sub-agent's turn is left to its parent, which finds it again.
    """
    outcomes: list[dict[str, Any]] = []
    for row in unfinished(store):
        session = store.read(sessions.find, row["session_id"])
        if session is None or session["relation"] == "delegate":
            continue
        agent = agent_for(row["session_id"])
        try:
            outcomes.append(agent.run_turn(row["id"]))
        except ConversationBusyError:
            continue  # somebody was faster
        finally:
            agent.close()
    return outcomes
