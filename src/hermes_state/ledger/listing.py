"""List conversations by their newest session, most recently active first."""

from functools import lru_cache
from typing import Any

from hermes_core.text import without_surrogates
from hermes_state.ledger.scope import condition
from hermes_state.store import Tx
from hermes_state.values import Filter, Row

_COLUMNS = (
    "id, conversation_id, parent_session_id, relation, depth, is_tip, archived, source, model, cwd,"
    " title, preview, started_at, last_active_at, ended_at, end_reason, message_count, tool_call_count,"
    " cost_usd"
)

_SELECT = f"SELECT {_COLUMNS} FROM sessions"

_LISTED = "is_tip = 1 AND archived = 0 AND relation IS DISTINCT FROM 'delegate'"
"""The condition of the index sessions_recent, literally; otherwise SQLite does not use that index."""


def select(tx: Tx, filters: Filter, *, limit: int | None = 20, offset: int = 0) -> list[Row]:
    """Return the conversations that match, most recently active first."""
    where, bindings = _where(filters)
    return tx.rows(
        f"{_SELECT} WHERE {where} ORDER BY last_active_at DESC"
        f" LIMIT {-1 if limit is None else int(limit)} OFFSET {int(offset)}",
        *bindings,
    )


def count(tx: Tx, filters: Filter) -> int:
    """Count the conversations that match."""
    where, bindings = _where(filters)
    return tx.value(f"SELECT count(*) FROM sessions WHERE {where}", *bindings)


def _where(filters: Filter) -> tuple[str, tuple[Any, ...]]:
    return _conditions(filters._replace(exclude_sources=tuple(filters.exclude_sources or ())))


@lru_cache(maxsize=64)
def _conditions(filters: Filter) -> tuple[str, tuple[Any, ...]]:
    terms, bindings = [_base_condition(filters)], list[Any]()
    if filters.scope is not None:
        whose, values = condition(filters.scope)
        terms.append(whose)
        bindings += values
    if filters.source is not None:
        terms.append("source = ?")
        bindings.append(filters.source)
    if filters.exclude_sources:
        terms.append(f"source NOT IN ({', '.join('?' * len(filters.exclude_sources))})")
        bindings += filters.exclude_sources
    if filters.cwd_prefix is not None:
        terms.append("(cwd = ? OR cwd >= ? AND cwd < ?)")
        folder = filters.cwd_prefix.rstrip("/")
        bindings += [folder, folder + "/", folder + "0"]
    if filters.min_message_count:
        terms.append("message_count >= ?")
        bindings.append(filters.min_message_count)
    if filters.search_query:
        terms.append(
            "(instr(casefold(CAST(coalesce(title, '') AS BLOB)), ?)"
            " OR instr(casefold(CAST(coalesce(preview, '') AS BLOB)), ?)"
            " OR instr(casefold(CAST(id AS BLOB)), ?))"
        )
        bindings += [filters.search_query.casefold()] * 3
    texts = (without_surrogates(value) if isinstance(value, str) else value for value in bindings)
    return " AND ".join(terms), tuple(texts)


def _base_condition(filters: Filter) -> str:
    if filters.include_children:
        return "archived = 1" if filters.archived_only else "1"
    if filters.archived_only:
        return "is_tip = 1 AND archived = 1 AND relation IS DISTINCT FROM 'delegate'"
    if filters.include_archived:
        return "is_tip = 1 AND relation IS DISTINCT FROM 'delegate'"
    return _LISTED


def stats(tx: Tx) -> Row:
    """Return the totals of the store."""
    totals = tx.rows(
        "SELECT count(*) AS sessions, coalesce(sum(is_tip), 0) AS conversations,"
        " coalesce(sum(is_tip AND ended_at IS NULL), 0) AS open_conversations,"
        " coalesce(sum(archived AND is_tip), 0) AS archived,"
        " coalesce(sum(api_call_count), 0) AS model_calls,"
        " coalesce(sum(input_tokens), 0) AS input_tokens,"
        " coalesce(sum(output_tokens), 0) AS output_tokens,"
        " coalesce(sum(cost_usd), 0.0) AS cost_usd,"
        " min(started_at) AS first_at, max(last_active_at) AS last_at FROM sessions"
    )[0]
    by_source = tx.tuples(
        "SELECT source, count(*) FROM sessions WHERE is_tip = 1 GROUP BY source ORDER BY 2 DESC, 1"
    )
    return {
        **totals,
        "messages": tx.value("SELECT count(*) FROM messages"),
        "by_source": dict(by_source),
        "turns": dict(tx.tuples("SELECT state, count(*) FROM turns GROUP BY state ORDER BY state")),
    }
