"""Store routes: which conversation a chat is in, one row per session key.

`entry` is private JSON of the gateway.
"""

from collections.abc import Iterable

from hermes_state.store import Tx
from hermes_state.values import Route, Row


def save(tx: Tx, route: Route, session_id: str) -> None:
    """Store a route, replacing an earlier one of the same key."""
    tx.run(
        "INSERT INTO routes (session_key, entry, scope, expired, session_id, updated_at)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (scope, session_key) DO UPDATE SET"
        " session_id = excluded.session_id, entry = excluded.entry, expired = excluded.expired,"
        " updated_at = excluded.updated_at",
        *route,
        session_id,
        tx.now,
    )


def save_all(tx: Tx, routes: Iterable[tuple[Route, str]]) -> None:
    """Store routes, each with its session id."""
    for route, session_id in routes:
        save(tx, route, session_id)


def load(tx: Tx, scope: str = "") -> dict[str, Row]:
    """Return the routes of a scope by key."""
    found = tx.rows("SELECT * FROM routes WHERE scope = ?", scope)
    return {row["session_key"]: row for row in found}


def find(tx: Tx, session_key: str, scope: str = "") -> Row | None:
    """Return a route, or None."""
    return tx.row("SELECT * FROM routes WHERE scope = ? AND session_key = ?", scope, session_key)


def keys_of(tx: Tx, session_id: str, scope: str = "") -> set[str]:
    """Return the keys whose route leads to the conversation of a session, through any of its sessions.

    Expired routes do not count; they stay until somebody writes in their chat.
    """
    # `scope || ''` keeps SQLite from the primary key, which would read every route of the scope.
    found = tx.tuples(
        "SELECT session_key FROM routes WHERE scope || '' = ?2 AND session_id IN (SELECT ?1 UNION"
        " SELECT id FROM sessions WHERE conversation_id ="
        " (SELECT conversation_id FROM sessions WHERE id = ?1))"
        " AND expired = 0",
        session_id,
        scope,
    )
    return {str(row[0]) for row in found}


def last_conversation(tx: Tx, session_key: str, over: Iterable[str]) -> Row | None:
    """Return the last conversation of a chat whose route was deleted, or None.

    Conversations with an end reason in `over` do not count.
    """
    return tx.row(
        "SELECT id, last_active_at FROM sessions WHERE session_key = ? AND is_tip = 1"
        " AND archived = 0 AND relation IS DISTINCT FROM 'delegate' AND (ended_at IS NULL OR NOT"
        f" {tx.among('end_reason')}) ORDER BY last_active_at DESC, id DESC LIMIT 1",
        session_key,
        tx.many(over),
    )


def delete(tx: Tx, session_keys: Iterable[str], scope: str = "") -> int:
    """Delete routes; return how many there were."""
    return tx.run(
        f"DELETE FROM routes WHERE scope = ? AND {tx.among('session_key')}",
        scope,
        tx.many(session_keys),
    )
