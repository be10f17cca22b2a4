"""What platforms delivered, each message once, and what became of it.

received (no outcome) → turn | command | ignored, once.
"""

from hermes_state.store import Tx, one_statement
from hermes_state.values import InboundMessage, Outcome, Row


def receive(tx: Tx, delivery: InboundMessage) -> bool:
    """Note a delivery; False when it was noted before."""
    changed = tx.run(
        "INSERT INTO inbox (platform, chat_id, message_id, payload, session_key, edits, received_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (platform, chat_id, message_id) DO NOTHING",
        *delivery[:6],
        tx.now,
    )
    if changed:
        _insert_parts(tx, delivery)
    return changed > 0


def _insert_parts(tx: Tx, delivery: InboundMessage) -> None:
    for part in delivery.parts:
        tx.run(
            "INSERT INTO inbox_parts (platform, chat_id, message_id, part_id) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (platform, chat_id, part_id, message_id) DO NOTHING",
            *delivery.key,
            part,
        )


def settle(tx: Tx, delivery: InboundMessage, outcome: Outcome, turn_id: str | None = None) -> None:
    """Say what became of a delivery; this can be said once."""
    tx.run(
        "UPDATE inbox SET outcome = ?, turn_id = ?, settled_at = ?"
        " WHERE platform = ? AND chat_id = ? AND message_id = ?",
        outcome,
        turn_id,
        tx.now,
        *delivery.key,
    )


def make_turn(tx: Tx, delivery: InboundMessage, turn_id: str) -> None:
    """Note a delivery, if it was not noted before, as one that has become a turn."""
    now = tx.now
    tx.run(
        "INSERT INTO inbox (platform, chat_id, message_id, payload, session_key, edits, outcome,"
        " turn_id, received_at, settled_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'turn', ?7, ?8, ?8)"
        " ON CONFLICT (platform, chat_id, message_id) DO UPDATE SET outcome = excluded.outcome,"
        " turn_id = excluded.turn_id, settled_at = excluded.settled_at",
        *delivery[:6],
        turn_id,
        now,
    )
    _insert_parts(tx, delivery)


@one_statement
def find(tx: Tx, delivery: InboundMessage) -> Row | None:
    """What is known of a delivery."""
    return tx.row(
        "SELECT * FROM inbox WHERE platform = ? AND chat_id = ? AND message_id = ?", *delivery.key
    )


def versions(tx: Tx, delivery: InboundMessage) -> list[Row]:
    """The message of this name, and what says of itself that it is a new version of it (`edits`) or has
    it as one of its `parts`; the oldest first.
    """
    return tx.rows(
        "SELECT * FROM inbox WHERE platform = ?1 AND chat_id = ?2 AND (message_id = ?3"
        " OR edits = ?3 OR message_id IN (SELECT message_id FROM inbox_parts"
        " WHERE platform = ?1 AND chat_id = ?2 AND part_id = ?3)) ORDER BY received_at",
        *delivery.key,
    )


def unsettled(tx: Tx) -> list[Row]:
    """Deliveries nobody has decided about yet, oldest first."""
    return tx.rows("SELECT * FROM inbox WHERE outcome IS NULL ORDER BY received_at")


@one_statement
def of_turn(tx: Tx, turn_id: str) -> Row | None:
    """The delivery that a turn answers, or None when it came from no platform."""
    return tx.row("SELECT * FROM inbox WHERE turn_id = ?", turn_id)
