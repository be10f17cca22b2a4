"""Results: how a turn came out, read from the store, for surfaces that answer in place."""

from gateway import outcomes
from gateway.platforms.base import Ended
from hermes_agent.turn import Outcome
from hermes_core.errors import SessionNotFoundError, StoreError
from hermes_state.protocol import Store
from hermes_state.records import Row
from hermes_state.turns import FOLDED

_SAID_TO_ANOTHER = "It was said to the turn that ran."


def of_turn(store: Store, turn_id: str) -> Ended | None:
    """How a turn ended; None when it has not. Raises StoreError when there is no such turn."""
    row = _row(store, turn_id)
    if row["ended_at"] is None:
        return None
    if row["reason"] == FOLDED:
        return Ended("answered", _SAID_TO_ANOTHER, "", row["session_id"], {})
    final = _final(store, row)
    outcome = _outcome(row, final)
    text = outcome.text
    usage = store.usage.of_turn(turn_id, row["session_id"])
    calls = store.budgets.of_turn(turn_id)["steps"]
    session = store.get_session(row["session_id"]) or {}
    finish = final.get("finish_reason")
    return Ended(
        status=row["state"],
        text=text if row["state"] == "answered" and text else outcomes.text_of(outcome, calls),
        reason=row["reason"] or "",
        session_id=row["session_id"],
        usage=usage,
        model=str(session.get("model") or ""),
        finish=finish if finish in ("length", "refusal") else "stop",
    )


def session_of(store: Store, turn_id: str) -> str:
    """The session of a turn. Raises StoreError when there is no such turn."""
    return _row(store, turn_id)["session_id"]


def _row(store: Store, turn_id: str) -> Row:
    row = store.turns.get(turn_id)
    if row is None:
        raise StoreError(f"There is no turn {turn_id}.")
    return row


def outcome_of(store: Store, row: Row) -> Outcome:
    """The outcome of a turn that has ended, as it was when it did."""
    return _outcome(row, _final(store, row))


def _outcome(row: Row, final: Row) -> Outcome:
    is_partial = final.get("kind") == "partial" or final.get("finish_reason") == "length"
    text = str(final.get("content") or "")
    return Outcome(row["state"], text, row["reason"] or "", is_partial=is_partial)


def _final(store: Store, row: Row) -> Row:
    """The last message of a turn, also one taken back since; nothing when it ended without one."""
    message_id = row["final_message_id"]
    if message_id is None:
        return {}
    try:
        return store.get_messages_around(row["session_id"], message_id, 0)["window"][0]
    except SessionNotFoundError:
        said = store.get_messages(row["session_id"], include_inactive=True)
        found = [one for one in said if one["id"] == message_id]
        return found[0] if found else {}
