"""Create, read, end, change and delete sessions."""

import os
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, cast

from hermes_core import clock
from hermes_core.errors import SessionNotFoundError
from hermes_core.text import without_surrogates
from hermes_state.ledger.records import decode, encode
from hermes_state.ledger.scope import condition, is_visible
from hermes_state.store import Tx, one_statement
from hermes_state.values import Row, Scope

_PLACE = ("session_key", "chat_id", "chat_type", "thread_id", "user_id", "display_name")
"""Columns that name the person and chat of a session."""
FILLABLE = ("model", "model_config", "system_prompt", "cwd", "profile_name", *_PLACE)
"""Columns that a later `create` of the same session may fill, and that its children inherit."""

CHOSEN_MODEL = "chosen_model"
"""The field of `model_config` with the model chosen for this conversation only."""
INSTRUCTIONS = "instructions"
"""The field of `model_config` with the instructions of a program for this conversation."""

ACCIDENTAL_ENDS = ("agent_close", "ws_orphan_reap")
"""End reasons that mean that a process died, not that somebody ended the conversation."""


def new_id() -> str:
    """Return a session id that sorts by time: date, time, six random hex digits."""
    moment = datetime.fromtimestamp(clock.now(), UTC)
    return f"{moment:%Y%m%d_%H%M%S}_{os.urandom(3).hex()}"


def move(tx: Tx, session_id: str, place: Mapping[str, Any]) -> None:
    """Assign a session to another person and chat; columns that are not given become empty."""
    assignments = ", ".join(f"{name} = ?" for name in _PLACE)
    values = _storable({name: place.get(name) for name in _PLACE}).values()
    tx.run(f"UPDATE sessions SET {assignments} WHERE id = ?", *values, session_id)


def create(
    tx: Tx,
    session_id: str,
    source: str,
    fields: Mapping[str, Any],
    *,
    parent_session_id: str | None = None,
) -> None:
    """Create a session, or fill the empty columns of an existing one; nothing is overwritten."""
    if unknown := set(fields) - set(FILLABLE):
        raise TypeError(f"a session has no {', '.join(sorted(unknown))}")
    values, session_id = _storable(fields), without_surrogates(session_id)
    if values.get("model_config") is not None and not isinstance(values["model_config"], str):
        values["model_config"] = encode(values["model_config"])
    if exists(tx, session_id):
        _fill(tx, session_id, values)
    else:
        _insert(tx, session_id, source, values)
    if parent_session_id is not None:
        _link_to_parent(tx, session_id, parent_session_id)


def _storable(values: Mapping[str, Any]) -> Row:
    """Return columns without lone surrogates, as names of people and files may have them.

    A folder with such a name is dropped: the changed name would be another folder.
    """
    return {name: _text_of(name, value) for name, value in values.items()}


def _text_of(name: str, value: Any) -> Any:  # noqa: ANN401 -- a value of any column
    if not isinstance(value, str):
        return value
    text = without_surrogates(value)
    return None if name == "cwd" and text != value else text


def _insert(tx: Tx, session_id: str, source: str, values: Row) -> None:
    now = tx.now
    row = {
        "id": session_id,
        "conversation_id": session_id,
        "source": without_surrogates(source),
        "started_at": now,
        "last_active_at": now,
        **values,
    }
    tx.run(
        f"INSERT INTO sessions ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
        *tuple(row.values()),
    )


def _fill(tx: Tx, session_id: str, values: Row) -> None:
    given_values = {name: value for name, value in values.items() if value is not None}
    if given_values:
        changes = ", ".join(f"{name} = coalesce({name}, ?)" for name in given_values)
        tx.run(f"UPDATE sessions SET {changes} WHERE id = ?", *given_values.values(), session_id)


def _link_to_parent(tx: Tx, session_id: str, parent_id: str) -> None:
    """Link a session to its parent, unless it has one; determine the relation."""
    child, parent = fetch(tx, session_id), fetch(tx, parent_id)
    if child["parent_session_id"] is not None or _is_ancestor(tx, session_id, parent_id):
        return
    relation = _relation(child, parent)
    if relation == "continuation" and not _can_continue(tx, session_id, parent_id):
        relation = "branch"  # it stays a conversation of its own
    link(tx, session_id, parent, relation)


