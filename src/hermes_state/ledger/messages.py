"""Messages: added, read, rewound. A stored one never changes; only whether it counts does."""

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

IS_SHOWN = "({table}active = 1 OR {table}compacted = 1)"
"""Whether people and searches are shown a message, also one that the model has a summary for."""
_SHOWN = IS_SHOWN.format(table="")
_ORIGINAL = (
    "(kind IN ('message', 'partial') OR NOT EXISTS (SELECT 1 FROM messages AS other"
    " WHERE other.session_id = messages.session_id AND other.compacted = 1))"
)
"""Not the summary and copies that stand for originals of the same session."""

_FOLDER = "/attachments/"
_FILE = re.compile(rf"{_FOLDER}([\w.-]+)")


def append_all(tx: Tx, session_id: str, batch: Sequence[NewMessage]) -> list[int]:
    """Add several messages that belong together."""
    return [insert_message(tx, session_id, message) for message in batch]


def of_session(
    tx: Tx,
    session_id: str,
    *,
    include_inactive: bool = False,
    limit: int | None = None,
    offset: int = 0,
) -> list[Row]:
    """Rows of a session in the order they were written, JSON columns decoded."""
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
    return _exchange_by_exchange(
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
    return _exchange_by_exchange(whole)


def named_files(tx: Tx, session_ids: Collection[str] | None = None) -> set[str]:
    """The files of the home that messages name, of these sessions or of all."""
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
    return names | {name.rstrip(".") for name in names}  # the last word of a sentence


def _exchange_by_exchange(found: list[Row]) -> list[Row]:
    """What was said while a turn ran goes behind that turn, so that no tool call loses its result."""
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
    """The last messages of a conversation before one of them: the originals, across compactions.

    What it costs depends on the limit, not on the length of the conversation.
    """
    line = lineage.up_to(tx, session_id)
    end = 2**63 - 1 if before_id is None else before_id
    found: list[int] = []
    for position in range(len(line) - 1, -1, -1):
        own = "kind IN ('message', 'partial')" if position else _ORIGINAL
        found += [
            id_
            for (id_,) in tx.tuples(
                f"SELECT id FROM messages WHERE session_id = ? AND {_SHOWN} AND id < ? AND {own}"
                " ORDER BY id DESC LIMIT ?",
                line[position],
                end,
                limit - len(found),
            )
        ]
        if len(found) >= limit:
            break
    marks = ", ".join("?" * len(found))
    return _exchange_by_exchange(conversation_messages(tx, f"id IN ({marks})", tuple(found)))


def around(tx: Tx, session_id: str, message_id: int, window: int = 5) -> Row:
    """A message with its neighbours, and how many there are before and after."""

    def ids(comparison: str, direction: str, limit: int) -> list[int]:
        found = tx.tuples(
            f"SELECT id FROM messages WHERE session_id = ? AND {_SHOWN} AND id {comparison} ?"
            f" ORDER BY id {direction} LIMIT ?",
            session_id,
            message_id,
            limit,
        )
        return [id_ for (id_,) in found]

    def count(comparison: str) -> int:
        return tx.value(
            f"SELECT count(*) FROM messages WHERE session_id = ? AND {_SHOWN} AND id {comparison} ?",
            session_id,
            message_id,
        )

    before, after = ids("<", "DESC", window), ids(">=", "ASC", window + 1)
    if message_id not in after:
        raise SessionNotFoundError(f"Session {session_id!r} has no message {message_id}.")
    shown = conversation_messages(
        tx,
        f"session_id = ? AND {_SHOWN} AND id BETWEEN ? AND ?",
        (session_id, min(before, default=message_id), max(after)),
    )
    return {"window": shown, "messages_before": count("<"), "messages_after": count(">")}


def rewind(tx: Tx, session_id: str, message_id: int) -> Row:
    """Take back a user message and all after it; they stay in the store, out of the conversation.

    Prompts that are still to be answered were said to what comes next, and stay; raises
    ConversationBusyError when this one is.
    """
    found = conversation_messages(
        tx, "session_id = ? AND id = ? AND active = 1", (session_id, message_id)
    )
    if not found or found[0]["role"] != "user":
        raise ValueError(f"message {message_id} is no user message of session {session_id}")
    taken = _from(tx, session_id, message_id)
    _set_active(tx, session_id, taken, is_active=False)
    tx.run("UPDATE sessions SET rewind_count = rewind_count + 1 WHERE id = ?", session_id)
    head = tx.value("SELECT max(id) FROM messages WHERE session_id = ? AND active = 1", session_id)
    return {"rewound_count": len(taken), "target_message": found[0], "new_head_id": head}


def _from(tx: Tx, session_id: str, message_id: int) -> list[int]:
    """A user message and those after it, in the order of the conversation, that are not still open."""
    fields = ("id", "role", "kind", "origin_id", "answers")
    found = tx.tuples(
        f"SELECT {', '.join(fields)} FROM messages WHERE session_id = ? AND active = 1 ORDER BY id",
        session_id,
    )
    known = ({n: v for n, v in zip(fields, row, strict=True) if v is not None} for row in found)
    unanswered = tx.tuples(
        "SELECT user_message_id FROM turns WHERE state IN ('accepted', 'running')"
    )
    open_ = {id_ for (id_,) in unanswered}
    ordered = _exchange_by_exchange(list(known))
    first = next(place for place, one in enumerate(ordered) if one["id"] == message_id)
    if _asked(ordered[first]) in open_:
        raise ConversationBusyError(
            "What was said last has no answer yet.", fix="Wait for the answer, or stop it first."
        )
    return [one["id"] for one in ordered[first:] if _asked(one) not in open_]


def _asked(message: Row) -> int:
    """The user message that a message belongs to, as it was first said."""
    return message.get("answers") or message.get("origin_id") or message["id"]


def _set_active(tx: Tx, session_id: str, ids: Sequence[int], *, is_active: bool) -> None:
    """Have messages count, or not; also where they were said before the conversation was compacted."""
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
    """Bring back what a rewind took, from this message on."""
    found = tx.tuples(
        "SELECT id FROM messages WHERE session_id = ? AND id >= ? AND active = 0",
        session_id,
        since_message_id,
    )
    taken = [id_ for (id_,) in found]
    _set_active(tx, session_id, taken, is_active=True)
    return len(taken)


def recent_user_messages(
    tx: Tx, session_id: str, *, limit: int = 20, include_inactive: bool = False
) -> list[Row]:
    """The last things the user said, newest first, for choosing where to rewind to."""
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
    """How many messages count, in one session or in all."""
    if session_id is None:
        return tx.value("SELECT count(*) FROM messages WHERE active = 1")
    return tx.value("SELECT count(*) FROM messages WHERE session_id = ? AND active = 1", session_id)


def has_platform_id(tx: Tx, session_id: str, platform_message_id: str) -> bool:
    """Whether a message of this platform id is stored in the session."""
    found: Any = tx.value(
        "SELECT 1 FROM messages WHERE session_id = ? AND platform_message_id = ? LIMIT 1",
        session_id,
        platform_message_id,
    )
    return found is not None
