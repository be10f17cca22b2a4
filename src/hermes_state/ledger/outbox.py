"""What must be sent, piece by piece.

pending → sending → sent | failed        sending → pending (to be tried again)        pending → failed
A piece that a crash left in `sending` may or may not have arrived: `unsure` lists those, and whoever
knows the platform decides whether to send it again. Where a platform shows what is sent twice only once,
a piece need not be claimed before: it is looked up, and claimed with the note of what became of it.
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


def put(tx: Tx, pieces: Sequence[OutboundPart], *, turn_id: str | None = None) -> list[int]:
    """Note what must be sent, in its order."""
    ids: list[int] = []
    now = tx.now
    for number, piece in enumerate(pieces):
        id_: int | None = tx.value(
            "INSERT INTO outbox (turn_id, platform, chat_id, thread_id, piece, content, key, extra,"
            " question_id, buttons, created_at, due_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (key) WHERE key IS NOT NULL DO NOTHING RETURNING id",
            turn_id,
            piece.platform,
            piece.chat_id,
            piece.thread_id,
            number,
            redact(piece.content),
            piece.key,
            piece.extra,
            piece.question_id,
            piece.buttons,
            now,
            now,
        )
        if id_ is not None:
            ids.append(id_)
            if piece.failure is not None:
                fail(tx, id_, piece.failure)
            elif piece.is_said:
                begin(tx, id_)
                sent(tx, id_, None)
    return ids


@one_statement
def due(tx: Tx, limit: int = 100, platform: str | None = None) -> list[Row]:
    """Pieces that may be sent now: it is their time, and nothing of their chat, or of their thread in
    it, is open before them.
    """
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
    """Whether a chat is still to get something."""
    found = tx.value(
        "SELECT 1 FROM outbox WHERE platform = ? AND chat_id = ?"
        " AND state IN ('pending', 'sending') LIMIT 1",
        platform,
        chat_id,
    )
    return found is not None


@one_statement
def next_due_at(tx: Tx) -> float | None:
    """When the next piece that waits may be sent; None when none waits."""
    found: Any = tx.value("SELECT min(due_at) FROM outbox WHERE state = 'pending'")
    return found


def begin(tx: Tx, piece_id: int) -> Row:
    """Claim a piece for sending; from here on a crash leaves it unsure.

    It comes with the `draft` that shows the beginning of the reply, or may do so, or None.
    """
    return _with_draft(tx, _claim(tx, piece_id))


def _claim(tx: Tx, piece_id: int) -> Row:
    return _move(tx, piece_id, "state = 'sending', attempts = attempts + 1")


def _with_draft(tx: Tx, piece: Row) -> Row:
    piece["draft"] = drafts.find(tx, piece["turn_id"]) if _may_be_shown(piece) else None
    return piece


def look(tx: Tx, piece_id: int) -> Row | None:
    """A piece that is still to be sent, as `begin` would give it; None when it is not any more."""
    sql = f"SELECT {_ALL} FROM outbox WHERE id = ? AND state = 'pending'"
    found = tx.rows(sql, piece_id)
    if not found:
        return None
    found[0]["attempts"] += 1
    return _with_draft(tx, found[0])


@deferrable
def sent(
    tx: Tx,
    piece_id: int,
    platform_message_id: str | None = None,
    *,
    is_claimed: bool = True,
) -> bool:
    """The platform has it; a draft that showed it while it was written has become it.

    Tells whether its chat is still to get something.
    """
    if not is_claimed:
        _claim(tx, piece_id)
    piece = _move(
        tx,
        piece_id,
        "state = 'sent', error = NULL, platform_message_id = ?, ended_at = ?",
        platform_message_id,
        tx.now,
    )
    if _may_be_shown(piece):
        drafts.drop(tx, piece["turn_id"])
    return is_open(tx, piece["platform"], piece["chat_id"])


def without_buttons(tx: Tx, piece_id: int) -> None:
    """Note that the message of a piece has nothing to press any more."""
    tx.run("UPDATE outbox SET buttons = NULL WHERE id = ?", piece_id)


def _may_be_shown(piece: Row) -> bool:
    """Whether it is the beginning of a reply, which a draft may show."""
    return piece["turn_id"] is not None and piece["piece"] == 0


def retry(tx: Tx, piece_id: int, error: str, due_at: float, *, is_claimed: bool = True) -> None:
    """It did not get through; try again later."""
    if not is_claimed:
        _claim(tx, piece_id)
    _move(tx, piece_id, "state = 'pending', error = ?, due_at = ?", redact(error), due_at)


def hasten(tx: Tx, seconds: float) -> None:
    """Have what is put off be due so much earlier, as when the clock was set back by that."""
    tx.run(
        "UPDATE outbox SET due_at = max(?1, due_at - ?2) WHERE state = 'pending' AND due_at > ?1",
        tx.now,
        seconds,
    )


def fail(tx: Tx, piece_id: int, error: str) -> bool:
    """It will not get through. Tells whether its chat is still to get something."""
    change = "state = 'failed', error = ?, ended_at = ?"
    piece = _move(tx, piece_id, change, redact(error), tx.now)
    return is_open(tx, piece["platform"], piece["chat_id"])


def unsure(tx: Tx) -> list[Row]:
    """Pieces in the middle of being sent, oldest first."""
    return tx.rows("SELECT * FROM outbox WHERE state = 'sending' ORDER BY id")


def waiting(tx: Tx) -> list[Row]:
    """Pieces that are still to be sent, now or later, oldest first."""
    return tx.rows("SELECT * FROM outbox WHERE state IN ('pending', 'sending') ORDER BY id")


def find(tx: Tx, key: str) -> Row | None:
    """The piece of this name, or None."""
    return tx.row("SELECT * FROM outbox WHERE key = ?", key)


def of_turn(tx: Tx, turn_id: str) -> list[Row]:
    """The pieces of a turn's reply."""
    return tx.rows("SELECT * FROM outbox WHERE turn_id = ? ORDER BY piece", turn_id)


@one_statement
def is_seen(tx: Tx, session_id: str, chat_id: str, message_id: str) -> bool:
    """Whether a message of a chat is a reply, or a part of one, that stands in what a session shows to
    the model. Replies that a shortening or a rewind took away do not.
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
    """Pieces that were given up since then."""
    return tx.rows(
        "SELECT * FROM outbox WHERE state = 'failed' AND ended_at >= ? ORDER BY ended_at", since
    )


def _move(tx: Tx, piece_id: int, changes: str, *values: object) -> Row:
    """Change a piece; gives it as it is then."""
    sql = f"UPDATE outbox SET {changes} WHERE id = ? RETURNING {_ALL}"
    found = tx.rows(sql, *values, piece_id)  # type: ignore[arg-type]
    if not found:
        raise RowGoneError(f"There is no piece {piece_id} in the outbox.")
    return found[0]
