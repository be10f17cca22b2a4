"""Lists of conversations: one row each, shown as its tip, the most recently active first."""

from functools import lru_cache
from typing import Any

from hermes_core.text import without_surrogates
from hermes_state.ledger.scope import condition
from hermes_state.store import Tx
from hermes_state.values import Filter, Row

_COLUMNS = (
    "id",
    "conversation_id",
    "parent_session_id",
    "relation",
    "depth",
    "is_tip",
    "archived",
    "source",
    "model",
    "cwd",
    "title",
    "preview",
    "started_at",
    "last_active_at",
    "ended_at",
    "end_reason",
    "message_count",
    "tool_call_count",
    "cost_usd",
)

_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM sessions"

_LISTED = "is_tip = 1 AND archived = 0 AND relation IS DISTINCT FROM 'delegate'"
"""Word for word the condition of the index sessions_recent, or that index is not used."""


def select(tx: Tx, wanted: Filter, *, limit: int | None = 20, offset: int = 0) -> list[Row]:
    """The conversations that fit, the most recently active first."""
    where, bindings = _where(wanted)
    return tx.rows(
        f"{_SELECT} WHERE {where} ORDER BY last_active_at DESC"
        f" LIMIT {-1 if limit is None else int(limit)} OFFSET {int(offset)}",
        *bindings,
    )


def count(tx: Tx, wanted: Filter) -> int:
    """How many conversations fit."""
    where, bindings = _where(wanted)
    return tx.value(f"SELECT count(*) FROM sessions WHERE {where}", *bindings)


def _where(wanted: Filter) -> tuple[str, tuple[Any, ...]]:
    return _conditions(wanted._replace(exclude_sources=tuple(wanted.exclude_sources)))


@lru_cache(maxsize=64)
def _conditions(wanted: Filter) -> tuple[str, tuple[Any, ...]]:
    terms, bindings = [_kept(wanted)], list[Any]()
    if wanted.scope is not None:
        whose, values = condition(wanted.scope)
        terms.append(whose)
        bindings += values
    if wanted.source is not None:
        terms.append("source = ?")
        bindings.append(wanted.source)
    if wanted.exclude_sources:
        terms.append(f"source NOT IN ({', '.join('?' * len(wanted.exclude_sources))})")
        bindings += wanted.exclude_sources
    if wanted.cwd_prefix is not None:
        terms.append("(cwd = ? OR cwd >= ? AND cwd < ?)")
        folder = wanted.cwd_prefix.rstrip("/")
        bindings += [folder, folder + "/", folder + "0"]
    if wanted.min_message_count:
        terms.append("message_count >= ?")
        bindings.append(wanted.min_message_count)
    if wanted.search_query:
        terms.append(
            "(instr(casefold(CAST(coalesce(title, '') AS BLOB)), ?)"
            " OR instr(casefold(CAST(coalesce(preview, '') AS BLOB)), ?)"
            " OR instr(casefold(CAST(id AS BLOB)), ?))"
        )
        bindings += [wanted.search_query.casefold()] * 3
    texts = (without_surrogates(one) if isinstance(one, str) else one for one in bindings)
    return " AND ".join(terms), tuple(texts)


def _kept(wanted: Filter) -> str:
    if wanted.include_children:
        return "archived = 1" if wanted.archived_only else "1"
    if wanted.archived_only:
        return "is_tip = 1 AND archived = 1 AND relation IS DISTINCT FROM 'delegate'"
    if wanted.include_archived:
        return "is_tip = 1 AND relation IS DISTINCT FROM 'delegate'"
    return _LISTED


def stats(tx: Tx) -> Row:
    """What there is, in numbers."""
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
