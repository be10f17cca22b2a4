"""Workers: the processes that run turns, and when each was heard of last.

A worker has a row while it has open turns. One that is not heard of for as long as a lease lasts counts
as gone, and others may run its turns; what it still tries to write is refused by the fencing token.
"""

from collections.abc import Collection

import apsw

from hermes_core import clock

TTL_S = 60.0


def of_holder(holder: str) -> str:
    """Return the worker that holds a lease: the same name without the number of the lease."""
    return holder.rpartition(":")[0] or holder


def refresh(conn: apsw.Connection, worker: str) -> None:
    """Note that a worker is there."""
    conn.execute(
        "INSERT INTO workers (name, seen_at) VALUES (?1, ?2)"
        " ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at",
        (worker, clock.now()),
    )


def forget(conn: apsw.Connection, names: Collection[str]) -> None:
    """Remove workers that have ended: their turns are free at once."""
    conn.executemany("DELETE FROM workers WHERE name = ?", [(name,) for name in names])


def names(conn: apsw.Connection) -> list[str]:
    """List the workers that have a row."""
    return [name for (name,) in conn.execute("SELECT name FROM workers ORDER BY name").fetchall()]
