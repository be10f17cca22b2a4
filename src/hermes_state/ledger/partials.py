"""Store partial replies: the text streamed so far in a running turn, so that a kill does not lose it.

The text is saved from time to time and deleted when its step is stored. When the turn ends without a
last message, the partial reply becomes that message and is marked as partial.
"""

from typing import Any

from hermes_core.secrets import redact
from hermes_state.ledger import leases
from hermes_state.store import Tx, deferrable, one_statement
from hermes_state.values import Lease, Row


@deferrable
def save(tx: Tx, turn_id: str, text: str, lease: Lease | None = None) -> None:
    """Save the text streamed so far, replacing the earlier one."""
    leases.check(tx, lease)
    tx.run(
        "INSERT INTO partials (turn_id, text, streamed_at) VALUES (?1, ?2, ?3)"
        " ON CONFLICT (turn_id) DO UPDATE"
        " SET text = ?2, streamed_at = ?3",
        turn_id,
        redact(text),
        tx.now,
    )


def pop(tx: Tx, turn_id: str) -> str:
    """Delete and return the text streamed so far; empty when there is none."""
    found: Any = tx.value("DELETE FROM partials WHERE turn_id = ? RETURNING text", turn_id)
    return found or ""


@one_statement
def of_session(tx: Tx, session_id: str) -> list[Row]:
    """Return the partial replies of a session as messages."""
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
