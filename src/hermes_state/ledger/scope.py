"""Restrict queries to the conversations that a person or chat may see."""

from typing import Any

from hermes_state.store import Tx
from hermes_state.values import DELEGATE, DIRECT, Scope


def condition(scope: Scope, table: str = "sessions") -> tuple[str, tuple[Any, ...]]:
    """Return the SQL condition that visible rows of `sessions` fulfill, and its values."""
    own, values = (
        f"{table}.source = ? AND {table}.user_id IS NOT DISTINCT FROM ?",
        [scope.source, scope.user_id],
    )
    if scope.chat_id is not None:
        own += f" AND {table}.chat_id = ? AND {table}.thread_id IS NOT DISTINCT FROM ?"
        values += [scope.chat_id, scope.thread_id]
    if scope.in_group:
        own += f" AND {table}.chat_type <> '{DIRECT}'"  # a session without a type is hidden
    if not scope.with_local:
        return f"({own})", tuple(values)
    local = (
        f"{table}.user_id IS NULL AND {table}.chat_id IS NULL AND {table}.session_key IS NULL"
        f" AND {table}.source <> '{DELEGATE}'"
    )
    return f"({own} OR {local})", tuple(values)


def is_visible(tx: Tx, session_id: str, scope: Scope | None) -> bool:
    """Return whether a session exists and is visible."""
    terms, values = condition(scope) if scope is not None else ("1", ())
    found = tx.value(f"SELECT 1 FROM sessions WHERE id = ? AND {terms}", session_id, *values)
    return found is not None
