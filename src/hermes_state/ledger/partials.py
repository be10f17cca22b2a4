"""Partials: what was streamed of a reply whose turn still runs, so that a kill does not take it.

It is kept now and then while the reply comes in, and goes when the step it belongs to is stored. When
the turn ends without a last message, it becomes that message, marked as partial.
"""

from typing import Any

from hermes_core.secrets import redact
from hermes_state.ledger import leases
from hermes_state.store import Tx, deferrable, one_statement
from hermes_state.values import Lease, Row


@deferrable
def keep(tx: Tx, turn_id: str, text: str, lease: Lease | None = None) -> None:
    """Note what was streamed so far, in the place of what was noted before."""
    leases.check(tx, lease)
    tx.run(
        "INSERT INTO partials (turn_id, text, streamed_at) VALUES (?1, ?2, ?3)"
        " ON CONFLICT (turn_id) DO UPDATE"
        " SET text = ?2, streamed_at = ?3",
        turn_id,
        redact(text),
        tx.now,
    )


def take(tx: Tx, turn_id: str) -> str:
    """What was streamed of the step that is being stored; it is not kept any more."""
    found: Any = tx.value("DELETE FROM partials WHERE turn_id = ? RETURNING text", turn_id)
    return found or ""


@one_statement
def of_session(tx: Tx, session_id: str) -> list[Row]:
    """What was streamed in a session and belongs to no message yet, as messages."""
    found = tx.tuples(
        "SELECT text, streamed_at, user_message_id FROM partials"
        " JOIN turns ON turns.id = turn_id WHERE session_id = ? ORDER BY user_message_id",
        session_id,
    )
    return [
        {
            "role": "assistant",
            "content": text,
            "kind": "partial",
            "timestamp": streamed_at,
            "answers": answers,
        }
        for text, streamed_at, answers in found
    ]
