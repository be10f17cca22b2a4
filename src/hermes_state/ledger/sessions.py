"""The rows of conversations: made, read, ended, changed, deleted."""

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

_FILLABLE = (
    "model",
    "model_config",
    "system_prompt",
    "session_key",
    "chat_id",
    "chat_type",
    "thread_id",
    "user_id",
    "display_name",
    "cwd",
    "profile_name",
)
"""Columns that a later `create` of the same session may fill when they are still empty."""

_PLACE = ("session_key", "chat_id", "chat_type", "thread_id", "user_id", "display_name")
"""Columns that say whose a session is, and where it is had."""

CHOSEN_MODEL = "chosen_model"
"""The field of `model_config` with the model that was chosen for this conversation alone."""
INSTRUCTIONS = "instructions"
"""The field of `model_config` with what a program wants of this conversation."""

ACCIDENTAL_ENDS = ("agent_close", "ws_orphan_reap")
"""Reasons that say a process went away, not that anybody ended the conversation."""


def new_id() -> str:
    """A session id that sorts by time: date, time, six random hex digits."""
    moment = datetime.fromtimestamp(clock.now(), UTC)
    return f"{moment:%Y%m%d_%H%M%S}_{os.urandom(3).hex()}"


def move(tx: Tx, session_id: str, place: Mapping[str, Any]) -> None:
    """Have a session belong to another place and person; what is not given, it has not."""
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
    """Make a session, or fill the gaps of the one that has this id; nothing is overwritten."""
    if unknown := set(fields) - set(_FILLABLE):
        raise TypeError(f"a session has no {', '.join(sorted(unknown))}")
    values, session_id = _storable(fields), without_surrogates(session_id)
    if values.get("model_config") is not None and not isinstance(values["model_config"], str):
        values["model_config"] = encode(values["model_config"])
    if exists(tx, session_id):
        _fill(tx, session_id, values)
    else:
        _insert(tx, session_id, source, values)
    if parent_session_id is not None:
        _adopt(tx, session_id, parent_session_id)


