"""Translates Matrix events to messages of the gateway. No I/O.

An event is read as JSON, because clients write more kinds than any library names, and a field that is
missing or of the wrong type must not stop the others.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from gateway.config import Platform
from gateway.platforms.base import MessageEvent, MessageType
from gateway.source import SessionSource

Json = Mapping[str, Any]

CREATE, TOMBSTONE = "m.room.create", "m.room.tombstone"
"""The first event of a room, and the one that names the room that replaces it."""

_NOTHING: Json = {}
_KINDS = {
    "m.text": MessageType.TEXT,
    "m.emote": MessageType.TEXT,
    "m.location": MessageType.LOCATION,
    "m.image": MessageType.PHOTO,
    "m.video": MessageType.VIDEO,
    "m.audio": MessageType.AUDIO,
    "m.file": MessageType.DOCUMENT,
    "m.sticker": MessageType.STICKER,
}
_FROM_PROGRAMS = ("m.notice", "m.server_notice", "m.key.")
_WITH_FILE = {"m.image", "m.video", "m.audio", "m.file", "m.sticker"}
_VOICE = ("m.voice", "org.matrix.msc3245.voice")
_QUOTE = re.compile(r"> (?:\* )?<@[^>\n]+>")


class Me(NamedTuple):
    """Ourselves, as others write to us."""

    user_id: str
    display_name: str
    command_prefix: str = "!"


class Room(NamedTuple):
    """The room of an event, and the name of its sender there."""

    room_id: str
    name: str = ""
    topic: str = ""
    is_direct: bool = True
    sender_name: str = ""


class Media(NamedTuple):
    """A file on the server that belongs to a message; with `secret` it lies there encrypted."""

    url: str
    name: str
    secret: Json | None = None


class Translated(NamedTuple):
    """A message, and the file to fetch for it."""

    event: MessageEvent
    media: Media | None = None


def translate(source: Json, room: Room, me: Me) -> Translated | None:
    """Translate an event; return None when it has no message for us."""
    sender, event_id = _text(source, "sender"), _text(source, "event_id")
    if not sender or not event_id or sender == me.user_id or "state_key" in source:
        return None
    content, relation = _table(source, "content"), relation_of(source)
    is_edit = relation.get("rel_type") == "m.replace"
    if is_edit:
        content = _table(content, "m.new_content")
    kind = _kind(source, content)
    if kind is None:
        return None
    reply_to = None if is_edit else _reply_to(relation)
    quoted, text = _without_quote(_words(content, kind, room), has_quote=reply_to is not None)
    text = _as_command(_without_address(text, me), me.command_prefix)
    event = MessageEvent(
        text=text,
        message_type=_message_type(kind, content, text),
        source=_source(room, sender, event_id, thread_of(source)),
        raw_message=source,
        message_id=event_id,
        reply_to_message_id=reply_to,
        reply_to_text=quoted or None,
        is_mention=_names(content, me),
        edits=_text(relation, "event_id") or None if is_edit else None,
        timestamp=_time(source),
    )
    return Translated(event, _media(content) if kind in _WITH_FILE else None)


def relation_of(source: Json) -> Json:
    """Return the relation of an event to another one."""
    return _table(_table(source, "content"), "m.relates_to")


def thread_of(source: Json) -> str | None:
    """Return the first message of the thread that an event is in."""
    relation = relation_of(source)
    return _text(relation, "event_id") or None if relation.get("rel_type") == "m.thread" else None


def text_of(source: Json) -> str:
    """Return the text of an event without its quote; of an edit, the new text."""
    content = _table(source, "content")
    if relation_of(source).get("rel_type") == "m.replace":
        content = _table(content, "m.new_content")
    body = _text(content, "body")
    return _without_quote(body, has_quote=bool(_reply_to(relation_of(source))))[1]


def version_of(source: Json) -> str:
    """Return the newest version of an event; empty when it was not edited."""
    relations = _table(_table(source, "unsigned"), "m.relations")
    return _text(_table(relations, "m.replace"), "event_id")


def predecessor(source: Json) -> str:
    """Return the room that a new room replaces, if its first event names one."""
    about = _table(_table(source, "content"), "predecessor")
    return _text(about, "room_id") if source.get("type") == CREATE else ""


def replacement(source: Json) -> str:
    """Return the room that replaces this one, if this event names one."""
    content = _table(source, "content")
    return _text(content, "replacement_room") if source.get("type") == TOMBSTONE else ""


def since_arrival(sources: Sequence[Json], user_id: str) -> int:
    """Return the index of the first event for us: after our invitation or our arrival."""
    for index in range(len(sources) - 1, -1, -1):
        source = sources[index]
        if source.get("type") != "m.room.member" or source.get("state_key") != user_id:
            continue
        before = _text(_table(_table(source, "unsigned"), "prev_content"), "membership")
        membership = _text(_table(source, "content"), "membership")
        if membership == "invite" or (membership == "join" and before not in ("invite", "join")):
            return index + 1
    return 0


def _kind(source: Json, content: Json) -> str | None:
    if source.get("type") == "m.sticker":
        return "m.sticker"
    kind = _text(content, "msgtype") if source.get("type") == "m.room.message" else ""
    if kind in _KINDS:
        return kind
    # The body of an unknown kind describes it in words; messages of programs are not for us.
    is_for_us = kind and not kind.startswith(_FROM_PROGRAMS) and _text(content, "body")
    return "m.text" if is_for_us else None


def _message_type(kind: str, content: Json, text: str) -> MessageType:
    if kind == "m.audio" and any(name in content for name in _VOICE):
        return MessageType.VOICE
    return MessageType.COMMAND if text.startswith("/") else _KINDS[kind]


def _words(content: Json, kind: str, room: Room) -> str:
    body = _text(content, "body")
    if kind == "m.emote":
        return f"* {room.sender_name} {body}"
    if kind == "m.location":
        return f"{body} ({_text(content, 'geo_uri')})".strip()
    if kind in _WITH_FILE and kind != "m.sticker":
        name = _text(content, "filename")
        return body if name and body != name else ""  # otherwise the body is the file name
    return body


def _media(content: Json) -> Media | None:
    secret = _table(content, "file")
    url = _text(secret, "url") or _text(content, "url")
    name = _text(content, "filename") or _text(content, "body") or "file"
    return Media(url, name, secret or None) if url.startswith("mxc://") else None


def _reply_to(relation: Json) -> str | None:
    """Return the message that is replied to; a thread names its last one only for old clients."""
    if relation.get("rel_type") == "m.thread" and relation.get("is_falling_back") is True:
        return None
    return _text(_table(relation, "m.in_reply_to"), "event_id") or None


def _without_quote(body: str, *, has_quote: bool) -> tuple[str, str]:
    """Separate the quote that old clients put before a reply from the reply."""
    if not has_quote or not _QUOTE.match(body):
        return "", body
    lines = body.split("\n")
    end = next((n for n, line in enumerate(lines) if not line.startswith(">")), len(lines))
    quoted = "\n".join(line[1:].removeprefix(" ") for line in lines[:end])
    return re.sub(r"^(\* )?<@[^>\n]+> ?", "", quoted), "\n".join(lines[end:]).lstrip("\n")


def _without_address(text: str, me: Me) -> str:
    """Remove our name before a text, as in "Hermes: hello"."""
    names = "|".join(re.escape(name) for name in (me.user_id, me.display_name) if name)
    found = re.match(rf"\s*@?(?:{names})(\s*[:,])?\s+(?=\S)", text, re.IGNORECASE)
    if not found:
        return text
    rest = text[found.end() :]
    is_address = found[1] or me.user_id in found[0]
    is_command = rest.startswith("/") or rest != _as_command(rest, me.command_prefix)
    return rest if is_address or is_command else text


def _as_command(text: str, prefix: str) -> str:
    """Translate `!new` to `/new`: most clients keep the slash for their own commands."""
    if prefix and text.startswith(prefix) and text[len(prefix) : len(prefix) + 1].isalpha():
        return f"/{text[len(prefix) :]}"
    return text


def _names(content: Json, me: Me) -> bool:
    named: object = _table(content, "m.mentions").get("user_ids")
    if isinstance(named, list) and me.user_id in named:
        return True
    body = _text(content, "body")
    if me.user_id in body or me.user_id in _text(content, "formatted_body"):
        return True
    name = re.escape(me.display_name)
    return bool(name) and bool(re.search(rf"(?<!\w){name}(?!\w)", body, re.IGNORECASE))


def _source(room: Room, sender: str, event_id: str, thread_id: str | None) -> SessionSource:
    name = room.sender_name if room.is_direct else room.name
    return SessionSource(
        platform=Platform.MATRIX,
        chat_id=room.room_id,
        chat_name=name or None,
        chat_type="dm" if room.is_direct else "group",
        user_id=sender,
        user_name=room.sender_name or sender,
        thread_id=thread_id,
        chat_topic=room.topic or None,
        message_id=event_id,
    )


def _time(source: Json) -> datetime:
    stamp = source.get("origin_server_ts")
    try:
        return datetime.fromtimestamp(stamp / 1000, UTC) if isinstance(stamp, int) else _now()
    except (OverflowError, ValueError, OSError):
        return _now()


def _now() -> datetime:
    return datetime.now(UTC)


def _text(table: Json, name: str) -> str:
    value: object = table.get(name)
    return value if isinstance(value, str) else ""


def _table(table: Json, name: str) -> Json:
    value: object = table.get(name)
    return cast("Json", value) if isinstance(value, Mapping) else _NOTHING
