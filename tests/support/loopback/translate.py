"""Loopback's messages as the gateway sees them; no input or output happens here."""

from datetime import UTC, datetime

import msgspec

from gateway.attachments import kind_of
from gateway.config import Platform
from gateway.platforms.base import IncomingFile, MessageEvent, MessageType, at_hand
from gateway.source import SessionSource
from tests.support.loopback.wire import Incoming


def understand(message: msgspec.Raw) -> Incoming | None:
    """What was delivered; None when it is nothing that we know."""
    try:
        return msgspec.json.decode(message, type=Incoming)
    except msgspec.DecodeError:
        return None


def event(came: Incoming, platform: Platform) -> MessageEvent:
    """The event of a message."""
    source = SessionSource(
        platform=platform,
        chat_id=came.chat,
        chat_type=came.chat_type,
        user_id=came.user,
        user_name=came.user,
        thread_id=came.thread,
        message_id=came.message_id,
    )
    return MessageEvent(
        text=came.text,
        message_type=_type(came),
        source=source,
        raw_message=came,
        message_id=came.message_id,
        files=[IncomingFile(file.name, at_hand(file.content)) for file in came.files],
        reply_to_message_id=came.reply_to,
        is_mention=came.mention,
        edits=came.edits,
        answers=came.answers,
        timestamp=datetime.fromtimestamp(came.at, UTC),
    )


def _type(came: Incoming) -> MessageType:
    if came.text.startswith("/"):
        return MessageType.COMMAND
    if not came.files:
        return MessageType.TEXT
    main = kind_of(came.files[0].content).partition("/")[0]
    by_kind = {
        "image": MessageType.PHOTO,
        "audio": MessageType.AUDIO,
        "video": MessageType.VIDEO,
    }
    return by_kind.get(main, MessageType.DOCUMENT)
