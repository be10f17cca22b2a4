"""Store import notes on sessions: their state in hermes-agent, and here after the import.

The next import compares them, to find changes there and to detect that the session was used here.
"""

from typing import Any, NamedTuple, cast

from hermes_state.ledger import sessions
from hermes_state.ledger.records import decode, encode
from hermes_state.store import Tx
from hermes_state.values import Row

_KEY = "hermes_agent"


class Mark(NamedTuple):
    """The note on one session."""

    there: list[Any]
    """The id of the last message, the counts of all and of active messages, and a digest of the rest."""
    here: list[Any]
    titles: list[str | None]
    """The original title, and the one here."""
    not_imported: list[int]
    """The original ids of messages that could not be imported; stored as `left`, maybe missing."""


def read(row: Row) -> Mark | None:
    """Return the note of a session; None when it was not imported."""
    extra: Row = decode(row["extra"]) if row["extra"] else {}
    note: Any = extra.get(_KEY)
    match note:
        case {"there": there, "here": here, "titles": titles}:
            return Mark(there, here, titles, cast("Row", note).get("left", []))
        case _:
            return None


def write(
    tx: Tx,
    session_id: str,
    extra: Row,
    there: list[Any],
    titles: list[str | None],
    not_imported: list[int],
) -> None:
    """Store the note of a session, with its other `extra` data."""
    here = _state(tx, session_id)
    note = {"there": there, "here": here, "titles": titles, "left": not_imported}
    sessions.change(tx, session_id, extra=encode({**extra, _KEY: note}))


def renew(tx: Tx, session_id: str) -> None:
    """Update a note after the import itself changed the session."""
    row = sessions.fetch(tx, session_id)
    extra: Row = decode(row["extra"])
    extra[_KEY]["here"] = _state(tx, session_id)
    sessions.change(tx, session_id, extra=encode(extra))


def is_untouched(tx: Tx, session_id: str) -> bool:
    """Return whether a session was imported and has not been used here since."""
    row = sessions.find(tx, session_id)
    mark = None if row is None else read(row)
    return mark is not None and mark.here == _state(tx, session_id)


def _state(tx: Tx, session_id: str) -> list[Any]:
    """Return what changes when a session is used; title and archive do not count."""
    found = tx.tuples(
        "SELECT (SELECT coalesce(max(id), 0) FROM messages WHERE session_id = ?1), message_count,"
        " rewind_count, ended_at, is_tip, (SELECT count(*) FROM usage WHERE session_id = ?1),"
        " (SELECT count(*) FROM turns WHERE session_id = ?1) FROM sessions WHERE id = ?1",
        session_id,
    )
    return list(found[0])
