"""Prune conversations in batches, vacuum the file and back it up.

A batch is a short transaction, so that other writers and processes are not blocked.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import apsw

from hermes_core import clock
from hermes_core.errors import UsageError
from hermes_core.paths import touch_private
from hermes_state.engines.sqlite import schema
from hermes_state.engines.sqlite.connection import open_writer, translated
from hermes_state.engines.sqlite.database import Database
from hermes_state.engines.sqlite.tx import SqliteTx
from hermes_state.ledger import sessions
from hermes_state.ledger.records import encode
from hermes_state.store import Tx
from hermes_state.values import Row

DAY_S = 86_400.0
GHOST_AGE_S = DAY_S
ORPHAN_AGE_S = 7 * DAY_S

_BUSY_TIMEOUT_MS = 2_000
_BATCH = 100
_LONG_PAUSE_S = 0.045
_BATCH_MESSAGES = 1_000


class Age(NamedTuple):
    """Selects ended conversations to prune."""

    older_than_days: float = 90
    source: str | None = None
    include_archived: bool = False


def prune_candidates(tx: Tx, age: Age) -> list[Row]:
    """Return the ended conversations that were inactive for that long, oldest first."""
    terms = [
        "is_tip = 1",
        "relation IS NOT 'delegate'",
        "ended_at IS NOT NULL",
        "last_active_at < ?",
    ]
    bindings: list[object] = [tx.now - age.older_than_days * DAY_S]
    if not age.include_archived:
        terms.insert(1, "archived = 0")
    if age.source is not None:
        terms.append("source = ?")
        bindings.append(age.source)
    return tx.rows(
        "SELECT id, title, preview, source, last_active_at, message_count FROM sessions"
        f" WHERE {' AND '.join(terms)} ORDER BY last_active_at",
        *tuple(bindings),
    )


def prune(database: Database, age: Age, progress: Callable[[int], None] = lambda _n: None) -> int:
    """Delete old conversations; return how many."""
    if age.older_than_days <= 0:
        raise UsageError("The age must be more than zero days.")
    old = database.read(lambda c: prune_candidates(c, age))
    cutoff = clock.now() - age.older_than_days * DAY_S

    def delete(tx: Tx, ids: list[str]) -> int:
        """Delete conversations that were not active since they were selected."""
        still = tx.tuples(
            "SELECT id FROM sessions WHERE id IN (SELECT value FROM json_each(?))"
            " AND is_tip = 1 AND ended_at IS NOT NULL AND last_active_at < ?",
            encode(ids),
            cutoff,
        )
        sessions.delete(tx, [id_ for (id_,) in still])
        return len(still)

    return _in_batches(database, _batches(old), delete, progress)


_GHOSTS = (
    "source = 'tui' AND title IS NULL AND ended_at IS NOT NULL AND message_count = 0"
    " AND started_at < ? AND NOT EXISTS"
    " (SELECT 1 FROM messages WHERE messages.session_id = sessions.id)"
    " AND NOT EXISTS (SELECT 1 FROM sessions AS child WHERE child.parent_session_id = sessions.id)"
)


def ghosts(tx: Tx) -> list[str]:
    """Return the ids of empty terminal sessions that have ended."""
    limit = tx.now - GHOST_AGE_S
    return [id_ for (id_,) in tx.tuples(f"SELECT id FROM sessions WHERE {_GHOSTS}", limit)]


def prune_ghosts(database: Database) -> int:
    """Delete empty terminal sessions that have ended; return how many."""
    limit = clock.now() - GHOST_AGE_S
    found = database.read(ghosts)

    def delete(tx: Tx, ids: list[str]) -> int:
        chosen = "id IN (SELECT value FROM json_each(?))"
        # A ghost may be the tip of a conversation; then its parent becomes the tip.
        tx.run(
            "UPDATE sessions SET is_tip = 0 WHERE relation = 'continuation'"
            f" AND {chosen} AND {_GHOSTS}",
            encode(ids),
            limit,
        )
        tx.run(
            "UPDATE sessions SET is_tip = 1 WHERE id IN (SELECT parent_session_id FROM sessions"
            f" WHERE relation = 'continuation' AND is_tip = 0 AND {chosen} AND {_GHOSTS})",
            encode(ids),
            limit,
        )
        count = tx.run(f"DELETE FROM sessions WHERE {chosen} AND {_GHOSTS}", encode(ids), limit)
        tx.run(
            "DELETE FROM routes WHERE session_id IN (SELECT value FROM json_each(?))"
            " AND session_id NOT IN (SELECT id FROM sessions)",
            encode(ids),
        )
        return count

    ids = [{"id": id_, "message_count": 0} for id_ in found]
    return _in_batches(database, _batches(ids), delete)


def finalize_orphans(database: Database) -> int:
    """End old continuations of a compaction that were never used; return how many."""
    where = (
        "relation = 'continuation' AND api_call_count = 0 AND ended_at IS NULL AND started_at < ?"
        " AND EXISTS (SELECT 1 FROM sessions AS parent WHERE parent.id = sessions.parent_session_id"
        "  AND parent.end_reason = 'compression' AND parent.ended_at IS NOT NULL)"
        " AND EXISTS (SELECT 1 FROM messages WHERE messages.session_id = sessions.id)"
    )
    limit = clock.now() - ORPHAN_AGE_S
    found = database.read(lambda tx: tx.tuples(f"SELECT id FROM sessions WHERE {where}", limit))

    def finalize(tx: Tx, ids: list[str]) -> int:
        return tx.run(
            "UPDATE sessions SET ended_at = ?, end_reason = 'orphaned_compression'"
            f" WHERE id IN (SELECT value FROM json_each(?)) AND {where}",
            tx.now,
            encode(ids),
            limit,
        )

    ids = [{"id": id_, "message_count": 0} for (id_,) in found]
    return _in_batches(database, _batches(ids), finalize)


def _batches(found: list[Row]) -> Iterator[list[str]]:
    """Split ids into batches for short transactions."""
    batch: list[str] = []
    weight = 0
    for row in found:
        batch.append(row["id"])
        weight += row["message_count"]
        if len(batch) >= _BATCH or weight >= _BATCH_MESSAGES:
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch


def _in_batches(
    database: Database,
    batches: Iterator[list[str]],
    work: Callable[[Tx, list[str]], int],
    progress: Callable[[int], None] = lambda _n: None,
) -> int:
    total, seen = 0, None
    for batch in batches:
        began = time.monotonic()
        done, version = database.run_on_writer(
            lambda conn, ids=batch: (work(SqliteTx(conn), ids), _others(conn))
        )
        total += done
        progress(done)
        # Other processes poll for the lock. Leave it free as long as we held it, and longer than their
        # pauses while they write too.
        spent = time.monotonic() - began
        time.sleep(_LONG_PAUSE_S if version != seen else min(max(spent, 0.005), 0.05))
        seen = version
    return total


def _others(conn: apsw.Connection) -> int:
    """Return a number that changes when another process has written."""
    return conn.pragma("data_version")


def vacuum(database: Database) -> int:
    """Shrink the file; return the number of bytes freed."""
    database.write(lambda _conn: None)  # raises when the store is read-only or closed
    if database.in_memory:
        return 0
    # VACUUM cannot run inside a transaction, so it gets its own connection.
    with translated(database.path):
        conn = open_writer(database.path, busy_timeout_s=30.0)
        try:
            conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            before = database.path.stat().st_size
            conn.execute("VACUUM")
            conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            conn.close()
    return max(0, before - database.path.stat().st_size)


def backup(
    database: Database, target: Path, progress: Callable[[int, int], None] | None = None
) -> None:
    """Copy the store while it is in use; an incomplete copy is deleted."""
    if database.in_memory:
        raise UsageError("A store in memory has no file to copy.", fix="Use export_lines.")
    if target.exists():
        raise UsageError(f"{target} exists already.", fix="Choose another name.")
    draft = target.with_name(target.name + ".part")
    draft.unlink(missing_ok=True)
    touch_private(draft)
    with translated(target):
        destination = apsw.Connection(str(draft))

        def copy(source: apsw.Connection) -> None:
            with destination.backup("main", source, "main") as job:
                while not job.done:
                    job.step(1_000)
                    if progress is not None:
                        progress(job.page_count - job.remaining, job.page_count)

        try:
            database.run_on_snapshot(copy)
            destination.pragma("journal_mode", "delete")
        except BaseException:
            destination.close()
            draft.unlink(missing_ok=True)
            raise
        destination.close()
    draft.rename(target)


def schema_of(path: Path) -> int:
    """Return the schema version of a store file without changing it."""
    with translated(path):
        conn = apsw.Connection(
            f"{path.absolute().as_uri()}?mode=ro",
            flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
        )
        conn.set_busy_timeout(
            _BUSY_TIMEOUT_MS
        )  # for a moment in which it is opened or closed elsewhere
        try:
            return schema.version_of(conn)
        finally:
            conn.close()
