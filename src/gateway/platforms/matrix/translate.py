"""Matrix events as the gateway sees them; no input or output happens here.

An event is taken as the JSON it is, because people's clients write more kinds than any library names,
and what is missing or of the wrong type must not stop the others.
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
"""The first event of a room, and the one that says that another room takes its place."""

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
_OF_MACHINES = ("m.notice", "m.server_notice", "m.key.")
_WITH_FILE = {"m.image", "m.video", "m.audio", "m.file", "m.sticker"}
_VOICE = ("m.voice", "org.matrix.msc3245.voice")
_QUOTE = re.compile(r"> (?:\* )?<@[^>\n]+>")


class Me(NamedTuple):
    """Ourselves, as others write to us."""

    user_id: str
    display_name: str
    command_prefix: str = "!"


class Place(NamedTuple):
    """The room of an event, and how its sender is called there."""

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
    """A message, and the file that is still to be fetched for it."""

    event: MessageEvent
    media: Media | None = None


def translate(source: Json, place: Place, me: Me) -> Translated | None:
    """The message in an event; None when there is none, or none that is meant to be answered."""
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
    quoted, text = _without_quote(_said(content, kind, place), has_quote=reply_to is not None)
    text = _as_command(_without_address(text, me), me.command_prefix)
    event = MessageEvent(
        text=text,
        message_type=_message_type(kind, content, text),
        source=_source(place, sender, event_id, thread_of(source)),
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
    """How an event stands to another one."""
    return _table(_table(source, "content"), "m.relates_to")


def thread_of(source: Json) -> str | None:
    """The first message of the thread that an event is in."""
    relation = relation_of(source)
    return _text(relation, "event_id") or None if relation.get("rel_type") == "m.thread" else None


def text_of(source: Json) -> str:
    """What an event says, without what it quotes; of a new version, what is said now."""
    content = _table(source, "content")
    if relation_of(source).get("rel_type") == "m.replace":
        content = _table(content, "m.new_content")
    body = _text(content, "body")
    return _without_quote(body, has_quote=bool(_reply_to(relation_of(source))))[1]


def version_of(source: Json) -> str:
    """The event that is the newest version of this one; empty when it was not changed."""
    relations = _table(_table(source, "unsigned"), "m.relations")
    return _text(_table(relations, "m.replace"), "event_id")


def predecessor(source: Json) -> str:
    """The room that a room takes the place of, when this is its first event and says so."""
    about = _table(_table(source, "content"), "predecessor")
    return _text(about, "room_id") if source.get("type") == CREATE else ""


def replacement(source: Json) -> str:
    """The room that takes the place of a room, when this event says so."""
    content = _table(source, "content")
    return _text(content, "replacement_room") if source.get("type") == TOMBSTONE else ""


def since_arrival(sources: Sequence[Json], user_id: str) -> int:
    """Where the events of a room begin to be for us: after we were invited, or came by ourselves."""
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
    # Whatever kinds there will be, the body says the same in words; what machines say is not for us.
    is_for_us = kind and not kind.startswith(_OF_MACHINES) and _text(content, "body")
    return "m.text" if is_for_us else None


def _message_type(kind: str, content: Json, text: str) -> MessageType:
    if kind == "m.audio" and any(name in content for name in _VOICE):
        return MessageType.VOICE
    return MessageType.COMMAND if text.startswith("/") else _KINDS[kind]


def _said(content: Json, kind: str, place: Place) -> str:
    body = _text(content, "body")
    if kind == "m.emote":
        return f"* {place.sender_name} {body}"
    if kind == "m.location":
        return f"{body} ({_text(content, 'geo_uri')})".strip()
    if kind in _WITH_FILE and kind != "m.sticker":
        name = _text(content, "filename")
        return body if name and body != name else ""  # without a name of its own, the body is it
    return body


def _media(content: Json) -> Media | None:
    secret = _table(content, "file")
    url = _text(secret, "url") or _text(content, "url")
    name = _text(content, "filename") or _text(content, "body") or "file"
    return Media(url, name, secret or None) if url.startswith("mxc://") else None


def _reply_to(relation: Json) -> str | None:
    """The message that is replied to; in a thread the last one is named only for old clients."""
    if relation.get("rel_type") == "m.thread" and relation.get("is_falling_back") is True:
        return None
    return _text(_table(relation, "m.in_reply_to"), "event_id") or None


def _without_quote(body: str, *, has_quote: bool) -> tuple[str, str]:
    """What old clients put before a reply, and the reply."""
    if not has_quote or not _QUOTE.match(body):
        return "", body
    lines = body.split("\n")
    end = next((n for n, line in enumerate(lines) if not line.startswith(">")), len(lines))
    quoted = "\n".join(line[1:].removeprefix(" ") for line in lines[:end])
    return re.sub(r"^(\* )?<@[^>\n]+> ?", "", quoted), "\n".join(lines[end:]).lstrip("\n")


def _without_address(text: str, me: Me) -> str:
    """The text without our name before it, as in "Hermes: hello"."""
    names = "|".join(re.escape(name) for name in (me.user_id, me.display_name) if name)
    found = re.match(rf"\s*@?(?:{names})(\s*[:,])?\s+(?=\S)", text, re.IGNORECASE)
    if not found:
        return text
    rest = text[found.end() :]
    is_address = found[1] or me.user_id in found[0]
    is_command = rest.startswith("/") or rest != _as_command(rest, me.command_prefix)
    return rest if is_address or is_command else text


def _as_command(text: str, prefix: str) -> str:
    """`!new` is `/new`: most clients take a slash for one of their own commands."""
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


def _source(place: Place, sender: str, event_id: str, thread_id: str | None) -> SessionSource:
    name = place.sender_name if place.is_direct else place.name
    return SessionSource(
        platform=Platform.MATRIX,
        chat_id=place.room_id,
        chat_name=name or None,
        chat_type="dm" if place.is_direct else "group",
        user_id=sender,
        user_name=place.sender_name or sender,
        thread_id=thread_id,
        chat_topic=place.topic or None,
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
