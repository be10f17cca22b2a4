"""Translate the updates of Telegram to messages of the gateway. No I/O."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from telegram import (
    Chat,
    Message,
    MessageEntity,
    MessageOriginChannel,
    MessageOriginChat,
    MessageOriginHiddenUser,
    MessageOriginUser,
    Update,
    User,
)
from telegram.constants import MessageType as MessageKind

from gateway.config import Platform
from gateway.platforms.base import MessageEvent, MessageType
from gateway.platforms.telegram.bursts import MAX_PART
from gateway.platforms.telegram.keyboard import pressed
from gateway.platforms.telegram.markdown import utf16
from gateway.platforms.telegram.rich import UNREADABLE
from gateway.platforms.telegram.wire import table
from gateway.source import SessionSource
from hermes_core.text import one_line

_CHAT_TYPES = {"private": "dm", "group": "group", "supergroup": "group", "channel": "channel"}
_BRACKETS = str.maketrans("[]", "()")
"""A name must not end a note of ours early."""
_WITHOUT_TEXT = ("invoice", "successful_payment", "passport_data")
_UNATTACHED = ("story", "checklist", "giveaway", "giveaway_winners")
"""Fields that people send and the library does not count as an attachment."""


class FileRef(NamedTuple):
    """A file at Telegram."""

    id: str
    name: str
    size: int | None


class Received(NamedTuple):
    """A message, and the files to fetch for it."""

    event: MessageEvent
    files: tuple[FileRef, ...] = ()


def translate(update: Update, me: User) -> Received | None:
    """Translate an update; return None when it has no message for us."""
    if update.callback_query is not None:
        return _pressed(update, me)
    message = update.effective_message
    if message is None or (message.from_user is not None and message.from_user.id == me.id):
        return None
    is_edit = update.edited_message is not None or update.edited_channel_post is not None
    if _is_service(message) or (is_edit and message.location is not None):
        return None  # a live location is an edit every few seconds
    if message.chat.type != Chat.PRIVATE and _is_for_another_bot(message, me):
        return None
    return _received(update, message, me, is_edit=is_edit)


def moved(raw: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the old and the new id of a chat that moved; None when the update is about none.

    Telegram reports it twice, in the old chat and in the new one. The library does not read this, so
    a chat moves even when the library cannot read the update.
    """
    message = table(raw.get("message"))
    here = table(message.get("chat")).get("id")
    if (new := message.get("migrate_to_chat_id")) is not None:
        return str(here), str(new)
    if (old := message.get("migrate_from_chat_id")) is not None:
        return str(old), str(here)
    return None


def join_album(parts: Sequence[Received]) -> Received:
    """Join the pictures of an album, which Telegram delivers one by one, to one message.

    Its id contains the last one: with a late picture the album does not count as a repeat.
    """
    if len(parts) == 1:
        return parts[0]
    texts = dict.fromkeys(part.event.text for part in parts if part.event.text)
    return _joined(parts, "\n".join(texts))


def join_texts(parts: Sequence[Received]) -> Received:
    """Join the parts of a text that its sender's client cut."""
    if len(parts) == 1:
        return parts[0]
    texts = [part.event.text for part in parts]
    if parts[0].event.is_forwarded:  # each part names its author
        note = texts[0].partition("\n")[0]
        texts = [texts[0], *(text.removeprefix(note).lstrip("\n") for text in texts[1:])]
    # A part of the full size may end within a word; spaces at the place of a cut are lost.
    pieces = [text if utf16(text) >= MAX_PART else f"{text}\n" for text in texts[:-1]] + texts[-1:]
    joined = _joined(parts, "".join(pieces))
    joined.event.part_sizes = [len(piece) for piece in pieces]
    return joined


def _joined(parts: Sequence[Received], text: str) -> Received:
    events = [part.event for part in parts]
    event = replace(
        events[0],
        text=text,
        message_id=f"{events[0].message_id}-{events[-1].message_id}",
        parts=[event.message_id or "" for event in events],
        is_mention=any(event.is_mention for event in events),
    )
    return Received(event, tuple(file for part in parts for file in part.files))