def _relation(child: Row, parent: Row) -> str:
    stored = marks(child)
    if "_delegate_from" in stored:
        return "delegate"
    if "_branched_from" in stored:
        return "branch"
    return "continuation" if parent["end_reason"] == "compression" else "branch"


def _can_continue(tx: Tx, session_id: str, parent_id: str) -> bool:
    """Return whether a session may continue its parent: neither has another continuation."""
    return not tx.value(
        "SELECT EXISTS (SELECT 1 FROM sessions WHERE parent_session_id = ?1"
        " AND relation = 'continuation' OR conversation_id = ?2 AND id <> ?2)",
        parent_id,
        session_id,
    )


def _is_ancestor(tx: Tx, session_id: str, other_id: str) -> bool:
    """Return whether the other session is this one or a descendant of it."""
    return bool(
        tx.value(
            """
            WITH RECURSIVE line (id) AS (
                SELECT ?1
                UNION
                SELECT parent_session_id FROM sessions JOIN line USING (id)
                    WHERE parent_session_id IS NOT NULL)
            SELECT ?2 IN (SELECT id FROM line)
            """,
            other_id,
            session_id,
        )
    )


def link(tx: Tx, session_id: str, parent: Row, relation: str) -> None:
    """Link a session to its parent; a continuation takes over the conversation."""
    if relation != "continuation":
        tx.run(
            "UPDATE sessions SET parent_session_id = ?, relation = ? WHERE id = ?",
            parent["id"],
            relation,
            session_id,
        )
        return
    tx.run("UPDATE sessions SET is_tip = 0 WHERE id = ?", parent["id"])
    tx.run(
        "UPDATE sessions SET parent_session_id = ?, relation = 'continuation', conversation_id = ?,"
        " depth = ?, preview = coalesce(?, preview), archived = ? WHERE id = ?",
        parent["id"],
        parent["conversation_id"],
        parent["depth"] + 1,
        parent["preview"],
        parent["archived"],
        session_id,
    )


def exists(tx: Tx, session_id: str) -> bool:
    """Return whether there is a session with exactly this id."""
    found = tx.value("SELECT 1 FROM sessions WHERE id = ?", without_surrogates(session_id))
    return found is not None


@one_statement
def find(tx: Tx, session_id: str) -> Row | None:
    """Return a session, or None."""
    id_ = without_surrogates(session_id)
    return tx.row("SELECT * FROM sessions WHERE id = ?", id_)


def fetch(tx: Tx, session_id: str) -> Row:
    """Return a session; raise SessionNotFoundError when there is none."""
    row = find(tx, session_id)
    if row is None:
        raise SessionNotFoundError(
            f"There is no session {session_id!r}.", fix="See: hermes sessions list"
        )
    return row


def by_prefix(tx: Tx, text: str, scope: Scope | None = None) -> str | None:
    """Return the one visible session whose id is `text` or begins with it, or None."""
    text = without_surrogates(text)
    if is_visible(tx, text, scope):
        return text
    whose, values = condition(scope) if scope is not None else ("1", ())
    end = text + "\U0010ffff"
    found = tx.tuples(
        f"SELECT id FROM sessions WHERE id >= ? AND id < ? AND {whose} LIMIT 2", text, end, *values
    )
    return found[0][0] if text and len(found) == 1 else None


def end(tx: Tx, session_id: str, reason: str) -> bool:
    """End a session; return False when it has ended already."""
    changed = tx.run(
        "UPDATE sessions SET ended_at = ?, end_reason = ? WHERE id = ? AND ended_at IS NULL",
        tx.now,
        reason,
        session_id,
    )
    return changed > 0


def reopen(tx: Tx, session_id: str) -> None:
    """Reopen a session that has ended."""
    tx.run("UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ?", session_id)


def end_for_reset(tx: Tx, session_id: str, reason: str = "session_reset") -> bool:
    """End a session, also one whose end only means that its process died."""
    marks = ", ".join("?" * len(ACCIDENTAL_ENDS))
    changed = tx.run(
        "UPDATE sessions SET ended_at = ?, end_reason = ? WHERE id = ?"
        f" AND (ended_at IS NULL OR end_reason IN ({marks}))",
        tx.now,
        reason,
        session_id,
        *ACCIDENTAL_ENDS,
    )
    return changed > 0


def change(tx: Tx, session_id: str, **values: Any) -> None:  # noqa: ANN401 -- columns
    """Set columns of a session that may change during its life."""
    changes = ", ".join(f"{name} = ?" for name in values)
    stored = _storable(values).values()
    tx.run(f"UPDATE sessions SET {changes} WHERE id = ?", *stored, session_id)


