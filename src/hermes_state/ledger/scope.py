"""Scope: whose conversations may be seen. A query that is given one finds nothing else."""

from typing import Any

from hermes_state.store import Tx
from hermes_state.values import DELEGATE, DIRECT, Scope


def condition(scope: Scope, table: str = "sessions") -> tuple[str, tuple[Any, ...]]:
    """What a row of `sessions` must fulfil to be seen, as SQL and its values."""
    own, values = (
        f"{table}.source = ? AND {table}.user_id IS NOT DISTINCT FROM ?",
        [scope.source, scope.user_id],
    )
    if scope.chat_id is not None:
        own += f" AND {table}.chat_id = ? AND {table}.thread_id IS NOT DISTINCT FROM ?"
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


def is_visible(tx: Tx, session_id: str, scope: Scope | None) -> bool:
    """Whether a session is there and may be seen."""
    terms, values = condition(scope) if scope is not None else ("1", ())
    found = tx.value(f"SELECT 1 FROM sessions WHERE id = ? AND {terms}", session_id, *values)
    return found is not None
