"""Store questions to a person (approvals and clarifications), and lasting approvals (grants).

pending → answered | withdrawn
A question belongs to one tool call of one turn, so that after a restart the same call finds its own
question again, with an answer that came in the meantime.
"""

import os

from hermes_core import config
from hermes_core.errors import StoreError
from hermes_core.secrets import redact
from hermes_state.ledger.records import decode, encode
from hermes_state.store import Tx, one_statement
from hermes_state.transitions import QuestionState
from hermes_state.values import EVERYWHERE, UNSHOWN, Grant, Question, Row

_PART = "question:"
"""Begins the keys of parts of questions in the outbox."""


def ask(tx: Tx, question: Question) -> Row:
    """Store a question, or return the same one if it is stored already."""
    question = question._replace(text=redact(question.text), detail=redact(question.detail))
    tx.run(
        "INSERT INTO questions (id, turn_id, tool_call_id, kind, tool_name, text, detail,"
        " choices, asked_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (turn_id, tool_call_id, kind, text, detail) DO NOTHING",
        os.urandom(8).hex(),
        *question[:6],
        encode(list(question.choices)),
        tx.now,
    )
    return _rows(
        tx.rows(
            "SELECT * FROM questions WHERE turn_id = ? AND tool_call_id = ? AND kind = ?"
            " AND text = ? AND detail = ?",
            question.turn_id,
            question.tool_call_id,
            question.kind,
            question.text,
            question.detail,
        )
    )[0]


def answer(tx: Tx, question_id: str, text: str, by: str = "") -> None:
    """Answer a question; the database refuses a second answer.

    Raises ConfigError when a command of the agent answers an approval.
    """
    if fetch(tx, question_id)["kind"] == "approval":
        config.refuse_in_command("answer an approval")
    _settle(tx, question_id, QuestionState.ANSWERED, redact(text), by)


def cancel(tx: Tx, question_id: str) -> None:
    """Cancel a question that is still pending, as it timed out or its turn was interrupted."""
    if fetch(tx, question_id)["state"] == QuestionState.PENDING:
        _settle(tx, question_id, QuestionState.CANCELLED, None, None)


def fail(tx: Tx, question_id: str, error: str) -> None:
    """Record that a question could not be shown, and give up the rest of its parts."""
    question = fetch(tx, question_id)
    if question["state"] == QuestionState.PENDING and question["kind"] == "approval":
        _settle(tx, question_id, QuestionState.ANSWERED, redact(f"{UNSHOWN}:{error}"), "")
    elif question["state"] == QuestionState.PENDING:
        _settle(tx, question_id, QuestionState.CANCELLED, None, None)
    tx.run(
        "UPDATE outbox SET state = 'failed', error = ?, ended_at = ?"
        " WHERE key >= ? AND key < ? AND state = 'pending'",
        "an earlier part of the question could not be sent",
        tx.now,
        *_keys(question_id),
    )


def is_delivered(tx: Tx, question_id: str) -> bool:
    """Return whether no part of a question is still to be sent to a chat."""
    found = tx.value(
        "SELECT 1 FROM outbox WHERE key >= ? AND key < ? AND state <> 'sent' LIMIT 1",
        *_keys(question_id),
    )
    return found is None


def part_name(question_id: str) -> str:
    """Return the name of the parts of a question in the outbox; their number follows in their keys."""
    return f"{_PART}{question_id}"


def id_of_part(key: str | None) -> str:
    """Return the question that a part in the outbox belongs to; empty for other parts."""
    return key.removeprefix(_PART).partition(":")[0] if key and key.startswith(_PART) else ""


def _keys(question_id: str) -> tuple[str, str]:
    """Return the bounds of the keys of all parts of a question."""
    return f"{part_name(question_id)}:", f"{part_name(question_id)};"


def cancel_of_turn(tx: Tx, turn_id: str) -> None:
    """Cancel the pending questions of a turn that has ended."""
    tx.run(
        "UPDATE questions SET state = 'withdrawn', ended_at = ? WHERE turn_id = ? AND state = 'pending'",
        tx.now,
        turn_id,
    )


def _settle(
    tx: Tx, question_id: str, state: QuestionState, text: str | None, by: str | None
) -> None:
    fetch(tx, question_id)
    tx.run(
        "UPDATE questions SET state = ?, answer = ?, answered_by = ?, ended_at = ? WHERE id = ?",
        state,
        text,
        by,
        tx.now,
        question_id,
    )


def fetch(tx: Tx, question_id: str) -> Row:
    """Return a question; raise StoreError when there is none."""
    found = _rows(tx.rows("SELECT * FROM questions WHERE id = ?", question_id))
    if not found:
        raise StoreError(f"There is no question {question_id}.")
    return found[0]


@one_statement
def pending(tx: Tx, conversation_id: str | None = None) -> list[Row]:
    """Return the pending questions, oldest first, each with its session and conversation."""
    return _rows(
        tx.rows(
            "SELECT questions.*, turns.session_id, sessions.conversation_id FROM questions"
            " JOIN turns ON turns.id = questions.turn_id"
            " JOIN sessions ON sessions.id = turns.session_id"
            " WHERE questions.state = 'pending'"
            " AND (?1 IS NULL OR sessions.conversation_id = ?1) ORDER BY asked_at",
            conversation_id,
        )
    )


def with_stale_buttons(tx: Tx, since: float = 0.0) -> list[Row]:
    """Return the parts that still show buttons although their question ended since a time."""
    return tx.rows(
        "SELECT outbox.*, questions.state AS question_state, questions.answer,"
        " turns.ended_at IS NOT NULL AS is_turn_over FROM outbox"
        " JOIN questions ON questions.id = outbox.question_id"
        " JOIN turns ON turns.id = questions.turn_id"
        " WHERE outbox.buttons IS NOT NULL AND outbox.state <> 'failed'"
        " AND questions.ended_at > ? ORDER BY outbox.id",
        since,
    )


def _rows(found: list[Row]) -> list[Row]:
    for row in found:
        row["choices"] = decode(row["choices"])
    return found


def grant(tx: Tx, approval: Grant, scope: str = EVERYWHERE) -> None:
    """Store a lasting approval, for one conversation or everywhere."""
    approval = approval._replace(subject=redact(approval.subject), reasons=redact(approval.reasons))
    columns = ", ".join(("scope", *Grant._fields, "granted_at"))
    tx.run(
        f"INSERT OR REPLACE INTO grants ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        scope,
        *approval,
        tx.now,
    )


def grants(tx: Tx) -> list[Row]:
    """Return all lasting approvals, with their scope and age, the newest first."""
    return tx.rows("SELECT * FROM grants ORDER BY granted_at DESC, scope, key")


def revoke(tx: Tx, key: str, scope: str = EVERYWHERE) -> bool:
    """Delete a lasting approval; return whether there was one."""
    changed = tx.run("DELETE FROM grants WHERE scope = ? AND key = ?", scope, key)
    return changed > 0


def granted(tx: Tx, conversation_id: str, *, everywhere: bool = True) -> set[str]:
    """Return the keys that are approved in a conversation, and (with `everywhere`) everywhere."""
    other = EVERYWHERE if everywhere else conversation_id
    found = tx.tuples("SELECT key FROM grants WHERE scope IN (?, ?)", conversation_id, other)
    return {key for (key,) in found}
