"""What Telegram delivers, as the gateway sees it. No input or output happens here."""

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
from gateway.platforms.telegram.keyboard import pressed
from gateway.platforms.telegram.rich import UNREADABLE
from gateway.platforms.telegram.wire import table
from gateway.source import SessionSource
from hermes_core.text import one_line

_CHAT_TYPES = {"private": "dm", "group": "group", "supergroup": "group", "channel": "channel"}
_BRACKETS = str.maketrans("[]", "()")
"""Nobody ends a note of ours early with their name."""
_NOT_FOR_READING = ("invoice", "successful_payment", "passport_data")
_SENT = ("story", "checklist", "giveaway", "giveaway_winners")
"""What people send and the library counts for nothing that is attached."""


class FileRef(NamedTuple):
    """A file that lies at Telegram."""

    id: str
    name: str
    size: int | None


class Heard(NamedTuple):
    """A message, and the files that have to be fetched for it."""

    event: MessageEvent
    files: tuple[FileRef, ...] = ()


def translate(update: Update, me: User) -> Heard | None:
    """The message in an update; None when there is nothing for us in it."""
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
    return _heard(update, message, me, is_edit=is_edit)


def moved(raw: Mapping[str, Any]) -> tuple[str, str] | None:
    """The chat that an update tells to have become another one, and that one; None: it tells no such.

    Telegram says it twice, in the old chat and in the new one. No library reads this, so that what it
    cannot read moves nevertheless.
    """
    message = table(raw.get("message"))
    here = table(message.get("chat")).get("id")
    if (new := message.get("migrate_to_chat_id")) is not None:
        return str(here), str(new)
    if (old := message.get("migrate_from_chat_id")) is not None:
        return str(old), str(here)
    return None


def together(parts: Sequence[Heard]) -> Heard:
    """The pictures of an album, which Telegram delivers one by one, as one message.

    Its name has the last one in it: should a picture come late, the album is not taken for known.
    """
    if len(parts) == 1:
        return parts[0]
    events = [one.event for one in parts]
    event = replace(
        events[0],
        text="\n".join(dict.fromkeys(one.text for one in events if one.text)),
        message_id=f"{events[0].message_id}-{events[-1].message_id}",
        parts=[one.message_id or "" for one in events],
        is_mention=any(one.is_mention for one in events),
    )
    return Heard(event, tuple(file for one in parts for file in one.files))


def _heard(update: Update, message: Message, me: User, *, is_edit: bool) -> Heard:
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
        # The update's number tells two edits within a second apart, and is the same when it comes again.
        message_id=f"{original}:e{update.update_id}" if is_edit else original,
        platform_update_id=update.update_id,
        reply_to_message_id=str(replied.message_id) if replied else None,
        reply_to_text=replied_text,
        reply_to_is_own_message=is_reply_to_us,
        quotes_part=message.quote is not None,
        is_mention=is_named or is_command,
        names_nobody=is_command and not is_named,
        edits=original if is_edit else None,
        timestamp=message.date.astimezone().replace(tzinfo=None),
    )
    return Heard(event, tuple(one for one in (replied_file, file) if one))


def _pressed(update: Update, me: User) -> Heard | None:
    query = update.callback_query
    said = pressed(query) if query else None
    if query is None or said is None or query.message is None:
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
        text=said[1],
        source=source,
        raw_message=query,
        message_id=f"cb:{query.id}",
        platform_update_id=update.update_id,
        is_mention=True,
        answers=said[0],
    )
    return Heard(event)


def _source(message: Message) -> SessionSource:
    """The chat and the account that speaks: for posts in the name of a chat, that chat.

    What stands as `from` in such posts is an account that all anonymous admins of Telegram share.
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
    """The topic of a forum. (A number without `is_topic_message` is a thread of replies, no topic.)"""
    return str(message.message_thread_id) if message.is_topic_message else None


def _is_service(message: Message) -> bool:
    """Whether Telegram speaks here: somebody joined, a title changed, a group moved."""
    if message.text or message.caption:
        return False
    if message.effective_attachment is None:
        return not any(getattr(message, name) for name in _SENT) and not _is_new(message)
    return any(getattr(message, name) for name in _NOT_FOR_READING)


def _is_new(message: Message) -> bool:
    """Whether there is nothing in a message but what the library has not heard of yet."""
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
    return rest or text  # who says our name alone has said that


def _with_addresses(text: str, entities: tuple[MessageEntity, ...]) -> str:
    """The text with the address behind each word that is a link."""
    coded = text.encode("utf-16-le")
    for one in sorted(entities, key=lambda entity: entity.offset, reverse=True):
        end = (one.offset + one.length) * 2
        if one.type == MessageEntity.TEXT_LINK and one.url:
            coded = coded[:end] + f" ({one.url})".encode("utf-16-le") + coded[end:]
    return coded.decode("utf-16-le", "replace")


def _in_words(message: Message) -> str:
    """What was sent instead of a text."""
    place = message.location
    if message.venue:
        return f"Location: {message.venue.title}, {message.venue.address} ({_at(message)})"
    if place:
        return f"Location: {_at(message)}"
    if message.contact:
        one = message.contact
        return f"Contact: {one.first_name} {one.last_name or ''} {one.phone_number}".replace(
            "  ", " "
        )
    if message.poll:
        return f"Poll: {message.poll.question}" + "".join(
            f"\n- {o.text}" for o in message.poll.options
        )
    if message.checklist:
        one = message.checklist
        tasks = (f"\n- [{'x' if task.completion_date else ' '}] {task.text}" for task in one.tasks)
        return f"Checklist: {one.title}" + "".join(tasks)
    if message.dice:
        return f"{message.dice.emoji} {message.dice.value}"
    if message.sticker:
        return message.sticker.emoji or ""
    return "" if _media(message)[1] else UNREADABLE


def _at(message: Message) -> str:
    place = message.location or (message.venue.location if message.venue else None)
    return f"{place.latitude}, {place.longitude}" if place else ""


def _media(message: Message) -> tuple[MessageType, FileRef | None]:
    """What kind of message it is, and its file."""
    if message.photo:
        largest = message.photo[-1]
        return MessageType.PHOTO, FileRef(largest.file_id, "photo.jpg", largest.file_size)
    if message.sticker:
        one = message.sticker
        ending = "tgs" if one.is_animated else "webm" if one.is_video else "webp"
        return MessageType.STICKER, FileRef(one.file_id, f"sticker.{ending}", one.file_size)
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
    """The message that this one replies to, and its text or the part of it that is quoted."""
    replied = message.reply_to_message
    if replied is not None and replied.forum_topic_created is not None:
        replied = None  # every message of a topic refers to the topic's beginning
    quoted = message.quote.text if message.quote else None
    return replied, quoted or (_shown(replied) if replied else None) or None


def _shown(message: Message) -> str:
    """A message in words: its text, or what was sent instead of one."""
    if _is_service(message):
        return ""
    kind, file = _media(message)
    said = message.text or message.caption or _in_words(message)
    return "\n".join(one for one in (f"[{kind.value}: {file.name}]" if file else "", said) if one)


def _forwarded(message: Message) -> str:
    """Whose words these are, when they are not those of who sent them."""
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
    """Whether the bot is named, also in a command."""
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
    """The command that a message begins with, with the bot it is for."""
    for entity, words in _marked(message).items():
        if entity.type == MessageEntity.BOT_COMMAND and entity.offset == 0:
            return words
    return None


def _is_for_another_bot(message: Message, me: User) -> bool:
    _, at, name = (_command(message) or "").partition("@")
    return bool(at) and name.lower() != (me.username or "").lower()