def _received(update: Update, message: Message, me: User, *, is_edit: bool) -> Received:
    kind, file = _media(message)
    forwarded = _forwarded(message)
    text = f"{forwarded}\n{_text(message, me)}".strip()
    if kind is MessageType.TEXT and text.startswith("/"):
        kind = MessageType.COMMAND
    replied, replied_text = _replied(message)
    replied_file = _media(replied)[1] if replied else None
    original = str(message.message_id)
    is_reply_to_us = bool(replied and replied.from_user and replied.from_user.id == me.id)
    is_named = is_reply_to_us or _names_me(message, me)
    is_command = _command(message) is not None and not forwarded
    event = MessageEvent(
        text=text,
        message_type=kind,
        source=_source(message),
        raw_message=message,
        # The id of the update tells two edits within a second apart, and is the same in a repeat.
        message_id=f"{original}:e{update.update_id}" if is_edit else original,
        platform_update_id=update.update_id,
        reply_to_message_id=str(replied.message_id) if replied else None,
        reply_to_text=replied_text,
        reply_to_is_own_message=is_reply_to_us,
        quotes_part=message.quote is not None,
        is_forwarded=bool(forwarded),
        is_mention=is_named or is_command,
        names_nobody=is_command and not is_named,
        edits=original if is_edit else None,
        timestamp=message.date.astimezone().replace(tzinfo=None),
    )
    return Received(event, tuple(found for found in (replied_file, file) if found))


def _pressed(update: Update, me: User) -> Received | None:
    query = update.callback_query
    answer = pressed(query) if query else None
    if query is None or answer is None or query.message is None:
        return None
    del me
    message = query.message
    chat = message.chat
    source = SessionSource(
        platform=Platform.TELEGRAM,
        chat_id=str(chat.id),
        chat_name=_name(chat),
        chat_type=_CHAT_TYPES.get(chat.type, "group"),
        user_id=str(query.from_user.id),
        user_name=query.from_user.full_name,
        thread_id=_thread(message) if isinstance(message, Message) else None,
        is_bot=query.from_user.is_bot,
    )
    event = MessageEvent(
        text=answer[1],
        source=source,
        raw_message=query,
        message_id=f"cb:{query.id}",
        platform_update_id=update.update_id,
        is_mention=True,
        answers=answer[0],
    )
    return Received(event)


def _source(message: Message) -> SessionSource:
    """Return the chat and the sender: for posts in the name of a chat, that chat.

    The `from` of such posts is an account that all anonymous admins of Telegram share.
    """
    chat, speaker = message.chat, message.sender_chat
    user = None if speaker else message.from_user
    topic = message.reply_to_message.forum_topic_created if message.reply_to_message else None
    return SessionSource(
        platform=Platform.TELEGRAM,
        chat_id=str(chat.id),
        chat_name=_name(chat),
        chat_type=_CHAT_TYPES.get(chat.type, "group"),
        user_id=str(speaker.id) if speaker else str(user.id) if user else None,
        user_name=_name(speaker) if speaker else user.full_name if user else None,
        thread_id=_thread(message),
        chat_topic=topic.name if topic else None,
        is_bot=bool(user and user.is_bot),
        message_id=str(message.message_id),
    )


def _name(chat: Chat) -> str | None:
    return chat.title or chat.full_name or chat.username


def _thread(message: Message) -> str | None:
    """Return the topic of a forum. (Without `is_topic_message` the id is a thread of replies.)"""
    return str(message.message_thread_id) if message.is_topic_message else None


def _is_service(message: Message) -> bool:
    """Return whether it is a service message: somebody joined, a title changed, a group moved."""
    if message.text or message.caption:
        return False
    if message.effective_attachment is None:
        return not any(getattr(message, name) for name in _UNATTACHED) and not _is_new(message)
    return any(getattr(message, name) for name in _WITHOUT_TEXT)


def _is_new(message: Message) -> bool:
    """Return whether a message has only fields that the library does not know yet."""
    is_known = any(getattr(message, kind.value, None) for kind in MessageKind)
    return bool(message.api_kwargs) and not is_known


def _text(message: Message, me: User) -> str:
    text = message.text or message.caption or ""
    entities = message.entities if message.text else message.caption_entities
    text = _with_addresses(text, entities) or _in_words(message)
    if message.chat.type == Chat.PRIVATE:
        return text
    address = re.match(rf"@{me.username}(?!\w)[ ,:\n]*", text, re.IGNORECASE)
    rest = text[address.end() :] if address else text
    return rest or text  # our name alone is a message too


def _with_addresses(text: str, entities: tuple[MessageEntity, ...]) -> str:
    """Put the address of each link behind its words."""
    coded = text.encode("utf-16-le")
    for entity in sorted(entities, key=lambda entity: entity.offset, reverse=True):
        end = (entity.offset + entity.length) * 2
        if entity.type == MessageEntity.TEXT_LINK and entity.url:
            coded = coded[:end] + f" ({entity.url})".encode("utf-16-le") + coded[end:]
    return coded.decode("utf-16-le", "replace")


