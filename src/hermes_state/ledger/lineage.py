"""Link sessions: rotation and its undo, branches, and the way to the tip."""

from collections.abc import Mapping, Sequence
from typing import Any

from hermes_core.errors import NothingSaidError, StoreError
from hermes_state.ledger import leases, sessions, taint, titles
from hermes_state.ledger.records import COPIED, insert_message, message_from
from hermes_state.store import Tx
from hermes_state.values import Carried, Lease, Row


def rotate(
    tx: Tx,
    session_id: str,
    carried: Sequence[Carried],
    *,
    child_id: str | None = None,
    system_prompt: str | None = None,
    since: int | None = None,
    lease: Lease | None = None,
) -> str:
    """Move a conversation to a new session in one transaction.

    The parent ends with the reason `compression`. The child takes over title, routes and open turns, and
    begins with the `carried` messages. The lease belongs to the conversation and does not change. With
    `since`, later messages than that one are copied too: they may have arrived while the caller worked.
    """
    leases.check(tx, lease)
    child_id = child_id or sessions.new_id()
    parent = sessions.fetch(tx, session_id)
    if not parent["is_tip"]:
        raise StoreError(
            f"Session {session_id} has already been compacted.",
            fix=f"The conversation continues in {tip(tx, session_id)}.",
        )
    tx.run(
        "UPDATE sessions SET ended_at = coalesce(ended_at, ?), end_reason = 'compression',"
        " title = NULL WHERE id = ?",
        tx.now,
        session_id,
    )
    _insert_like(tx, child_id, parent)
    sessions.link(tx, child_id, parent, "continuation")
    tx.run(
        "UPDATE sessions SET title = ?, system_prompt = coalesce(?, system_prompt) WHERE id = ?",
        parent["title"],
        system_prompt,
        child_id,
    )
    for item in carried:
        _carry(tx, child_id, item)
    if since is not None:
        for id_ in _messages_after(tx, session_id, since):
            _copy(tx, child_id, id_)
    _redirect(tx, session_id, child_id)
    return child_id


def _messages_after(tx: Tx, session_id: str, message_id: int) -> list[int]:
    found = tx.tuples(
        "SELECT id FROM messages WHERE session_id = ? AND active = 1 AND id > ? ORDER BY id",
        session_id,
        message_id,
    )
    return [id_ for (id_,) in found]


def undo_rotation(tx: Tx, session_id: str, *, lease: Lease | None = None) -> str:
    """Undo the last rotation; move the messages since then to the parent."""
    leases.check(tx, lease)
    child = sessions.fetch(tx, tip(tx, session_id))
    if child["relation"] != "continuation":
        raise StoreError(f"The conversation of {session_id} has not been compacted.")
    parent_id = child["parent_session_id"]
    tx.run(
        "UPDATE messages SET session_id = ? WHERE session_id = ? AND kind IN ('message', 'partial')",
        parent_id,
        child["id"],
    )
    tx.run(
        "UPDATE sessions SET relation = 'undone', is_tip = 0, title = NULL,"
        " ended_at = coalesce(ended_at, ?), end_reason = 'compression_undone' WHERE id = ?",
        tx.now,
        child["id"],
    )
    tx.run(
        "UPDATE sessions SET is_tip = 1, title = ?, ended_at = NULL, end_reason = NULL,"
        " last_active_at = max(last_active_at, ?) WHERE id = ?",
        child["title"],
        child["last_active_at"],
        parent_id,
    )
    _keep_choices(tx, child, sessions.fetch(tx, parent_id))
    if child["ended_at"] is not None:
        sessions.end(tx, parent_id, child["end_reason"])
    _redirect(tx, child["id"], parent_id)
    tx.run(
        "UPDATE turns SET session_id = ? WHERE session_id = ?", parent_id, child["id"]
    )  # also ended turns: their messages are in the parent now
    sessions.recount(tx, parent_id)
    sessions.recount(tx, child["id"])
    return parent_id


def _keep_choices(tx: Tx, child: Row, parent: Row) -> None:
    """Copy the model, folder and instructions that were chosen since a rotation to the parent."""
    copied = {name: child[name] for name in ("model", "model_config", "cwd")}
    if sessions.instructions_of(child) != sessions.instructions_of(parent):
        copied["system_prompt"] = child["system_prompt"]
    sessions.change(tx, parent["id"], **copied)


def branch(
    tx: Tx,
    session_id: str,
    *,
    child_id: str | None = None,
    until_message_id: int | None = None,
    title: str | None = None,
    place: Mapping[str, Any] | None = None,
) -> str:
    """Start a new conversation from a copy of the finished turns of this one, up to a message.

    It belongs to the same person and chat, unless another `place` is given. Running and queued turns are
    not copied: they are answered here, and a copy would be answered a second time. Without a title, the
    branch gets the next numbered title after this one's.
    """
    child_id = child_id or sessions.new_id()
    parent = sessions.fetch(tx, session_id)
    copied = _finished_messages(tx, session_id, until_message_id)
    if not copied:
        raise NothingSaidError("There are no finished messages to branch from.")
    _insert_like(tx, child_id, parent)
    if place is not None:
        sessions.move(tx, child_id, place)
    sessions.link(tx, child_id, parent, "branch")
    for id_ in copied:
        _copy(tx, child_id, id_)
    taint.copy(tx, session_id, child_id)
    new_title, inherited = titles.clean(title), titles.title_of(tx, session_id)
    if new_title is None and inherited is not None:
        new_title = titles.next_in_lineage(tx, inherited, child_id)
    if new_title is not None:
        titles.set_title(tx, child_id, new_title)
    return child_id


