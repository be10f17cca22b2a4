"""The result of a turn as a dictionary, in the shape that surfaces and programs know."""

from collections.abc import Sequence
from typing import Any

from hermes_agent.models.base import Facts
from hermes_agent.turn.values import Outcome
from hermes_state.ledger import budgets, messages, usage
from hermes_state.store import Store


def as_dictionary(
    store: Store,
    turn_id: str,
    outcome: Outcome,
    session_id: str,
    facts: Facts,
    pending_steers: Sequence[str],
) -> dict[str, Any]:
    """Return the outcome of a turn with its usage and the transcript of its conversation."""
    failed = outcome.status == "failed"
    spent = _usage_of(store, turn_id, session_id)
    result: dict[str, Any] = {
        "final_response": outcome.text or None,
        "messages": store.read(messages.as_conversation, session_id),
        "api_calls": store.read(budgets.of_turn, turn_id)["steps"],
        "completed": outcome.status == "answered",
        "interrupted": outcome.status == "interrupted",
        "partial": outcome.is_partial,
        "failed": failed,
        "error": outcome.reason if failed else None,
        "failure_reason": outcome.code if failed else None,
        "turn_exit_reason": outcome.status,
        "session_id": session_id,
        "model": facts.name,
        "provider": facts.provider,
        "usage": spent,
        **spent,
    }
    if pending_steers:
        result["pending_steer"] = "\n".join(pending_steers)
    return result


def _usage_of(store: Store, turn_id: str, session_id: str) -> dict[str, Any]:
    row = store.read(usage.of_turn, turn_id, session_id)
    return {
        "input_tokens": row["input_tokens"],
        "output_tokens": row["output_tokens"],
        "cache_read_tokens": row["cache_read_tokens"],
        "cache_write_tokens": row["cache_write_tokens"],
        "reasoning_tokens": row["reasoning_tokens"],
        "total_tokens": row["input_tokens"] + row["output_tokens"],
        "estimated_cost_usd": row["cost_usd"],
    }
