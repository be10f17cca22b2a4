"""Recovery: find the turns that a process left open. The engine runs them to their end."""

from hermes_agent import lease
from hermes_state.ledger import turns
from hermes_state.store import Store
from hermes_state.values import Row


def unfinished(store: Store, conversation_id: str | None = None) -> list[Row]:
    """Return the open turns of conversations whose lease is free, the oldest first."""
    lease.expire_dead_leases(store)
    return [
        row
        for row in store.read(turns.unfinished)
        if conversation_id in (None, row["conversation_id"])
    ]
