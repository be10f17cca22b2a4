"""Convert messages between rows and dictionaries. Secrets are redacted before they are stored."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from hermes_core.secrets import redact
from hermes_core.text import one_line, without_surrogates
from hermes_state.store import Tx
from hermes_state.values import NewMessage, Row

_encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


def encode(value: object) -> str:
    """Return a value as JSON with secrets redacted."""
    try:
        return redact(_encode(value).decode())
    except (
        UnicodeEncodeError
    ):  # lone surrogates somewhere inside: rare, so handled on the slow path
        return redact(_encode(_without_surrogates(value)).decode())


def _without_surrogates(value: Any) -> Any:  # noqa: ANN401 -- whatever JSON is
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, Mapping):
        return {
            _without_surrogates(k): _without_surrogates(v)
            for k, v in cast("Mapping[Any, Any]", value).items()
        }
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in cast("Sequence[Any]", value)]
    return value


def texts(content: Any) -> list[str]:  # noqa: ANN401 -- whatever parts a provider has
    """Return the texts of a content that has parts, in order."""
    found: list[str] = []
    queue = [content]
    while queue:
        part = queue.pop()
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, list):
            queue += reversed(cast("list[Any]", part))
        elif isinstance(part, dict):
            part_fields = cast("dict[str, Any]", part)
            queue += (part_fields.get("content"), part_fields.get("text"))
    return found


_EXTRA_KEYS = (
    "reasoning_content",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
    "api_content",
    "effect_disposition",
)
"""Keys that only some providers send: stored in one JSON column and returned unchanged."""

_KNOWN_KEYS = frozenset(NewMessage._fields) | frozenset(_EXTRA_KEYS) | {"message_id", "id"}

_PREVIEW = 120

_STORED = ("session_id", "parts", *NewMessage._fields)
"""The columns of a message but its id; `NewMessage` is the one list of them."""
_INSERT = (
    f"INSERT INTO messages ({', '.join(_STORED)}) VALUES ({', '.join('?' * len(_STORED))})"
    " RETURNING id"
)
_OWN = ("session_id", "kind", "origin_id", "active", "compacted")
COPIED = ", ".join(name for name in _STORED if name not in _OWN)
"""The columns that a copy of a message shares with its original."""


def insert_message(tx: Tx, session_id: str, message: NewMessage) -> int:
    """Insert one message and return its id."""
    content, parts = message.content, None
    if isinstance(content, str):
        content = redact(content)
    elif content is not None:
        content, parts = None, encode(content)
    stored = message._replace(
        content=content,
        tool_calls=encode(message.tool_calls) if message.tool_calls else None,
        timestamp=tx.now if message.timestamp is None else message.timestamp,
        reasoning=redact(message.reasoning) if message.reasoning else message.reasoning,
        extra=encode(message.extra) if message.extra else None,  # type: ignore[arg-type]
    )
    values = (session_id, parts, *stored)
    try:
        id_: int = tx.value(_INSERT, *values)
    except UnicodeEncodeError:
        whole = (without_surrogates(v) if isinstance(v, str) else v for v in values)
        id_ = tx.value(_INSERT, *whole)
    if parts is not None and message.role == "user" and message.kind != "summary":
        _preview(tx, session_id, parts)
    return id_


def _preview(tx: Tx, session_id: str, parts: str) -> None:
    """Set the preview of a session whose first message has parts; for texts, a trigger does."""
    words = one_line(" ".join(texts(decode(parts))))[:_PREVIEW]
    if words:
        tx.run(
            "UPDATE sessions SET preview = ? WHERE id = ? AND preview IS NULL",
            words,
            without_surrogates(session_id),
        )


def message_from(message: Mapping[str, Any], *, kind: str | None = None) -> NewMessage:
    """Convert a message dictionary; keys without a column go to `extra`."""
    fields = {key: message[key] for key in NewMessage._fields if message.get(key) is not None}
    extra = {
        key: value
        for key, value in message.items()
        if value is not None and (key in _EXTRA_KEYS or key not in _KNOWN_KEYS)
    }
    extra |= fields.pop("extra", {})
    if message.get("message_id") is not None:
        fields.setdefault("platform_message_id", str(message["message_id"]))
    if kind is not None:
        fields["kind"] = kind
    if "timestamp" in fields:
        fields["timestamp"] = seconds(fields["timestamp"])
    return NewMessage(**fields, extra=extra or None)


def seconds(moment: Any) -> float:  # noqa: ANN401 -- a number, or whatever can tell its timestamp
    """Return a point in time as seconds since the epoch."""
    return float(moment.timestamp()) if hasattr(moment, "timestamp") else float(moment)


_COLUMNS = _KNOWN_KEYS - frozenset(_EXTRA_KEYS)


def _without_columns(extra: Row) -> Row:
    """Return the keys of `extra` that have no column; a column takes precedence over them."""
    return {key: value for key, value in extra.items() if key not in _COLUMNS}


_MESSAGE_COLUMNS = (
    "id, role, content, parts, tool_calls, tool_call_id, tool_name, timestamp, finish_reason,"
    " reasoning, platform_message_id, extra, kind, observed, origin_id, answers"
)


def conversation_messages(  # noqa: C901, PLR0912 -- one flat `if` a column: a loop would cost a third more
    tx: Tx, where: str, bindings: tuple[Any, ...]
) -> list[Row]:
    """Return messages as dictionaries for a model: `role`, `content` and every other field that is set.

    `id` is the id of the row, so that a caller can tell which messages are stored.
    """
    messages: list[Row] = []
    query = f"SELECT {_MESSAGE_COLUMNS} FROM messages WHERE {where} ORDER BY id"
    for (
        id_, role, content, parts, calls, call_id, name, at, finish, reasoning, sent_id, extra, kind,
        observed, origin_id, answers,
    ) in tx.tuples(query, *bindings):  # fmt: skip
        message: Row = {"role": role, "content": content, "timestamp": at, "id": id_}
        if parts is not None:
            message["content"] = decode(parts)
        if calls is not None:
            message["tool_calls"] = decode(calls)
        if call_id is not None:
            message["tool_call_id"] = call_id
        if name is not None:
            message["tool_name"] = name
        if finish is not None:
            message["finish_reason"] = finish
        if reasoning is not None:
            message["reasoning"] = reasoning
        if sent_id is not None:
            message["message_id"] = sent_id
        if extra is not None:
            more = decode(extra)
            message.update(more if _COLUMNS.isdisjoint(more) else _without_columns(more))
        if kind != "message":
            message["kind"] = kind
        if observed:
            message["observed"] = True
        if origin_id is not None:
            message["origin_id"] = origin_id
        if answers is not None:
            message["answers"] = answers
        messages.append(message)
    return messages


IS_OUT_OF_ORDER = "(SELECT value FROM main.meta WHERE key = 'out_of_order')"
"""SQL: whether the order of message ids may differ from that of their times."""


def mark_out_of_order(tx: Tx) -> None:
    """Record that an import has made the order of message ids differ from that of their times."""
    tx.run("INSERT INTO meta VALUES ('out_of_order', '1') ON CONFLICT (key) DO NOTHING")
