"""Results: how a turn came out, read from the store, for surfaces that answer in place."""

from gateway import outcomes
from gateway.platforms.base import Ended
from hermes_agent.turn import Outcome
from hermes_core.errors import StoreError
from hermes_state.protocol import Store


def of_turn(store: Store, turn_id: str) -> Ended | None:
    """How a turn ended; None when it has not. Raises StoreError when there is no such turn."""
    row = store.turns.get(turn_id)
    if row is None:
        raise StoreError(f"There is no turn {turn_id}.")
    if row["ended_at"] is None:
        return None
    text, is_partial = "", False
    if row["final_message_id"] is not None:
        around = store.get_messages_around(row["session_id"], row["final_message_id"], 0)
        message = around["window"][0]
        text, is_partial = str(message["content"] or ""), message.get("kind") == "partial"
    usage = store.usage.of_turn(turn_id, row["session_id"])
    calls = store.budgets.of_turn(turn_id)["steps"]
    outcome = Outcome(row["state"], text, row["reason"] or "", is_partial=is_partial)
    session = store.get_session(row["session_id"]) or {}
    return Ended(
        status=row["state"],
        text=text if row["state"] == "answered" and text else outcomes.text_of(outcome, calls),
        reason=row["reason"] or "",
        session_id=row["session_id"],
        usage=usage,
        model=str(session.get("model") or ""),
    )
