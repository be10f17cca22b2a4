"""Read how turns ended from the store, for surfaces that answer in place."""

from typing import Literal

from gateway import reply_target, reply_text
from gateway.platforms.base import StoredTurn, ToolCall, TurnResult
from hermes_agent.turn.values import Outcome
from hermes_core.errors import SessionNotFoundError, TurnNotFoundError, UsageError
from hermes_state.ledger import budgets, effects, lineage, turns
from hermes_state.ledger import messages as message_ledger
from hermes_state.ledger import scope as scope_ledger
from hermes_state.ledger import sessions as session_ledger
from hermes_state.ledger import usage as usage_ledger
from hermes_state.ledger.turns import MERGED
from hermes_state.store import Store
from hermes_state.transitions import TurnState
from hermes_state.values import Row, Scope

_CALL_STATUS: dict[str, Literal["completed", "incomplete"]] = {
    "done": "completed",
    "unknown": "incomplete",
    "cancelled": "incomplete",
}
_STEERED = "The running turn includes this message."


def of_turn(store: Store, turn_id: str) -> TurnResult | None:
    """Read how a turn ended; None when it has not. Raises TurnNotFoundError."""
    row = _row(store, turn_id)
    if row["ended_at"] is None:
        return None
    if row["reason"] == MERGED:
        return TurnResult("answered", _STEERED, "", row["session_id"], {})
    final = _final(store, row)
    outcome = _outcome(row, final)
    text = outcome.text
    usage = store.read(usage_ledger.of_turn, turn_id, row["session_id"])
    calls = store.read(budgets.of_turn, turn_id)["steps"]
    session = store.read(session_ledger.find, row["session_id"]) or {}
    finish = final.get("finish_reason")
    return TurnResult(
        status=row["state"],
        text=text
        if row["state"] == TurnState.ANSWERED and text
        else reply_text.text_of(outcome, calls),
        reason=row["reason"] or "",
        session_id=row["session_id"],
        usage=usage,
        model=str(session.get("model") or ""),
        finish=finish if finish in ("length", "refusal") else "stop",
    )


def find(store: Store, turn_id: str, scope: Scope | None) -> StoredTurn:
    """Look up a turn that somebody with this scope may see; raises TurnNotFoundError."""
    row = _row(store, turn_id)
    session_id: str = row["session_id"]
    if not store.read(scope_ledger.is_visible, session_id, scope):
        raise TurnNotFoundError(f"There is no turn {turn_id}.")
    target = reply_target.of_turn(store, turn_id)
    session = store.read(session_ledger.find, session_id) or {}
    return StoredTurn(
        session_id,
        row["accepted_at"],
        str(session.get("model") or ""),
        target.instructions if target is not None else "",
        [_tool_call(store, session_id, effect) for effect in store.read(effects.of_turn, turn_id)],
        of_turn(store, turn_id),
    )


def delete(store: Store, turn_id: str, scope: Scope | None) -> None:
    """Delete the conversation of its only turn; raises TurnNotFoundError and UsageError."""
    turn = find(store, turn_id, scope)
    if turn.result is None:
        raise UsageError("The turn has not ended yet.", fix="Wait for it, or stop it.")
    if len(_turns_beside(store, turn.session_id)) > 1:
        raise UsageError(
            f"The conversation {turn.session_id} has other turns.",
            fix=f"To delete all of it, run: hermes sessions delete {turn.session_id}",
        )
    store.write(session_ledger.delete, [turn.session_id])


def _turns_beside(store: Store, session_id: str) -> list[Row]:
    """Return all turns of a conversation, without those of its delegates."""
    root = store.read(lineage.root, session_id)
    candidates = store.read(session_ledger.with_delegates, [session_id])
    sessions = [each for each in candidates if store.read(lineage.root, each) == root]
    return [turn for each in sessions for turn in store.read(turns.of_session, each)]


def _tool_call(store: Store, session_id: str, effect: Row) -> ToolCall:
    message_id = effect["result_message_id"]
    output = str(_message(store, session_id, message_id).get("content") or "") if message_id else ""
    return ToolCall(
        effect["tool_call_id"],
        effect["tool_name"],
        effect["arguments"],
        _CALL_STATUS.get(effect["state"], "in_progress"),
        output,
    )


def _row(store: Store, turn_id: str) -> Row:
    row = store.read(turns.find, turn_id)
    if row is None:
        raise TurnNotFoundError(f"There is no turn {turn_id}.")
    return row


def outcome_of(store: Store, row: Row) -> Outcome:
    """Return the outcome of a turn that has ended."""
    return _outcome(row, _final(store, row))


def _outcome(row: Row, final: Row) -> Outcome:
    is_partial = final.get("kind") == "partial" or final.get("finish_reason") == "length"
    text = str(final.get("content") or "")
    return Outcome(row["state"], text, row["reason"] or "", is_partial=is_partial)


def _final(store: Store, row: Row) -> Row:
    """Return the last message of a turn, also an undone one; empty when there is none."""
    message_id = row["final_message_id"]
    return _message(store, row["session_id"], message_id) if message_id is not None else {}


def _message(store: Store, session_id: str, message_id: int) -> Row:
    """Return a message, active or not; empty when it is deleted."""
    try:
        return store.read(message_ledger.around, session_id, message_id, 0)["window"][0]
    except SessionNotFoundError:
        messages = store.read(message_ledger.of_session, session_id, include_inactive=True)
        return next((message for message in messages if message["id"] == message_id), Row())
