"""Store workers: the processes that run turns, with the time of their last heartbeat.

A worker has a row while it has open turns. Without a heartbeat for the length of a lease it counts as
dead and others may run its turns; the fencing token refuses whatever it still tries to write.
"""

from collections.abc import Collection

from hermes_state.store import Tx

TTL_S = 60.0


def of_holder(holder: str) -> str:
    """Return the worker that holds a lease: the same name without the number of the lease."""
    return holder.rpartition(":")[0] or holder


def refresh(tx: Tx, worker: str) -> None:
    """Record a heartbeat of a worker."""
    tx.run(
        "INSERT INTO workers (name, seen_at) VALUES (?1, ?2)"
        " ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at",
        worker,
        tx.now,
    )


def forget(tx: Tx, names: Collection[str]) -> None:
    """Remove workers that have ended: their turns are free at once."""
    tx.run(f"DELETE FROM workers WHERE {tx.among('name')}", tx.many(names))


def names(tx: Tx) -> list[str]:
    """List the workers that have a row."""
    return [name for (name,) in tx.tuples("SELECT name FROM workers ORDER BY name")]
