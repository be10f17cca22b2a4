"""Append, read and rewind messages. A stored message never changes, except for whether it is active."""

import re
from collections.abc import Collection, Sequence
from typing import Any

from hermes_core.errors import ConversationBusyError, SessionNotFoundError
from hermes_core.text import one_line, truncate
from hermes_state.ledger import lineage, sessions
from hermes_state.ledger.records import conversation_messages, decode, insert_message, texts
from hermes_state.store import Tx, one_statement
from hermes_state.values import NewMessage, Row

append = insert_message

IS_VISIBLE = "({table}active = 1 OR {table}compacted = 1)"
"""SQL condition: people and searches see the message, even if a summary replaces it for the model."""
_VISIBLE = IS_VISIBLE.format(table="")
_ORIGINAL = (
    "(kind IN ('message', 'partial') OR NOT EXISTS (SELECT 1 FROM messages AS other"
    " WHERE other.session_id = messages.session_id AND other.compacted = 1))"
)
"""SQL condition: the message is not a summary or copy of originals in the same session."""

_FOLDER = "/attachments/"
_FILE = re.compile(rf"{_FOLDER}([\w.-]+)")


def append_all(tx: Tx, session_id: str, batch: Sequence[NewMessage]) -> list[int]:
    """Append several messages in one transaction."""
    return [insert_message(tx, session_id, message) for message in batch]


def of_session(
    tx: Tx,
    session_id: str,
    *,
    include_inactive: bool = False,
    limit: int | None = None,
    offset: int = 0,
) -> list[Row]:
    """Return the rows of a session in the order of writing, with JSON columns decoded."""
    found = tx.rows(
        "SELECT * FROM messages WHERE session_id = ? AND active >= ? ORDER BY id LIMIT ? OFFSET ?",
        session_id,
        not include_inactive,
        -1 if limit is None else limit,
        offset,
    )
    return [_decoded(row) for row in found]


def _decoded(row: Row) -> Row:
    parts, calls, extra = row.pop("parts"), row["tool_calls"], row["extra"]
    if parts is not None:
        row["content"] = decode(parts)
    row["tool_calls"] = decode(calls) if calls else None
    row["extra"] = decode(extra) if extra else None
    for flag in ("observed", "active", "compacted"):
        row[flag] = bool(row[flag])
    return row


@one_statement
def as_conversation(tx: Tx, session_id: str, *, include_inactive: bool = False) -> list[Row]:
    """Return the messages that the model of this session sees."""
    floor = 0 if include_inactive else 1
    return _by_exchange(
        conversation_messages(tx, "session_id = ? AND active >= ?", (session_id, floor))
    )


def originals(tx: Tx, session_id: str, *, include_inactive: bool = False) -> list[Row]:
    """Return the messages from the start of the conversation, without summaries and copies."""
    floor = 0 if include_inactive else 1
    whole: list[Row] = []
    for position, member in enumerate(lineage.up_to(tx, session_id)):
        own = "kind IN ('message', 'partial')" if position else _ORIGINAL
        whole += conversation_messages(
            tx, f"session_id = ? AND (active >= ? OR compacted = 1) AND {own}", (member, floor)
        )
    return _by_exchange(whole)


def named_files(tx: Tx, session_ids: Collection[str] | None = None) -> set[str]:
    """Return the names of attachments in the messages of some sessions, or of all."""
    sql = (
        "SELECT content, parts, tool_calls FROM messages"
        " WHERE (content LIKE ?1 OR parts LIKE ?1 OR tool_calls LIKE ?1)"
    )
    bindings: tuple[Any, ...] = (f"%{_FOLDER}%",)
    if session_ids is not None:
        sql += f" AND {tx.among('session_id', '?2')}"
        bindings = (*bindings, tx.many(session_ids))
    found = tx.tuples(sql, *bindings)
    names = {name for row in found for text in row if text for name in _FILE.findall(text)}
    return names | {name.rstrip(".") for name in names}  # at the end of a sentence


def _by_exchange(found: list[Row]) -> list[Row]:
    """Move messages that arrived during a turn behind it, so that results follow their tool calls."""
    latest = 0
    ranks: list[int] = []
    in_order = True
    for message in found:
        if "answers" in message:
            rank = message["answers"]
        elif message["role"] == "user" and message.get("kind") != "summary":
            rank = message.get("origin_id", message["id"])
        else:
            rank = latest
        in_order = in_order and rank >= latest
        latest = max(rank, latest)
        ranks.append(rank)
    if in_order:
        return found
    order = sorted(range(len(found)), key=ranks.__getitem__)
    return [found[position] for position in order]


def page(tx: Tx, session_id: str, before_id: int | None = None, limit: int = 50) -> list[Row]:
    """Return the last original messages before one of them, across compactions.

    The cost depends on the limit, not on the length of the conversation.
    """
    line = lineage.up_to(tx, session_id)
    end = 2**63 - 1 if before_id is None else before_id
    found: list[int] = []
    for position in range(len(line) - 1, -1, -1):
        own = "kind IN ('message', 'partial')" if position else _ORIGINAL
        found += [
            id_
            for (id_,) in tx.tuples(
                f"SELECT id FROM messages WHERE session_id = ? AND {_VISIBLE} AND id < ? AND {own}"
                " ORDER BY id DESC LIMIT ?",
                line[position],
                end,
                limit - len(found),
            )
        ]
        if len(found) >= limit:
            break
    marks = ", ".join("?" * len(found))
    return _by_exchange(conversation_messages(tx, f"id IN ({marks})", tuple(found)))


