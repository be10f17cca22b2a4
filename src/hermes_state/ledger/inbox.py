"""Store inbound messages, each once, with their outcome.

received (no outcome) → turn | command | ignored, once.
"""

from hermes_state.store import Tx, one_statement
from hermes_state.values import InboundMessage, Outcome, Row


def receive(tx: Tx, inbound: InboundMessage) -> bool:
    """Store an inbound message; return False when it is stored already."""
    changed = tx.run(
        "INSERT INTO inbox (platform, chat_id, message_id, payload, session_key, edits, received_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (platform, chat_id, message_id) DO NOTHING",
        *inbound[:6],
        tx.now,
    )
    if changed:
        _insert_parts(tx, inbound)
    return changed > 0


def _insert_parts(tx: Tx, inbound: InboundMessage) -> None:
    for part in inbound.parts:
        tx.run(
            "INSERT INTO inbox_parts (platform, chat_id, message_id, part_id) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (platform, chat_id, part_id, message_id) DO NOTHING",
            *inbound.key,
            part,
        )


def settle(tx: Tx, inbound: InboundMessage, outcome: Outcome, turn_id: str | None = None) -> None:
    """Set the outcome of an inbound message; the database refuses to change it later."""
    tx.run(
        "UPDATE inbox SET outcome = ?, turn_id = ?, settled_at = ?"
        " WHERE platform = ? AND chat_id = ? AND message_id = ?",
        outcome,
        turn_id,
        tx.now,
        *inbound.key,
    )


def make_turn(tx: Tx, inbound: InboundMessage, turn_id: str) -> None:
    """Store an inbound message, if it is new, with the turn that it became."""
    now = tx.now
    tx.run(
        "INSERT INTO inbox (platform, chat_id, message_id, payload, session_key, edits, outcome,"
        " turn_id, received_at, settled_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'turn', ?7, ?8, ?8)"
        " ON CONFLICT (platform, chat_id, message_id) DO UPDATE SET outcome = excluded.outcome,"
        " turn_id = excluded.turn_id, settled_at = excluded.settled_at",
        *inbound[:6],
        turn_id,
        now,
    )
    _insert_parts(tx, inbound)


@one_statement
def find(tx: Tx, inbound: InboundMessage) -> Row | None:
    """Return an inbound message, or None."""
    return tx.row(
        "SELECT * FROM inbox WHERE platform = ? AND chat_id = ? AND message_id = ?", *inbound.key
    )


def versions(tx: Tx, inbound: InboundMessage) -> list[Row]:
    """Return a message, its new versions (`edits`) and those that include it as a part, oldest first."""
    return tx.rows(
        "SELECT * FROM inbox WHERE platform = ?1 AND chat_id = ?2 AND (message_id = ?3"
        " OR edits = ?3 OR message_id IN (SELECT message_id FROM inbox_parts"
        " WHERE platform = ?1 AND chat_id = ?2 AND part_id = ?3)) ORDER BY received_at",
        *inbound.key,
    )


def unsettled(tx: Tx) -> list[Row]:
    """Return the inbound messages without an outcome, oldest first."""
    return tx.rows("SELECT * FROM inbox WHERE outcome IS NULL ORDER BY received_at")


@one_statement
def of_turn(tx: Tx, turn_id: str) -> Row | None:
    """Return the inbound message of a turn, or None when the turn did not come from a platform."""
    return tx.row("SELECT * FROM inbox WHERE turn_id = ?", turn_id)
