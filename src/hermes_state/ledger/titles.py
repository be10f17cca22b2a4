"""The rules of titles: what one may be, whose it is, and how a taken one is numbered.

A title is taken for the person who has it, or for the chat that shares it, and for nobody else; the
terminal's are the owner's.
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

_WHOSE = (
    "iif(user_id IS NOT NULL, source || ' user ' || user_id,"
    " iif(chat_id IS NOT NULL, source || ' chat ' || chat_id, ''))"
)
"""Whose a title is: as in the unique index on titles."""
_SAME_OWNER = f"{_WHOSE} = (SELECT {_WHOSE} FROM sessions WHERE id = ?)"


def clean(title: str | None) -> str | None:
    """What is kept of a title; None when nothing is. Raises TitleError when it is too long."""
    if title is None:
        return None
    text = _as_kept(title)
    if len(text) > MAX_LENGTH:
        raise TitleError(
            f"A title has at most {MAX_LENGTH} characters; this one has {len(text)}.",
            fix="Shorten it.",
        )
    return text or None


def _as_kept(title: str) -> str:
    """A title that somebody types, as it would have been kept; no length is too much to look for."""
    return one_line(visible(without_surrogates(title)))


def set_title(tx: Tx, session_id: str, title: str | None) -> bool:
    """Give a conversation its title; False when there is no such session."""
    text = clean(title)
    row = sessions.find(tx, session_id)
    if row is None:
        return False
    if text is not None:
        _free_from_ancestors(tx, row, text)
    tx.run("UPDATE sessions SET title = ? WHERE id = ?", text, session_id)
    return True


def set_if_empty(tx: Tx, session_id: str, title: str) -> bool:
    """Give a conversation a title that was made for it; False when it has one, or is not there.

    It may have been compacted while the title was made: its tip gets it.
    """
    if title_of(tx, session_id) is not None:
        return False
    tip = tx.value(
        "SELECT id FROM sessions WHERE is_tip = 1 AND conversation_id ="
        " (SELECT conversation_id FROM sessions WHERE id = ?)",
        session_id,
    )
    return tip is not None and set_title(tx, tip, title)


def _free_from_ancestors(tx: Tx, row: Row, title: str) -> None:
    """A title moves within its conversation; from another one it cannot be taken."""
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
    """The title of a session's conversation, whichever of its sessions is asked for."""
    return tx.value(
        "SELECT title FROM sessions WHERE title IS NOT NULL AND conversation_id ="
        " (SELECT conversation_id FROM sessions WHERE id = ?) ORDER BY depth DESC LIMIT 1",
        session_id,
    )


def by_title(tx: Tx, title: str) -> Row | None:
    """The session that has exactly this title; the terminal's before those of messengers."""
    return _exact(tx, _as_kept(title), "1", ())


def resolve(tx: Tx, title: str, scope: Scope | None = None) -> str | None:
    """The session a person means by a title: the newest of its numbered heirs, else the exact one."""
    terms, values = condition(scope) if scope is not None else ("1", ())
    title = _as_kept(title)
    heirs = [id_ for id_, _ in _numbered(tx, title, terms, values)]
    if heirs:
        return heirs[0]
    exact = _exact(tx, title, terms, values)
    return exact["id"] if exact else None


def meant(tx: Tx, name: str, scope: Scope | None = None) -> str | None:
    """The session a person means by a name: its whole id, its title, or else the beginning of its id.

    In this order: a title may well be a date, and then it is the beginning of other conversations' ids.
    """
    if is_visible(tx, without_surrogates(name), scope):
        return without_surrogates(name)
    return resolve(tx, name, scope) or sessions.by_prefix(tx, name, scope)


def next_in_lineage(tx: Tx, title: str, session_id: str | None = None) -> str:
    """The title itself when it is free, else the same with the next number.

    Free for the owner of a session, or for everybody when none is named.
    """
    terms, values = (_SAME_OWNER, (session_id,)) if session_id is not None else ("1", ())
    match = _NUMBERED.match(title)
    base = match[1] if match else title
    numbers = [number for _, number in _numbered(tx, base, terms, values)]
    if not numbers and _exact(tx, base, terms, values) is None:
        return base
    number = max([1, *numbers])
    while True:  # a long one is cut for its number, and then others may have the same
        number += 1
        suffix = f" #{number}"
        numbered = base[: MAX_LENGTH - len(suffix)].rstrip() + suffix
        if _exact(tx, numbered, terms, values) is None:
            return numbered


def fitting(tx: Tx, session_id: str, wanted: str | None) -> str | None:
    """What a session can be called that wants this title: cut when too long, numbered when taken."""
    try:
        title = clean(wanted)
    except TitleError:
        title = clean((wanted or "")[:MAX_LENGTH])
    others = f"id <> ? AND {_SAME_OWNER}"
    if title is None or _exact(tx, title, others, (session_id, session_id)) is None:
        return title
    return next_in_lineage(tx, title, session_id)


def _exact(tx: Tx, title: str, terms: str, values: tuple[Any, ...]) -> Row | None:
    return tx.row(
        f"SELECT * FROM sessions WHERE title = ? AND {terms}"
        f" ORDER BY {_WHOSE} <> '', started_at DESC, id",
        title,
        *values,
    )


def _numbered(tx: Tx, base: str, terms: str, values: tuple[Any, ...]) -> list[tuple[str, int]]:
    """Sessions titled `base #N`, the most recently started first."""
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