def around(tx: Tx, session_id: str, message_id: int, window: int = 5) -> Row:
    """Return a message with its neighbors and the number of messages before and after."""

    def ids(comparison: str, direction: str, limit: int) -> list[int]:
        found = tx.tuples(
            f"SELECT id FROM messages WHERE session_id = ? AND {_VISIBLE} AND id {comparison} ?"
            f" ORDER BY id {direction} LIMIT ?",
            session_id,
            message_id,
            limit,
        )
        return [id_ for (id_,) in found]

    def count(comparison: str) -> int:
        return tx.value(
            f"SELECT count(*) FROM messages WHERE session_id = ? AND {_VISIBLE} AND id {comparison} ?",
            session_id,
            message_id,
        )

    before, after = ids("<", "DESC", window), ids(">=", "ASC", window + 1)
    if message_id not in after:
        raise SessionNotFoundError(f"Session {session_id!r} has no message {message_id}.")
    window_messages = conversation_messages(
        tx,
        f"session_id = ? AND {_VISIBLE} AND id BETWEEN ? AND ?",
        (session_id, min(before, default=message_id), max(after)),
    )
    return {"window": window_messages, "messages_before": count("<"), "messages_after": count(">")}


def rewind(tx: Tx, session_id: str, message_id: int) -> Row:
    """Deactivate a user message and all after it; they stay in the store, but leave the conversation.

    Queued prompts belong to what comes next and stay active. Raises ConversationBusyError when this
    message itself has no answer yet.
    """
    found = conversation_messages(
        tx, "session_id = ? AND id = ? AND active = 1", (session_id, message_id)
    )
    if not found or found[0]["role"] != "user":
        raise ValueError(f"message {message_id} is not a user message of session {session_id}")
    ids = _from(tx, session_id, message_id)
    _set_active(tx, session_id, ids, is_active=False)
    tx.run("UPDATE sessions SET rewind_count = rewind_count + 1 WHERE id = ?", session_id)
    head = tx.value("SELECT max(id) FROM messages WHERE session_id = ? AND active = 1", session_id)
    return {"rewound_count": len(ids), "target_message": found[0], "new_head_id": head}


def _from(tx: Tx, session_id: str, message_id: int) -> list[int]:
    """Return a user message and those after it, in conversation order, except those of open turns."""
    fields = ("id", "role", "kind", "origin_id", "answers")
    found = tx.tuples(
        f"SELECT {', '.join(fields)} FROM messages WHERE session_id = ? AND active = 1 ORDER BY id",
        session_id,
    )
    present = ({n: v for n, v in zip(fields, row, strict=True) if v is not None} for row in found)
    unanswered = tx.tuples(
        "SELECT user_message_id FROM turns WHERE state IN ('accepted', 'running')"
    )
    open_ = {id_ for (id_,) in unanswered}
    ordered = _by_exchange(list(present))
    first = next(place for place, message in enumerate(ordered) if message["id"] == message_id)
    if _exchange_of(ordered[first]) in open_:
        raise ConversationBusyError(
            "The last message has no answer yet.", fix="Wait for the answer, or interrupt it first."
        )
    return [message["id"] for message in ordered[first:] if _exchange_of(message) not in open_]


def _exchange_of(message: Row) -> int:
    """Return the original user message that a message belongs to."""
    return message.get("answers") or message.get("origin_id") or message["id"]


def _set_active(tx: Tx, session_id: str, ids: Sequence[int], *, is_active: bool) -> None:
    """Activate or deactivate messages, including their originals and copies in other sessions."""
    changed = tx.tuples(
        "UPDATE messages SET active = ? WHERE active = ? AND session_id IN (SELECT id FROM sessions"
        " WHERE conversation_id = (SELECT conversation_id FROM sessions WHERE id = ?))"
        " AND coalesce(origin_id, id) IN (SELECT coalesce(origin_id, id) FROM messages"
        f" WHERE {tx.among('id')}) RETURNING session_id",
        is_active,
        not is_active,
        session_id,
        tx.many(ids),
    )
    for (member,) in set(changed):
        sessions.recount(tx, member)


def restore(tx: Tx, session_id: str, since_message_id: int) -> int:
    """Reactivate the messages that a rewind deactivated, from this one on."""
    found = tx.tuples(
        "SELECT id FROM messages WHERE session_id = ? AND id >= ? AND active = 0",
        session_id,
        since_message_id,
    )
    ids = [id_ for (id_,) in found]
    _set_active(tx, session_id, ids, is_active=True)
    return len(ids)


def recent_user_messages(
    tx: Tx, session_id: str, *, limit: int = 20, include_inactive: bool = False
) -> list[Row]:
    """Return previews of the last user messages, newest first, to choose where to rewind to."""
    found = tx.tuples(
        "SELECT id, timestamp, content, parts FROM messages WHERE session_id = ?"
        " AND role = 'user' AND kind <> 'summary' AND active >= ? ORDER BY id DESC LIMIT ?",
        session_id,
        not include_inactive,
        limit,
    )
    return [
        {"id": id_, "timestamp": at, "preview": truncate(one_line(_words(content, parts)), 80)}
        for id_, at, content, parts in found
    ]


def _words(content: str | None, parts: str | None) -> str:
    return content or (" ".join(texts(decode(parts))) if parts else "")


def count(tx: Tx, session_id: str | None = None) -> int:
    """Count the active messages of one session or of all."""
    if session_id is None:
        return tx.value("SELECT count(*) FROM messages WHERE active = 1")
    return tx.value("SELECT count(*) FROM messages WHERE session_id = ? AND active = 1", session_id)


def has_platform_id(tx: Tx, session_id: str, platform_message_id: str) -> bool:
    """Return whether the session has a message with this platform id."""
    found: Any = tx.value(
        "SELECT 1 FROM messages WHERE session_id = ? AND platform_message_id = ? LIMIT 1",
        session_id,
        platform_message_id,
    )
    return found is not None
