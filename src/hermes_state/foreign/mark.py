"""What an import from hermes-agent noted on a session: how it was there, and how it was left here.

The next import tells by it what is new there, and whether anybody has used the session here since.
"""

from typing import Any, NamedTuple

from hermes_state.ledger import sessions
from hermes_state.ledger.records import decode, encode
from hermes_state.store import Tx
from hermes_state.values import Row

_KEY = "hermes_agent"


class Mark(NamedTuple):
    """The note on one session."""

    there: list[Any]
    """The last message's id, how many there were, how many of them active, a digest of the rest."""
    here: list[Any]
    titles: list[str | None]
    """The title there, and the one it was given here."""
    left: list[int] = []  # noqa: RUF012 -- as notes of earlier imports have it; it is never changed
    """The ids of its messages there that could not be taken."""


def read(row: Row) -> Mark | None:
    """The note on a session; None when it did not come from hermes-agent."""
    extra: Row = decode(row["extra"]) if row["extra"] else {}
    note: Any = extra.get(_KEY)
    is_one = isinstance(note, dict) and _NEEDED <= note.keys() <= set(Mark._fields)
    return Mark(**note) if is_one else None


_NEEDED = set(Mark._fields) - set(Mark._field_defaults)


def write(
    tx: Tx,
    session_id: str,
    extra: Row,
    there: list[Any],
    titles: list[str | None],
    left: list[int],
) -> None:
    """Note how a session is now, with what else is kept beside it."""
    note = Mark(there, _state(tx, session_id), titles, left)
    sessions.change(tx, session_id, extra=encode({**extra, _KEY: note._asdict()}))


def renew(tx: Tx, session_id: str) -> None:
    """Note that a session's change was the import's own."""
    row = sessions.fetch(tx, session_id)
    extra: Row = decode(row["extra"])
    extra[_KEY]["here"] = _state(tx, session_id)
    sessions.change(tx, session_id, extra=encode(extra))


def is_untouched(tx: Tx, session_id: str) -> bool:
    """Whether a session came from hermes-agent and nobody has gone on with it here."""
    row = sessions.find(tx, session_id)
    mark = None if row is None else read(row)
    return mark is not None and mark.here == _state(tx, session_id)


def _state(tx: Tx, session_id: str) -> list[Any]:
    """What changes when a session is used. Title and archive are not use: they stay as they are here."""
    found = tx.tuples(
        "SELECT (SELECT coalesce(max(id), 0) FROM messages WHERE session_id = ?1), message_count,"
        " rewind_count, ended_at, is_tip, (SELECT count(*) FROM usage WHERE session_id = ?1),"
        " (SELECT count(*) FROM turns WHERE session_id = ?1) FROM sessions WHERE id = ?1",
        session_id,
    )
    return list(found[0])
