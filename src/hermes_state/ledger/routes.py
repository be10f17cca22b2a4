"""Where a chat's conversation is: session key to session id, one row a route.

The gateway's truth. `entry` is the gateway's own JSON; the store only keeps its session id in step.
"""

from collections.abc import Iterable

from hermes_state.store import Tx
from hermes_state.values import Route, Row


def save(tx: Tx, route: Route, session_id: str) -> None:
    """Set one route; the others are not touched."""
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
    """Set these routes, each to the session of this id; the others are not touched."""
    for route, session_id in routes:
        save(tx, route, session_id)


def load(tx: Tx, scope: str = "") -> dict[str, Row]:
    """Every route of a scope by its key."""
    found = tx.rows("SELECT * FROM routes WHERE scope = ?", scope)
    return {row["session_key"]: row for row in found}


def find(tx: Tx, session_key: str, scope: str = "") -> Row | None:
    """One route, or None."""
    return tx.row("SELECT * FROM routes WHERE scope = ? AND session_key = ?", scope, session_key)


def keys_of(tx: Tx, session_id: str, scope: str = "") -> set[str]:
    """The keys whose route leads to the conversation of a session, whichever session of it they name.

    A chat whose time in it is up is in it no more, though its route stays until somebody writes there.
    """
    # Written so, it stays off the primary key, which would read every route of the scope.
    found = tx.tuples(
        "SELECT session_key FROM routes WHERE scope || '' = ?2 AND session_id IN (SELECT ?1 UNION"
        " SELECT id FROM sessions WHERE conversation_id ="
        " (SELECT conversation_id FROM sessions WHERE id = ?1))"
        " AND expired = 0",
        session_id,
        scope,
    )
    return {str(row[0]) for row in found}


def lost(tx: Tx, session_key: str, over: Iterable[str]) -> Row | None:
    """The conversation that was had last under a key and has none of the ends named `over`.

    It is where a chat goes on whose route was forgotten.
    """
    return tx.row(
        "SELECT id, last_active_at FROM sessions WHERE session_key = ? AND is_tip = 1"
        " AND archived = 0 AND relation IS DISTINCT FROM 'delegate' AND (ended_at IS NULL OR NOT"
        f" {tx.among('end_reason')}) ORDER BY last_active_at DESC, id DESC LIMIT 1",
        session_key,
        tx.many(over),
    )


def delete(tx: Tx, session_keys: Iterable[str], scope: str = "") -> int:
    """Forget routes; returns how many there were."""
    return tx.run(
        f"DELETE FROM routes WHERE scope = ? AND {tx.among('session_key')}",
        scope,
        tx.many(session_keys),
    )
