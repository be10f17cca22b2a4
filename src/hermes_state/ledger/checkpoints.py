"""Store checkpoints of workspaces, and the effects of tool calls that restoring files does not undo.

Each attempt at a turn has a checkpoint of its own: between two attempts a person may edit files.
"""

from collections.abc import Collection, Sequence
from typing import Literal

import msgspec

from hermes_core.secrets import redact
from hermes_core.text import without_surrogates
from hermes_state.ledger import leases
from hermes_state.store import Tx, one_statement
from hermes_state.values import Lease, Row

Kind = Literal["host", "outside", "unconfined", "other"]
"""A host was reached, a path outside the workspace was given, the sandbox was left, or another."""

_ROWS = (
    "SELECT checkpoints.*, turns.user_message_id, sessions.conversation_id FROM checkpoints"
    " JOIN turns ON turns.id = checkpoints.turn_id"
    " JOIN sessions ON sessions.id = turns.session_id"
)


def begin(
    tx: Tx,
    turn_id: str,
    workspace: str,
    before: str | None,
    notes: Sequence[str] = (),
    lease: Lease | None = None,
) -> int:
    """Record the checkpoint that an attempt at a turn begins with; None: it could not be taken."""
    leases.check(tx, lease)
    return tx.value(
        "INSERT INTO checkpoints (turn_id, workspace, before, notes, taken_at)"
        " VALUES (?, ?, ?, ?, ?) RETURNING id",
        turn_id,
        without_surrogates(workspace),
        before,
        _encoded(notes),
        tx.now,
    )


def amend(tx: Tx, checkpoint_id: int, before: str) -> None:
    """Replace the tree that an attempt began with by one that holds more."""
    tx.run("UPDATE checkpoints SET before = ? WHERE id = ?", before, checkpoint_id)


def end(tx: Tx, checkpoint_id: int, after: str | None, notes: Sequence[str] = ()) -> None:
    """Record what the workspace held when the attempt was over; the first record counts."""
    tx.run(
        "UPDATE checkpoints SET after = ?, notes = ?, ended_at = ?"
        " WHERE id = ? AND ended_at IS NULL",
        after,
        _encoded(notes),
        tx.now,
        checkpoint_id,
    )


def mark_restored(tx: Tx, checkpoint_ids: Collection[int]) -> None:
    """Record that the files of these checkpoints were restored."""
    tx.run(
        f"UPDATE checkpoints SET restored_at = ? WHERE {tx.among('id')}",
        tx.now,
        tx.many(checkpoint_ids),
    )


@one_statement
def since(tx: Tx, conversation_id: str, message_id: int) -> list[Row]:
    """Return the checkpoints of the turns from a message on that are not restored, newest first."""
    found = tx.rows(
        f"{_ROWS} WHERE conversation_id = ? AND user_message_id >= ? AND restored_at IS NULL"
        " ORDER BY checkpoints.id DESC",
        conversation_id,
        message_id,
    )
    return [_decoded(row) for row in found]


@one_statement
def of_conversation(tx: Tx, conversation_id: str) -> list[Row]:
    """Return all checkpoints of a conversation, newest first."""
    found = tx.rows(
        f"{_ROWS} WHERE conversation_id = ? ORDER BY checkpoints.id DESC", conversation_id
    )
    return [_decoded(row) for row in found]


@one_statement
def beside(tx: Tx, row: Row) -> list[Row]:
    """Return the checkpoints of other conversations in the same workspace at the same time."""
    found = tx.rows(
        f"{_ROWS} WHERE workspace = ? AND conversation_id <> ? AND before IS NOT NULL"
        " AND taken_at < ? AND (checkpoints.ended_at IS NULL OR checkpoints.ended_at > ?)",
        row["workspace"],
        row["conversation_id"],
        row["ended_at"] if row["ended_at"] is not None else tx.now,
        row["taken_at"],
    )
    return [_decoded(match) for match in found]


@one_statement
def trees(tx: Tx, workspace: str) -> set[str]:
    """Return every tree of a workspace that a checkpoint needs."""
    found = tx.tuples("SELECT before, after FROM checkpoints WHERE workspace = ?", workspace)
    return {tree for row in found for tree in row if tree}


def expire(tx: Tx, taken_before: float) -> int:
    """Delete checkpoints that were taken before this time; return how many."""
    return tx.run("DELETE FROM checkpoints WHERE taken_at < ?", taken_before)


def note_effect(
    tx: Tx, turn_id: str, tool_call_id: str, tool_name: str, kind: Kind, detail: str
) -> None:
    """Record an effect that restoring files does not undo; repeats are folded."""
    tx.run(
        "INSERT INTO lasting_effects (turn_id, tool_call_id, tool_name, kind, detail, noted_at)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        turn_id,
        tool_call_id,
        tool_name,
        kind,
        without_surrogates(redact(detail)),
        tx.now,
    )


@one_statement
def effects_since(tx: Tx, conversation_id: str, message_id: int) -> list[Row]:
    """Return the lasting effects of the turns from a message on, oldest first."""
    return tx.rows(
        "SELECT lasting_effects.* FROM lasting_effects"
        " JOIN turns ON turns.id = lasting_effects.turn_id"
        " JOIN sessions ON sessions.id = turns.session_id"
        " WHERE conversation_id = ? AND user_message_id >= ?"
        " ORDER BY noted_at, lasting_effects.turn_id, tool_call_id, kind, detail",
        conversation_id,
        message_id,
    )


@one_statement
def latest_effects(tx: Tx, limit: int) -> list[Row]:
    """Return the latest lasting effects with their conversations, the newest first."""
    return tx.rows(
        "SELECT lasting_effects.*, conversation_id FROM lasting_effects"
        " JOIN turns ON turns.id = lasting_effects.turn_id"
        " JOIN sessions ON sessions.id = turns.session_id"
        " ORDER BY noted_at DESC, lasting_effects.turn_id, tool_call_id, kind, detail LIMIT ?",
        limit,
    )


def _encoded(notes: Sequence[str]) -> str:
    return msgspec.json.encode([without_surrogates(redact(note)) for note in notes]).decode()


def _decoded(row: Row) -> Row:
    return {**row, "notes": msgspec.json.decode(row["notes"], type=list[str])}
