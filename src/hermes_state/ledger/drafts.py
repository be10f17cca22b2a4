"""Drafts: the message in a chat that shows a reply while it is written, one a turn at most.

It is noted before it is sent. One that has no id of the platform yet may be there or not.
"""

from hermes_state.store import Tx, one_statement
from hermes_state.values import Row

_COLUMNS = ("turn_id", "platform", "chat_id", "message_id", "created_at")


def begin(tx: Tx, turn_id: str, platform: str, chat_id: str) -> bool:
    """Note that a draft is about to be sent; False when there is one."""
    changed = tx.run(
        "INSERT INTO drafts (turn_id, platform, chat_id, created_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (turn_id) DO NOTHING",
        turn_id,
        platform,
        chat_id,
        tx.now,
    )
    return changed > 0


def named(tx: Tx, turn_id: str, message_id: str) -> None:
    """The platform has it, under this id."""
    tx.run("UPDATE drafts SET message_id = ? WHERE turn_id = ?", message_id, turn_id)


def drop(tx: Tx, turn_id: str) -> None:
    """There is none: it did not arrive, or it has become the reply."""
    tx.run("DELETE FROM drafts WHERE turn_id = ?", turn_id)


@one_statement
def find(tx: Tx, turn_id: str) -> Row | None:
    """The draft of a turn, or None."""
    sql = f"SELECT {', '.join(_COLUMNS)} FROM drafts WHERE turn_id = ?"
    return tx.row(sql, turn_id)


def left(tx: Tx, platform: str) -> list[Row]:
    """The drafts that a platform shows of turns which have ended, and which nothing becomes of."""
    sql = (
        f"SELECT {', '.join(_COLUMNS)} FROM drafts WHERE platform = ? AND message_id IS NOT NULL"
        " AND EXISTS (SELECT 1 FROM turns WHERE id = drafts.turn_id AND ended_at IS NOT NULL)"
        " AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.turn_id = drafts.turn_id)"
    )
    return tx.rows(sql, platform)
