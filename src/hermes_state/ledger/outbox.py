"""Store the outbound parts that must be sent.

pending → sending → sent | failed        sending → pending (retry)        pending → failed
A part that a crash left in `sending` may or may not have arrived: `unsure` lists those, and the caller,
who knows the platform, decides whether to send them again. On a platform that drops duplicates, a part
need not be claimed before it is sent: `look` returns it, and the write of its outcome claims it.
"""

from collections.abc import Sequence
from typing import Any

from hermes_core.errors import RowGoneError
from hermes_core.secrets import redact
from hermes_state.ledger import drafts
from hermes_state.store import Tx, deferrable, one_statement
from hermes_state.values import OutboundPart, Row

_COLUMNS = (
    "id", "turn_id", "platform", "chat_id", "thread_id", "piece", "content", "state", "attempts",
    "platform_message_id", "error", "created_at", "due_at", "ended_at", "key", "extra", "question_id",
    "buttons",
)  # fmt: skip
_ALL = ", ".join(_COLUMNS)


def add(tx: Tx, parts: Sequence[OutboundPart], *, turn_id: str | None = None) -> list[int]:
    """Store parts to be sent, in order; return the ids of those that are new."""
    ids: list[int] = []
    now = tx.now
    for number, part in enumerate(parts):
        id_: int | None = tx.value(
            "INSERT INTO outbox (turn_id, platform, chat_id, thread_id, piece, content, key, extra,"
            " question_id, buttons, created_at, due_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (key) WHERE key IS NOT NULL DO NOTHING RETURNING id",
            turn_id,
            part.platform,
            part.chat_id,
            part.thread_id,
            number,
            redact(part.content),
            part.key,
            part.extra,
            part.question_id,
            part.buttons,
            now,
            now,
        )
        if id_ is not None:
            ids.append(id_)
            if part.failure is not None:
                fail(tx, id_, part.failure)
            elif part.is_sent:
                begin(tx, id_)
                sent(tx, id_, None)
    return ids


@one_statement
def due(tx: Tx, limit: int = 100, platform: str | None = None) -> list[Row]:
    """Return the parts that are due and have no earlier open part in the same chat and thread."""
    return tx.rows(
        f"SELECT {_ALL} FROM outbox WHERE state = 'pending' AND due_at <= ?1"
        " AND (?2 IS NULL OR platform = ?2) AND NOT EXISTS ("
        " SELECT 1 FROM outbox AS earlier WHERE earlier.platform = outbox.platform"
        " AND earlier.chat_id = outbox.chat_id AND earlier.id < outbox.id"
        " AND earlier.thread_id IS NOT DISTINCT FROM outbox.thread_id"
        " AND earlier.state IN ('pending', 'sending'))"
        " ORDER BY due_at, id LIMIT ?3",
        tx.now,
        platform,
        limit,
    )


@one_statement
def is_open(tx: Tx, platform: str, chat_id: str) -> bool:
    """Return whether a chat has parts that are still to be sent."""
    found = tx.value(
        "SELECT 1 FROM outbox WHERE platform = ? AND chat_id = ?"
        " AND state IN ('pending', 'sending') LIMIT 1",
        platform,
        chat_id,
    )
    return found is not None


@one_statement
def next_due_at(tx: Tx) -> float | None:
    """Return the time at which the next pending part is due, or None."""
    found: Any = tx.value("SELECT min(due_at) FROM outbox WHERE state = 'pending'")
    return found


def begin(tx: Tx, part_id: int) -> Row:
    """Claim a part for sending; after a crash from here on it is unsure.

    The row has a `draft`: the draft that shows the beginning of the reply, or None.
    """
    return _with_draft(tx, _claim(tx, part_id))


def _claim(tx: Tx, part_id: int) -> Row:
    return _move(tx, part_id, "state = 'sending', attempts = attempts + 1")


def _with_draft(tx: Tx, part: Row) -> Row:
    part["draft"] = drafts.find(tx, part["turn_id"]) if _may_have_draft(part) else None
    return part


def look(tx: Tx, part_id: int) -> Row | None:
    """Return a pending part as `begin` would return it, or None when it is no longer pending."""
    sql = f"SELECT {_ALL} FROM outbox WHERE id = ? AND state = 'pending'"
    found = tx.rows(sql, part_id)
    if not found:
        return None
    found[0]["attempts"] += 1
    return _with_draft(tx, found[0])


