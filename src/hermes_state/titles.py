"""The rules of titles: what one may be, whose it is, and how a taken one is numbered.

A title is taken for the person who has it, or for the chat that shares it, and for nobody else; the
terminal's are the owner's.
"""

import re
from typing import Any

import apsw

from hermes_core.errors import TitleError
from hermes_core.text import one_line, visible, without_surrogates
from hermes_state import sessions
from hermes_state.records import Row, rows
from hermes_state.scope import Scope, allows, condition

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


def set_title(conn: apsw.Connection, session_id: str, title: str | None) -> bool:
    """Give a conversation its title; False when there is no such session."""
    text = clean(title)
    row = sessions.find(conn, session_id)
    if row is None:
        return False
    if text is not None:
        _free_from_ancestors(conn, row, text)
    conn.execute("UPDATE sessions SET title = ? WHERE id = ?", (text, session_id))
    return True


def set_if_empty(conn: apsw.Connection, session_id: str, title: str) -> bool:
    """Give a conversation a title that was made for it; False when it has one, or is not there.

    It may have been compacted while the title was made: its tip gets it.
    """
    if title_of(conn, session_id) is not None:
        return False
    tip = conn.execute(
        "SELECT id FROM sessions WHERE is_tip = 1 AND conversation_id ="
        " (SELECT conversation_id FROM sessions WHERE id = ?)",
        (session_id,),
    ).get
    return tip is not None and set_title(conn, tip, title)


def _free_from_ancestors(conn: apsw.Connection, row: Row, title: str) -> None:
    """A title moves within its conversation; from another one it cannot be taken."""
    found = rows(
        conn.execute(
            f"SELECT * FROM sessions WHERE title = ? AND id <> ? AND {_SAME_OWNER}",
            (title, row["id"], row["id"]),
        )
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
    conn.execute("UPDATE sessions SET title = NULL WHERE id = ?", (holder["id"],))


def title_of(conn: apsw.Connection, session_id: str) -> str | None:
    """The title of a session's conversation, whichever of its sessions is asked for."""
    return conn.execute(
        "SELECT title FROM sessions WHERE title IS NOT NULL AND conversation_id ="
        " (SELECT conversation_id FROM sessions WHERE id = ?) ORDER BY depth DESC LIMIT 1",
        (session_id,),
    ).get


def by_title(conn: apsw.Connection, title: str) -> Row | None:
    """The session that has exactly this title; the terminal's before those of messengers."""
    return _exact(conn, _as_kept(title), "1", ())


def resolve(conn: apsw.Connection, title: str, scope: Scope | None = None) -> str | None:
    """The session a person means by a title: the newest of its numbered heirs, else the exact one."""
    terms, values = condition(scope) if scope is not None else ("1", ())
    title = _as_kept(title)
    heirs = [id_ for id_, _ in _numbered(conn, title, terms, values)]
    if heirs:
        return heirs[0]
    exact = _exact(conn, title, terms, values)
    return exact["id"] if exact else None


def meant(conn: apsw.Connection, name: str, scope: Scope | None = None) -> str | None:
    """The session a person means by a name: its whole id, its title, or else the beginning of its id.

    In this order: a title may well be a date, and then it is the beginning of other conversations' ids.
    """
    if allows(conn, scope, without_surrogates(name)):
        return without_surrogates(name)
    return resolve(conn, name, scope) or sessions.by_prefix(conn, name, scope)


def next_in_lineage(conn: apsw.Connection, title: str, session_id: str | None = None) -> str:
    """The title itself when it is free, else the same with the next number.

    Free for the owner of a session, or for everybody when none is named.
    """
    terms, values = (_SAME_OWNER, (session_id,)) if session_id is not None else ("1", ())
    match = _NUMBERED.match(title)
    base = match[1] if match else title
    numbers = [number for _, number in _numbered(conn, base, terms, values)]
    if not numbers and _exact(conn, base, terms, values) is None:
        return base
    number = max([1, *numbers])
    while True:  # a long one is cut for its number, and then others may have the same
        number += 1
        suffix = f" #{number}"
        numbered = base[: MAX_LENGTH - len(suffix)].rstrip() + suffix
        if _exact(conn, numbered, terms, values) is None:
            return numbered


def fitting(conn: apsw.Connection, session_id: str, wanted: str | None) -> str | None:
    """What a session can be called that wants this title: cut when too long, numbered when taken."""
    try:
        title = clean(wanted)
    except TitleError:
        title = clean((wanted or "")[:MAX_LENGTH])
    others = f"id <> ? AND {_SAME_OWNER}"
    if title is None or _exact(conn, title, others, (session_id, session_id)) is None:
        return title
    return next_in_lineage(conn, title, session_id)


def _exact(conn: apsw.Connection, title: str, terms: str, values: tuple[Any, ...]) -> Row | None:
    found = rows(
        conn.execute(
            f"SELECT * FROM sessions WHERE title = ? AND {terms}"
            f" ORDER BY {_WHOSE} <> '', started_at DESC, id",
            (title, *values),
        )
    )
    return found[0] if found else None


def _numbered(
    conn: apsw.Connection, base: str, terms: str, values: tuple[Any, ...]
) -> list[tuple[str, int]]:
    """Sessions titled `base #N`, the most recently started first."""
    start = f"{base} #"
    found = conn.execute(
        f"SELECT id, title FROM sessions WHERE title > ? AND title < ? AND {terms}"
        " ORDER BY started_at DESC, id",
        (start, start + "\U0010ffff", *values),
    )
    return [
        (id_, int(title[len(start) :])) for id_, title in found if title[len(start) :].isdecimal()
    ]
