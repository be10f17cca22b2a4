"""Set and resolve titles of conversations.

A title is unique per person, or per chat that shares its conversations; titles of the terminal belong to
the owner.
"""

import re
from typing import Any

from hermes_core.errors import TitleError
from hermes_core.text import one_line, visible, without_surrogates
from hermes_state.ledger import sessions
from hermes_state.ledger.scope import condition, is_visible
from hermes_state.store import Tx
from hermes_state.values import Row, Scope

MAX_LENGTH = 100

_NUMBERED = re.compile(r"^(.*?) #(\d+)$")

_OWNER = (
    "iif(user_id IS NOT NULL, source || ' user ' || user_id,"
    " iif(chat_id IS NOT NULL, source || ' chat ' || chat_id, ''))"
)
"""SQL: the owner of a title, as in the unique index on titles."""
_SAME_OWNER = f"{_OWNER} = (SELECT {_OWNER} FROM sessions WHERE id = ?)"


def clean(title: str | None) -> str | None:
    """Return a title as it is stored, or None when it is empty; raise TitleError when it is too long."""
    if title is None:
        return None
    text = _as_stored(title)
    if len(text) > MAX_LENGTH:
        raise TitleError(
            f"A title has at most {MAX_LENGTH} characters; this one has {len(text)}.",
            fix="Shorten it.",
        )
    return text or None


def _as_stored(title: str) -> str:
    """Return a title as it would be stored, without a limit of its length."""
    return one_line(visible(without_surrogates(title)))


def set_title(tx: Tx, session_id: str, title: str | None) -> bool:
    """Set the title of a conversation; return False when there is no such session."""
    text = clean(title)
    row = sessions.find(tx, session_id)
    if row is None:
        return False
    if text is not None:
        _take_from_ancestor(tx, row, text)
    tx.run("UPDATE sessions SET title = ? WHERE id = ?", text, session_id)
    return True


def set_if_empty(tx: Tx, session_id: str, title: str) -> bool:
    """Set a generated title; return False when the conversation has a title or does not exist.

    The newest session gets the title, as the conversation may have been compacted meanwhile.
    """
    if title_of(tx, session_id) is not None:
        return False
    tip = tx.value(
        "SELECT id FROM sessions WHERE is_tip = 1 AND conversation_id ="
        " (SELECT conversation_id FROM sessions WHERE id = ?)",
        session_id,
    )
    return tip is not None and set_title(tx, tip, title)


def _take_from_ancestor(tx: Tx, row: Row, title: str) -> None:
    """Remove a title from an earlier session of the same conversation.

    Raises TitleError when another conversation of the same owner has it.
    """
    found = tx.rows(
        f"SELECT * FROM sessions WHERE title = ? AND id <> ? AND {_SAME_OWNER}",
        title,
        row["id"],
        row["id"],
    )
    if not found:
        return
    holder = found[0]
    if holder["conversation_id"] != row["conversation_id"]:
        raise TitleError(
            f"The title {title!r} belongs to session {holder['id']}.",
            fix="Choose another one.",
            holder=holder["id"],
        )
    tx.run("UPDATE sessions SET title = NULL WHERE id = ?", holder["id"])


def title_of(tx: Tx, session_id: str) -> str | None:
    """Return the title of the conversation of a session."""
    return tx.value(
        "SELECT title FROM sessions WHERE title IS NOT NULL AND conversation_id ="
        " (SELECT conversation_id FROM sessions WHERE id = ?) ORDER BY depth DESC LIMIT 1",
        session_id,
    )


def by_title(tx: Tx, title: str) -> Row | None:
    """Return the session with exactly this title, preferring those of the terminal."""
    return _exact(tx, _as_stored(title), "1", ())


def resolve(tx: Tx, title: str, scope: Scope | None = None) -> str | None:
    """Return the session with a title: the newest numbered one, else the exact one."""
    terms, values = condition(scope) if scope is not None else ("1", ())
    title = _as_stored(title)
    heirs = [id_ for id_, _ in _numbered(tx, title, terms, values)]
    if heirs:
        return heirs[0]
    exact = _exact(tx, title, terms, values)
    return exact["id"] if exact else None


def resolve_name(tx: Tx, name: str, scope: Scope | None = None) -> str | None:
    """Return the session with this id or title, or whose id begins with it, in this order.

    A title may be a date, and other session ids begin with the same date.
    """
    if is_visible(tx, without_surrogates(name), scope):
        return without_surrogates(name)
    return resolve(tx, name, scope) or sessions.by_prefix(tx, name, scope)


def next_in_lineage(tx: Tx, title: str, session_id: str | None = None) -> str:
    """Return the title if it is free, else the title with the next number.

    With a session, only titles of its owner count; otherwise all do.
    """
    terms, values = (_SAME_OWNER, (session_id,)) if session_id is not None else ("1", ())
    match = _NUMBERED.match(title)
    base = match[1] if match else title
    numbers = [number for _, number in _numbered(tx, base, terms, values)]
    if not numbers and _exact(tx, base, terms, values) is None:
        return base
    number = max([1, *numbers])
    while True:  # a long title is truncated for its number, and may then exist
        number += 1
        suffix = f" #{number}"
        numbered = base[: MAX_LENGTH - len(suffix)].rstrip() + suffix
        if _exact(tx, numbered, terms, values) is None:
            return numbered


def valid_title(tx: Tx, session_id: str, title: str | None) -> str | None:
    """Return a valid title: truncated when it is too long, numbered when it exists."""
    try:
        title = clean(title)
    except TitleError:
        title = clean((title or "")[:MAX_LENGTH])
    others = f"id <> ? AND {_SAME_OWNER}"
    if title is None or _exact(tx, title, others, (session_id, session_id)) is None:
        return title
    return next_in_lineage(tx, title, session_id)


def _exact(tx: Tx, title: str, terms: str, values: tuple[Any, ...]) -> Row | None:
    return tx.row(
        f"SELECT * FROM sessions WHERE title = ? AND {terms}"
        f" ORDER BY {_OWNER} <> '', started_at DESC, id",
        title,
        *values,
    )


def _numbered(tx: Tx, base: str, terms: str, values: tuple[Any, ...]) -> list[tuple[str, int]]:
    """Return sessions titled `base #N` with their numbers, most recently started first."""
    start = f"{base} #"
    found = tx.tuples(
        f"SELECT id, title FROM sessions WHERE title > ? AND title < ? AND {terms}"
        " ORDER BY started_at DESC, id",
        start,
        start + "\U0010ffff",
        *values,
    )
    return [
        (id_, int(title[len(start) :])) for id_, title in found if title[len(start) :].isdecimal()
    ]