@deferrable
def sent(
    tx: Tx,
    part_id: int,
    platform_message_id: str | None = None,
    *,
    is_claimed: bool = True,
) -> bool:
    """Record that a part was sent and delete its draft; return whether its chat has more to come."""
    if not is_claimed:
        _claim(tx, part_id)
    part = _move(
        tx,
        part_id,
        "state = 'sent', error = NULL, platform_message_id = ?, ended_at = ?",
        platform_message_id,
        tx.now,
    )
    if _may_have_draft(part):
        drafts.delete(tx, part["turn_id"])
    return is_open(tx, part["platform"], part["chat_id"])


def without_buttons(tx: Tx, part_id: int) -> None:
    """Record that the platform message of a part no longer has buttons."""
    tx.run("UPDATE outbox SET buttons = NULL WHERE id = ?", part_id)


def _may_have_draft(part: Row) -> bool:
    """Return whether a draft may show this part: only the first one of a reply."""
    return part["turn_id"] is not None and part["piece"] == 0


def retry(tx: Tx, part_id: int, error: str, due_at: float, *, is_claimed: bool = True) -> None:
    """Schedule another attempt after a failure."""
    if not is_claimed:
        _claim(tx, part_id)
    _move(tx, part_id, "state = 'pending', error = ?, due_at = ?", redact(error), due_at)


def advance_due_times(tx: Tx, seconds: float) -> None:
    """Move the due times of delayed parts forward, after the clock was set back."""
    tx.run(
        "UPDATE outbox SET due_at = max(?1, due_at - ?2) WHERE state = 'pending' AND due_at > ?1",
        tx.now,
        seconds,
    )


def fail(tx: Tx, part_id: int, error: str) -> bool:
    """Give up a part; return whether its chat has more to come."""
    change = "state = 'failed', error = ?, ended_at = ?"
    part = _move(tx, part_id, change, redact(error), tx.now)
    return is_open(tx, part["platform"], part["chat_id"])


def unsure(tx: Tx) -> list[Row]:
    """Return the parts that are being sent, oldest first."""
    return tx.rows("SELECT * FROM outbox WHERE state = 'sending' ORDER BY id")


def waiting(tx: Tx) -> list[Row]:
    """Return the parts that are still to be sent, oldest first."""
    return tx.rows("SELECT * FROM outbox WHERE state IN ('pending', 'sending') ORDER BY id")


def find(tx: Tx, key: str) -> Row | None:
    """Return the part with this key, or None."""
    return tx.row("SELECT * FROM outbox WHERE key = ?", key)


def of_turn(tx: Tx, turn_id: str) -> list[Row]:
    """Return the parts of a turn's reply."""
    return tx.rows("SELECT * FROM outbox WHERE turn_id = ? ORDER BY piece", turn_id)


@one_statement
def is_in_context(tx: Tx, session_id: str, chat_id: str, message_id: str) -> bool:
    """Return whether a platform message is part of a reply that the model of a session still sees.

    Replies that a compaction or a rewind removed are not.
    """
    found = tx.value(
        "SELECT 1 FROM turns JOIN outbox ON outbox.turn_id = turns.id"
        " WHERE turns.session_id IN (SELECT id FROM sessions WHERE conversation_id ="
        " (SELECT conversation_id FROM sessions WHERE id = ?1))"
        " AND outbox.chat_id = ?2 AND outbox.platform_message_id = ?3"
        " AND turns.final_message_id IN (SELECT coalesce(origin_id, id) FROM messages"
        " WHERE session_id = ?1 AND role = 'assistant' AND active = 1) LIMIT 1",
        session_id,
        chat_id,
        message_id,
    )
    return found is not None


def failed(tx: Tx, since: float = 0.0) -> list[Row]:
    """Return the parts that failed since a time."""
    return tx.rows(
        "SELECT * FROM outbox WHERE state = 'failed' AND ended_at >= ? ORDER BY ended_at", since
    )


def _move(tx: Tx, part_id: int, changes: str, *values: object) -> Row:
    """Update a part and return its new row."""
    sql = f"UPDATE outbox SET {changes} WHERE id = ? RETURNING {_ALL}"
    found = tx.rows(sql, *values, part_id)  # type: ignore[arg-type]
    if not found:
        raise RowGoneError(f"There is no part {part_id} in the outbox.")
    return found[0]
