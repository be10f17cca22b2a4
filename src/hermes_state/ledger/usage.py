"""Store the tokens and cost of model calls, one row per call; a trigger sums them on the session."""

from hermes_state.store import Tx, one_statement
from hermes_state.values import TOKENS, Row, Spent

_SUMS = (
    ", ".join(f"coalesce(sum({name}), 0) AS {name}" for name in TOKENS)
    + ", coalesce(sum(cost_usd), 0.0) AS cost_usd"
)
"""SQL sums for rows of `usage` and of `sessions`, which have columns of the same names."""


def record(
    tx: Tx,
    session_id: str,
    spent: Spent,
    *,
    turn_id: str | None = None,
    task: str = "",
) -> None:
    """Record one model call; `task` names calls outside the main loop."""
    tx.run(
        f"INSERT INTO usage (session_id, turn_id, task, {', '.join(Spent._fields)}, timestamp)"
        f" VALUES ({', '.join('?' * (len(Spent._fields) + 4))})",
        session_id,
        turn_id,
        task,
        *spent,
        tx.now,
    )


@one_statement
def of_conversation(tx: Tx, session_id: str) -> list[Row]:
    """Return the sums per model over all sessions of a conversation."""
    return tx.rows(
        f"SELECT model, provider, count(*) AS calls, {_SUMS} FROM usage"
        " WHERE session_id IN (SELECT id FROM sessions WHERE conversation_id ="
        " (SELECT conversation_id FROM sessions WHERE id = ?))"
        " GROUP BY model, provider ORDER BY model, provider",
        session_id,
    )


@one_statement
def totals(tx: Tx, session_id: str) -> Row:
    """Return the totals of a conversation and how often it was compacted, at a constant cost."""
    return tx.rows(
        f"SELECT coalesce(sum(api_call_count), 0) AS calls, {_SUMS},"
        " coalesce(max(CASE id WHEN ?1 THEN depth END), 0) AS compactions FROM sessions"
        " WHERE conversation_id = (SELECT conversation_id FROM sessions WHERE id = ?1)",
        session_id,
    )[0]


@one_statement
def last_request_tokens(tx: Tx, session_id: str) -> int | None:
    """Return the tokens of the last request of a session and its reply, or None before the first one."""
    return tx.value(
        "SELECT input_tokens + output_tokens FROM usage WHERE session_id = ? AND task = ''"
        " ORDER BY id DESC LIMIT 1",
        session_id,
    )


def since(tx: Tx, moment: float) -> Row:
    """Return the totals of all calls since a time."""
    return tx.rows(f"SELECT count(*) AS calls, {_SUMS} FROM usage WHERE timestamp >= ?", moment)[0]


@one_statement
def of_turn(tx: Tx, turn_id: str, session_id: str) -> Row:
    """Return the totals of one turn."""
    return tx.rows(
        f"SELECT count(*) AS calls, {_SUMS} FROM usage"
        " WHERE session_id IN (SELECT id FROM sessions WHERE conversation_id ="
        " (SELECT conversation_id FROM sessions WHERE id = ?))"
        " AND turn_id = ?",
        session_id,
        turn_id,
    )[0]
