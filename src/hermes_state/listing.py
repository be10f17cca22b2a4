"""Lists of conversations: one row each, shown as its tip, the most recently active first."""

from collections.abc import Collection
from functools import lru_cache
from typing import Any, NamedTuple

import apsw

from hermes_core.text import without_surrogates
from hermes_state.records import Row, named_rows, rows
from hermes_state.scope import Scope, condition

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

_LISTED = "is_tip = 1 AND archived = 0 AND relation IS NOT 'delegate'"
"""Word for word the condition of the index sessions_recent, or that index is not used."""


class Filter(NamedTuple):
    """Which conversations to list."""

    source: str | None = None
    exclude_sources: Collection[str] = ()
    cwd_prefix: str | None = None
    min_message_count: int = 0
    include_archived: bool = False
    archived_only: bool = False
    include_children: bool = False
    search_query: str | None = None
    scope: Scope | None = None


def select(
    conn: apsw.Connection, wanted: Filter, *, limit: int | None = 20, offset: int = 0
) -> list[Row]:
    """The conversations that fit, the most recently active first."""
    where, bindings = _where(wanted)
    return named_rows(
        _COLUMNS,
        conn.execute(
            # Numbers, not parameters: SQLite plans a query anew when its LIMIT is bound.
            f"{_SELECT} WHERE {where} ORDER BY last_active_at DESC"
            f" LIMIT {-1 if limit is None else int(limit)} OFFSET {int(offset)}",
            bindings,
        ),
    )


def count(conn: apsw.Connection, wanted: Filter) -> int:
    """How many conversations fit."""
    where, bindings = _where(wanted)
    return conn.execute(f"SELECT count(*) FROM sessions WHERE {where}", bindings).get


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
        return "is_tip = 1 AND archived = 1 AND relation IS NOT 'delegate'"
    if wanted.include_archived:
        return "is_tip = 1 AND relation IS NOT 'delegate'"
    return _LISTED


def stats(conn: apsw.Connection) -> Row:
    """What there is, in numbers."""
    totals = rows(
        conn.execute(
            "SELECT count(*) AS sessions, coalesce(sum(is_tip), 0) AS conversations,"
            " coalesce(sum(is_tip AND ended_at IS NULL), 0) AS open_conversations,"
            " coalesce(sum(archived AND is_tip), 0) AS archived,"
            " coalesce(sum(api_call_count), 0) AS model_calls,"
            " coalesce(sum(input_tokens), 0) AS input_tokens,"
            " coalesce(sum(output_tokens), 0) AS output_tokens,"
            " coalesce(sum(cost_usd), 0.0) AS cost_usd,"
            " min(started_at) AS first_at, max(last_active_at) AS last_at FROM sessions"
        )
    )[0]
    by_source = conn.execute(
        "SELECT source, count(*) FROM sessions WHERE is_tip = 1 GROUP BY source ORDER BY 2 DESC, 1"
    )
    return {
        **totals,
        "messages": conn.execute("SELECT count(*) FROM messages").get,
        "by_source": dict(by_source.fetchall()),
        "turns": dict(
            conn.execute(
                "SELECT state, count(*) FROM turns GROUP BY state ORDER BY state"
            ).fetchall()
        ),
    }