def change_model(tx: Tx, session_id: str, model: str, *, chosen_as: str | None = None) -> None:
    """Set the model of a session; with `chosen_as`, record it as the choice for this conversation."""
    change(tx, session_id, model=model)
    if chosen_as is not None:
        _mark(tx, session_id, CHOSEN_MODEL, chosen_as)


def instruct(tx: Tx, session_id: str, instructions: str) -> None:
    """Set the instructions of a program; drop the system prompt that was built with the earlier ones."""
    row = find(tx, session_id)
    if row is None or instructions_of(row) == instructions:
        return
    _mark(tx, session_id, INSTRUCTIONS, instructions)
    change(tx, session_id, system_prompt=None)


def _mark(tx: Tx, session_id: str, name: str, value: str) -> None:
    tx.run(
        "UPDATE sessions SET model_config = json_set("
        "iif(json_valid(model_config), model_config, '{}'), ?, ?) WHERE id = ?",
        f"$.{name}",
        value,
        session_id,
    )


def instructions_of(row: Mapping[str, Any]) -> str:
    """Return the instructions of a program for a session, or an empty text."""
    return str(marks(row).get(INSTRUCTIONS, ""))


def without_instructions(model_config: str) -> str:
    """Return the `model_config` of a session without what a program wanted of it."""
    noted = marks({"model_config": model_config})
    if INSTRUCTIONS not in noted:
        return model_config
    return encode({name: value for name, value in noted.items() if name != INSTRUCTIONS})


def chosen_model(row: Row) -> str:
    """Return the model that was chosen for a conversation; empty means the model of the settings."""
    return str(marks(row).get(CHOSEN_MODEL, ""))


def marks(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `model_config` of a session as a dictionary; empty when it is not a JSON object."""
    try:
        stored: object = decode(row.get("model_config") or "{}")
    except ValueError:
        return {}
    return cast("dict[str, Any]", stored) if isinstance(stored, dict) else {}


def set_archived(tx: Tx, session_id: str, archived: bool) -> bool:
    """Archive or unarchive the conversation of a session."""
    changed = tx.run(
        "UPDATE sessions SET archived = ? WHERE conversation_id ="
        " (SELECT conversation_id FROM sessions WHERE id = ?)",
        archived,
        session_id,
    )
    return changed > 0


def recount(tx: Tx, session_id: str) -> None:
    """Recompute the counters of a session from its messages."""
    tx.run(
        "UPDATE sessions SET (message_count, tool_call_count) ="
        " (SELECT coalesce(sum(active), 0),"
        "         coalesce(sum(CASE WHEN active THEN json_array_length(tool_calls) END), 0)"
        "  FROM messages WHERE session_id = ?1) WHERE id = ?1",
        session_id,
    )


def with_delegates(tx: Tx, session_ids: Collection[str]) -> list[str]:
    """Return all sessions of the conversations of some sessions, including those of their delegates."""
    found = tx.tuples(
        f"""
        WITH RECURSIVE doomed (id) AS (
            SELECT id FROM sessions WHERE conversation_id IN (
                SELECT conversation_id FROM sessions
                WHERE {tx.among("id")})
            UNION
            SELECT member.id FROM doomed
                JOIN sessions AS child
                    ON child.parent_session_id = doomed.id AND child.relation = 'delegate'
                JOIN sessions AS member ON member.conversation_id = child.conversation_id
        )
        SELECT id FROM doomed
        """,
        tx.many(session_ids),
    )
    return [id_ for (id_,) in found]


def delete(tx: Tx, session_ids: Collection[str]) -> int:
    """Delete the conversations of some sessions; their branches become independent."""
    doomed = tx.many(with_delegates(tx, session_ids))
    tx.run(
        "UPDATE sessions SET parent_session_id = NULL, relation = NULL"
        f" WHERE {tx.among('parent_session_id', '?1')}"
        f" AND NOT {tx.among('id', '?1')}",
        doomed,
    )
    tx.run(f"DELETE FROM routes WHERE {tx.among('session_id')}", doomed)
    tx.run(f"DELETE FROM leases WHERE {tx.among('conversation_id')}", doomed)
    return tx.run(f"DELETE FROM sessions WHERE {tx.among('id')}", doomed)