def _in_words(message: Message) -> str:
    """Describe the content of a message without text."""
    if message.venue:
        return f"Location: {message.venue.title}, {message.venue.address} ({_at(message)})"
    if message.location:
        return f"Location: {_at(message)}"
    if contact := message.contact:
        names = (contact.first_name, contact.last_name, contact.phone_number)
        return f"Contact: {' '.join(filter(None, names))}"
    if message.poll:
        return f"Poll: {message.poll.question}" + "".join(
            f"\n- {o.text}" for o in message.poll.options
        )
    if checklist := message.checklist:
        tasks = (f"\n- [{'x' if t.completion_date else ' '}] {t.text}" for t in checklist.tasks)
        return f"Checklist: {checklist.title}" + "".join(tasks)
    if message.dice:
        return f"{message.dice.emoji} {message.dice.value}"
    if message.sticker:
        return message.sticker.emoji or ""
    return "" if _media(message)[1] else UNREADABLE


def _at(message: Message) -> str:
    location = message.location or (message.venue.location if message.venue else None)
    return f"{location.latitude}, {location.longitude}" if location else ""


def _media(message: Message) -> tuple[MessageType, FileRef | None]:
    """Return the type of a message, and its file."""
    if message.photo:
        largest = message.photo[-1]
        return MessageType.PHOTO, FileRef(largest.file_id, "photo.jpg", largest.file_size)
    if sticker := message.sticker:
        ending = "tgs" if sticker.is_animated else "webm" if sticker.is_video else "webp"
        return MessageType.STICKER, FileRef(sticker.file_id, f"sticker.{ending}", sticker.file_size)
    if message.location or message.venue:
        return MessageType.LOCATION, None
    named = {
        MessageType.VIDEO: (message.video or message.animation or message.video_note, "video.mp4"),
        MessageType.VOICE: (message.voice, "voice.ogg"),
        MessageType.AUDIO: (message.audio, "audio.mp3"),
        MessageType.DOCUMENT: (message.document, "document"),
    }
    for kind, (file, usual) in named.items():
        if file:
            name: str | None = getattr(file, "file_name", None)
            return kind, FileRef(file.file_id, name or usual, file.file_size)
    return MessageType.TEXT, None


def _replied(message: Message) -> tuple[Message | None, str | None]:
    """Return the message that this one replies to, and its text or the quoted part of it."""
    replied = message.reply_to_message
    if replied is not None and replied.forum_topic_created is not None:
        replied = None  # every message of a topic refers to the topic's beginning
    quoted = message.quote.text if message.quote else None
    return replied, quoted or (_description(replied) if replied else None) or None


def _description(message: Message) -> str:
    """Describe a message: its file and its text."""
    if _is_service(message):
        return ""
    kind, file = _media(message)
    text = message.text or message.caption or _in_words(message)
    return "\n".join(filter(None, (f"[{kind.value}: {file.name}]" if file else "", text)))


def _forwarded(message: Message) -> str:
    """Name the author of a forwarded message; empty when it was not forwarded."""
    origin = message.forward_origin
    if isinstance(origin, MessageOriginUser):
        name = origin.sender_user.full_name
    elif isinstance(origin, MessageOriginHiddenUser):
        name = origin.sender_user_name
    elif isinstance(origin, MessageOriginChat):
        name = _name(origin.sender_chat) or ""
    elif isinstance(origin, MessageOriginChannel):
        name = _name(origin.chat) or ""
    else:
        return ""
    return f"[Forwarded from {one_line(name).translate(_BRACKETS) or 'somebody'}]"


def _marked(message: Message) -> Mapping[MessageEntity, str]:
    return message.parse_entities() if message.text else message.parse_caption_entities()


def _names_me(message: Message, me: User) -> bool:
    """Return whether the bot is named, also in a command."""
    name = f"@{me.username}".lower()
    if (_command(message) or "").lower().endswith(name):
        return True
    for entity, words in _marked(message).items():
        if entity.type == MessageEntity.MENTION and words.lower() == name:
            return True
        if entity.type == MessageEntity.TEXT_MENTION and entity.user and entity.user.id == me.id:
            return True
    return False


def _command(message: Message) -> str | None:
    """Return the command that a message begins with, with the name of its bot."""
    for entity, words in _marked(message).items():
        if entity.type == MessageEntity.BOT_COMMAND and entity.offset == 0:
            return words
    return None


def _is_for_another_bot(message: Message, me: User) -> bool:
    _, at, name = (_command(message) or "").partition("@")
    return bool(at) and name.lower() != (me.username or "").lower()
