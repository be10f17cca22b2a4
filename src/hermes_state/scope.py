"""Scope: whose conversations may be seen. A query that is given one finds nothing else."""

from typing import Any, NamedTuple

import apsw

DELEGATE = "delegate"
"""The source of sub-agents' sessions: nobody's conversation, told of by the one that sent them."""

DIRECT = "dm"
"""The type of a chat with one person; every other one has listeners."""


class Scope(NamedTuple):
    """The conversations of one person, or of one place in a chat; without one, everything is seen."""

    source: str
    """The platform that they are on."""
    user_id: str | None = None
    """Whose they are; None: those that belong to nobody alone, as in a group that shares one."""
    chat_id: str | None = None
    """The one chat that is looked at; None: every chat of the person."""
    thread_id: str | None = None
    """The thread of that chat; None: outside of any."""
    in_group: bool = False
    """Whether a group looks: what was said there while it was a direct chat stays hidden."""
    with_local: bool = False
    """Whether those of no messenger at all, the terminal's, are seen as well."""


def condition(scope: Scope, table: str = "sessions") -> tuple[str, tuple[Any, ...]]:
    """What a row of `sessions` must fulfil to be seen, as SQL and its values."""
    own, values = f"{table}.source = ? AND {table}.user_id IS ?", [scope.source, scope.user_id]
    if scope.chat_id is not None:
        own += f" AND {table}.chat_id = ? AND {table}.thread_id IS ?"
        values += [scope.chat_id, scope.thread_id]
    if scope.in_group:
        own += f" AND {table}.chat_type <> '{DIRECT}'"  # of one that does not say, nothing is shown
    if not scope.with_local:
        return f"({own})", tuple(values)
    local = (
        f"{table}.user_id IS NULL AND {table}.chat_id IS NULL AND {table}.session_key IS NULL"
        f" AND {table}.source <> '{DELEGATE}'"
    )
    return f"({own} OR {local})", tuple(values)


def allows(conn: apsw.Connection, scope: Scope | None, session_id: str) -> bool:
    """Whether a session is there and may be seen."""
    terms, values = condition(scope) if scope is not None else ("1", ())
    found = conn.execute(f"SELECT 1 FROM sessions WHERE id = ? AND {terms}", (session_id, *values))
    return found.get is not None