def _storable(values: Mapping[str, Any]) -> Row:
    """Columns as the database takes them: names of people and files may have bytes that are no text.

    A folder of such a name is not kept, since under another name it would be another folder.
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
    given = {name: value for name, value in values.items() if value is not None}
    if given:
        changes = ", ".join(f"{name} = coalesce({name}, ?)" for name in given)
        tx.run(f"UPDATE sessions SET {changes} WHERE id = ?", *given.values(), session_id)


def _adopt(tx: Tx, session_id: str, parent_id: str) -> None:
    """Hang a session under its parent, unless it has one; what it is to the parent follows."""
    child, parent = fetch(tx, session_id), fetch(tx, parent_id)
    if child["parent_session_id"] is not None or _is_above(tx, session_id, parent_id):
        return
    relation = _relation(child, parent)
    if relation == "continuation" and not _can_continue(tx, session_id, parent_id):
        relation = "branch"  # it keeps its own identity: nothing is hidden behind another
    link(tx, session_id, parent, relation)


def _relation(child: Row, parent: Row) -> str:
    noted = marks(child)
    if "_delegate_from" in noted:
        return "delegate"
    if "_branched_from" in noted:
        return "branch"
    return "continuation" if parent["end_reason"] == "compression" else "branch"


def _can_continue(tx: Tx, session_id: str, parent_id: str) -> bool:
    """A parent has one heir, and an heir has no conversation of its own that it would leave behind."""
    return not tx.value(
        "SELECT EXISTS (SELECT 1 FROM sessions WHERE parent_session_id = ?1"
        " AND relation = 'continuation' OR conversation_id = ?2 AND id <> ?2)",
        parent_id,
        session_id,
    )


def _is_above(tx: Tx, session_id: str, other_id: str) -> bool:
    """Whether the other one is this session, or hangs under it."""
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
    """Record what a session is to its parent; a continuation takes over the conversation."""
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
    """Whether there is a session with exactly this id."""
    known = tx.value("SELECT 1 FROM sessions WHERE id = ?", without_surrogates(session_id))
    return known is not None


@one_statement
def find(tx: Tx, session_id: str) -> Row | None:
    """All columns of a session, or None."""
    id_ = without_surrogates(session_id)
    return tx.row("SELECT * FROM sessions WHERE id = ?", id_)


def fetch(tx: Tx, session_id: str) -> Row:
    """All columns of a session; raises SessionNotFoundError."""
    row = find(tx, session_id)
    if row is None:
        raise SessionNotFoundError(
            f"There is no session {session_id!r}.", fix="See: hermes sessions list"
        )
    return row


def by_prefix(tx: Tx, text: str, scope: Scope | None = None) -> str | None:
    """The one session whose id is `text` or begins with it; with a scope, of those that may be seen."""
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
    """End a session; the first end wins."""
    changed = tx.run(
        "UPDATE sessions SET ended_at = ?, end_reason = ? WHERE id = ? AND ended_at IS NULL",
        tx.now,
        reason,
        session_id,
    )
    return changed > 0


def reopen(tx: Tx, session_id: str) -> None:
    """Take an end back."""
    tx.run("UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ?", session_id)


def end_for_reset(tx: Tx, session_id: str, reason: str = "session_reset") -> bool:
    """End a session for good, also one that only looks ended because its process went away."""
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
    given = _storable(values).values()
    tx.run(f"UPDATE sessions SET {changes} WHERE id = ?", *given, session_id)


def change_model(tx: Tx, session_id: str, model: str, *, chosen_as: str | None = None) -> None:
    """Set the model of a session; with a name, as one that was chosen for this conversation."""
    change(tx, session_id, model=model)
    if chosen_as is not None:
        _mark(tx, session_id, CHOSEN_MODEL, chosen_as)


def instruct(tx: Tx, session_id: str, instructions: str) -> None:
    """Set what a program wants of a session; the prompt with what it wanted before is built anew."""
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
    """What a program wants of a session; empty: nothing."""
    return str(marks(row).get(INSTRUCTIONS, ""))


def without_instructions(model_config: str) -> str:
    """Return the `model_config` of a session without what a program wanted of it."""
    noted = marks({"model_config": model_config})
    if INSTRUCTIONS not in noted:
        return model_config
    return encode({name: value for name, value in noted.items() if name != INSTRUCTIONS})


def chosen_model(row: Row) -> str:
    """The name of the model that was chosen for a conversation; empty: whichever the settings give."""
    return str(marks(row).get(CHOSEN_MODEL, ""))


def marks(row: Mapping[str, Any]) -> dict[str, Any]:
    """What is noted of a session beside its columns; nothing when somebody else wrote it otherwise."""
    try:
        noted: object = decode(row.get("model_config") or "{}")
    except ValueError:
        return {}
    return cast("dict[str, Any]", noted) if isinstance(noted, dict) else {}


def set_archived(tx: Tx, session_id: str, archived: bool) -> bool:
    """Archive or bring back the whole conversation of a session."""
    changed = tx.run(
        "UPDATE sessions SET archived = ? WHERE conversation_id ="
        " (SELECT conversation_id FROM sessions WHERE id = ?)",
        archived,
        session_id,
    )
    return changed > 0


def recount(tx: Tx, session_id: str) -> None:
    """Set the counters of a session to what its messages say."""
    tx.run(
        "UPDATE sessions SET (message_count, tool_call_count) ="
        " (SELECT coalesce(sum(active), 0),"
        "         coalesce(sum(CASE WHEN active THEN json_array_length(tool_calls) END), 0)"
        "  FROM messages WHERE session_id = ?1) WHERE id = ?1",
        session_id,
    )


def with_delegates(tx: Tx, session_ids: Collection[str]) -> list[str]:
    """Every session of the conversations of these, and of the delegates they sent out."""
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
    """Delete the whole conversations of these sessions; branches of them live on as their own."""
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