def _finished_messages(tx: Tx, session_id: str, until_message_id: int | None) -> list[int]:
    """Return the messages of a session up to one of them, without those of open turns."""
    found = tx.tuples(
        "SELECT id FROM messages WHERE session_id = ? AND active = 1 AND id <= ?"
        " AND coalesce(answers, origin_id, id) NOT IN"
        " (SELECT user_message_id FROM turns WHERE state IN ('accepted', 'running')) ORDER BY id",
        session_id,
        until_message_id if until_message_id is not None else 2**63 - 1,
    )
    return [id_ for (id_,) in found]


def tip(tx: Tx, session_id: str) -> str:
    """Return the newest session of the conversation of a session."""
    found = tx.value(
        "SELECT id FROM sessions WHERE is_tip = 1 AND conversation_id ="
        " (SELECT conversation_id FROM sessions WHERE id = ?)",
        session_id,
    )
    return found if found is not None else session_id


def root(tx: Tx, session_id: str) -> str:
    """Return the first session of the conversation of a session."""
    found = tx.value("SELECT conversation_id FROM sessions WHERE id = ?", session_id)
    return found if found is not None else session_id


def members(tx: Tx, session_id: str) -> list[str]:
    """Return the sessions of a conversation, oldest first, without undone ones."""
    found = tx.tuples(
        "SELECT id FROM sessions WHERE relation IS DISTINCT FROM 'undone' AND conversation_id ="
        " (SELECT conversation_id FROM sessions WHERE id = ?) ORDER BY depth",
        session_id,
    )
    return [id_ for (id_,) in found]


def up_to(tx: Tx, session_id: str) -> list[str]:
    """Return the sessions from the start of the conversation to this one."""
    found = tx.tuples(
        """
        WITH RECURSIVE line (id, parent, relation) AS (
            SELECT id, parent_session_id, relation FROM sessions WHERE id = ?
            UNION ALL
            SELECT s.id, s.parent_session_id, s.relation FROM line
                JOIN sessions AS s ON s.id = line.parent
                WHERE line.relation IN ('continuation', 'undone'))
        SELECT id FROM line
        """,
        session_id,
    )
    return [id_ for (id_,) in reversed(found)]


def tree(tx: Tx, session_id: str) -> list[Row]:
    """Return every session that is linked with this one through branches, delegates or rotations."""
    top = tx.value(
        """
        WITH RECURSIVE line (id, parent) AS (
            SELECT id, parent_session_id FROM sessions WHERE id = ?
            UNION ALL
            SELECT s.id, s.parent_session_id FROM line JOIN sessions AS s ON s.id = line.parent)
        SELECT id FROM line WHERE parent IS NULL
        """,
        session_id,
    )
    return tx.rows(
        """
            WITH RECURSIVE below (id, level) AS (
                SELECT ?, 0
                UNION ALL
                SELECT s.id, level + 1 FROM below
                    JOIN sessions AS s ON s.parent_session_id = below.id
                ORDER BY 2 DESC)
            SELECT s.id, s.parent_session_id, s.relation, s.is_tip, s.title, s.preview, s.started_at,
                   s.ended_at, s.end_reason, s.message_count, level
            FROM below JOIN sessions AS s ON s.id = below.id
            """,
        top,
    )


def _insert_like(tx: Tx, child_id: str, parent: Row) -> None:
    """Insert a session that belongs to the same person and chat as its parent."""
    inherited = ", ".join(("source", *sessions.FILLABLE))
    now = tx.now
    tx.run(
        f"INSERT INTO sessions (id, conversation_id, started_at, last_active_at, {inherited})"
        f" SELECT ?1, ?1, ?2, max(?2, last_active_at), {inherited} FROM sessions WHERE id = ?3",
        child_id,
        now,
        parent["id"],
    )


def _carry(tx: Tx, session_id: str, item: Carried) -> None:
    if isinstance(item, int):
        _copy(tx, session_id, item)
    else:
        kind = "copy" if item.get("origin_id") is not None else "summary"
        insert_message(tx, session_id, message_from(item, kind=kind))


def _copy(tx: Tx, session_id: str, message_id: int) -> None:
    changed = tx.run(
        f"INSERT INTO messages (session_id, kind, origin_id, {COPIED})"
        " SELECT ?, CASE kind WHEN 'summary' THEN 'summary' ELSE 'copy' END,"
        f" coalesce(origin_id, id), {COPIED} FROM messages WHERE id = ?",
        session_id,
        message_id,
    )
    if changed == 0:
        raise StoreError(f"There is no message {message_id} to carry over.")


def _redirect(tx: Tx, old_id: str, new_id: str) -> None:
    """Point routes and open turns to the session in which the conversation continues."""
    tx.run(
        "UPDATE routes SET session_id = ?, updated_at = ? WHERE session_id = ?",
        new_id,
        tx.now,
        old_id,
    )
    tx.run(
        "UPDATE turns SET session_id = ? WHERE session_id = ? AND state IN ('accepted', 'running')",
        new_id,
        old_id,
    )
