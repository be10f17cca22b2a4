"""Store tool calls, so that after a crash each is known as done, not started, or unknown.

intended → started → done | unknown        intended → cancelled
A read-only call may be started again after a crash (started → started); any other may not.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hermes_core.errors import StoreError
from hermes_core.secrets import redact
from hermes_state.ledger import leases, taint
from hermes_state.ledger.records import insert_message, message_from
from hermes_state.store import Tx, one_statement
from hermes_state.transitions import EffectState
from hermes_state.values import Call, Lease, Row, TaintSource


def intend(tx: Tx, turn_id: str, step_message_id: int, call: Call) -> int:
    """Record a call before it starts."""
    return tx.value(
        "INSERT INTO effects (turn_id, step_message_id, tool_call_id, tool_name, arguments,"
        " read_only, intended_at) VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id",
        turn_id,
        step_message_id,
        *call._replace(arguments=redact(call.arguments)),
        tx.now,
    )


def start(
    tx: Tx, effect_id: int, lease: Lease | None = None, *, reads: Sequence[TaintSource] = ()
) -> None:
    """Record that a call has started, and what it reads; a crash from here on leaves it unknown."""
    leases.check(tx, lease)
    turn_id = _fetch(tx, effect_id)["turn_id"]
    if reads:
        session_id = tx.value("SELECT session_id FROM turns WHERE id = ?", turn_id)
        taint.note(tx, session_id, reads, turn_id)
    tx.run("UPDATE effects SET state = 'started', started_at = ? WHERE id = ?", tx.now, effect_id)


def settle(
    tx: Tx,
    effect_id: int,
    state: str,
    result: Mapping[str, Any] | None,
    lease: Lease | None = None,
) -> int | None:
    """End a call as done, unknown or cancelled, together with its result message."""
    leases.check(tx, lease)
    effect = _fetch(tx, effect_id)
    message_id = None
    if result is not None:
        ((session_id, answers),) = tx.tuples(
            "SELECT session_id, user_message_id FROM turns WHERE id = ?", effect["turn_id"]
        )
        message = message_from(result)._replace(answers=answers)
        message_id = insert_message(tx, session_id, message)
    tx.run(
        "UPDATE effects SET state = ?, result_message_id = ?, ended_at = ? WHERE id = ?",
        state,
        message_id,
        tx.now,
        effect_id,
    )
    return message_id


def done(tx: Tx, effect_id: int, result: Mapping[str, Any], lease: Lease | None = None) -> int:
    """End a call with its result."""
    message_id = settle(tx, effect_id, EffectState.DONE, result, lease)
    assert message_id is not None
    return message_id


def unknown(
    tx: Tx, effect_id: int, result: Mapping[str, Any] | None = None, lease: Lease | None = None
) -> int | None:
    """End a call whose outcome is unknown."""
    return settle(tx, effect_id, EffectState.UNKNOWN, result, lease)


def cancel(
    tx: Tx, effect_id: int, result: Mapping[str, Any] | None = None, lease: Lease | None = None
) -> int | None:
    """End a call that was never started."""
    return settle(tx, effect_id, EffectState.CANCELLED, result, lease)


def close_open(tx: Tx, turn_id: str) -> None:
    """Cancel the calls of a turn that have not started, and mark those that have as unknown."""
    tx.run(
        "UPDATE effects SET ended_at = ?,"
        " state = CASE state WHEN 'intended' THEN 'cancelled' ELSE 'unknown' END"
        " WHERE turn_id = ? AND state IN ('intended', 'started')",
        tx.now,
        turn_id,
    )


@one_statement
def of_turn(tx: Tx, turn_id: str) -> list[Row]:
    """Return the calls of a turn in the order in which they were recorded."""
    return tx.rows("SELECT * FROM effects WHERE turn_id = ? ORDER BY id", turn_id)


def _fetch(tx: Tx, effect_id: int) -> Row:
    found = tx.rows("SELECT * FROM effects WHERE id = ?", effect_id)
    if not found:
        raise StoreError(f"There is no effect {effect_id}.")
    return found[0]
