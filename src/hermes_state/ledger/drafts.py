"""Store drafts: the platform message that is edited while a reply streams, at most one per turn.

The row is written before the message is sent. A draft without a platform id may or may not exist.
"""

from hermes_state.store import Tx, one_statement
from hermes_state.values import Row

_COLUMNS = ("turn_id", "platform", "chat_id", "message_id", "created_at")


def begin(tx: Tx, turn_id: str, platform: str, chat_id: str) -> bool:
    """Record that a draft is about to be sent; return False when the turn already has one."""
    changed = tx.run(
        "INSERT INTO drafts (turn_id, platform, chat_id, created_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (turn_id) DO NOTHING",
        turn_id,
        platform,
        chat_id,
        tx.now,
    )
    return changed > 0


def set_message_id(tx: Tx, turn_id: str, message_id: str) -> None:
    """Record the platform id of a draft that was sent."""
    tx.run("UPDATE drafts SET message_id = ? WHERE turn_id = ?", message_id, turn_id)


def delete(tx: Tx, turn_id: str) -> None:
    """Delete the draft of a turn, as it did not arrive or has become the reply."""
    tx.run("DELETE FROM drafts WHERE turn_id = ?", turn_id)


@one_statement
def find(tx: Tx, turn_id: str) -> Row | None:
    """Return the draft of a turn, or None."""
    sql = f"SELECT {', '.join(_COLUMNS)} FROM drafts WHERE turn_id = ?"
    return tx.row(sql, turn_id)


def orphaned(tx: Tx, platform: str) -> list[Row]:
    """Return the drafts on a platform whose turns ended without anything to send."""
    sql = (
        f"SELECT {', '.join(_COLUMNS)} FROM drafts WHERE platform = ? AND message_id IS NOT NULL"
        " AND EXISTS (SELECT 1 FROM turns WHERE id = drafts.turn_id AND ended_at IS NOT NULL)"
        " AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.turn_id = drafts.turn_id)"
    )
    return tx.rows(sql, platform)
