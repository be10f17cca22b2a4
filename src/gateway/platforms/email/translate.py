"""Translates a mail to a message of the gateway. No I/O."""

from typing import NamedTuple

from gateway.config import Platform
from gateway.platforms.base import IncomingFile, MessageEvent, MessageType, at_hand
from gateway.platforms.email import quotes
from gateway.platforms.email.mail import File, Mail
from gateway.platforms.email.quotes import Writer
from gateway.platforms.email.screening import OWN_ID
from gateway.source import SessionSource

_MAX_FILES = 20
_MAX_TEXT = 200_000


class Letter(NamedTuple):
    """A mail for the gateway, as an event."""

    event: MessageEvent
    root: str
    """The first mail of its thread."""


def translate(
    mail: Mail, known_root: str | None, us: Writer, *, is_verified: bool = False
) -> Letter:
    """Translate a mail; `known_root` is the thread that it continues, if we took part in it.

    Our own text in such a thread is left out: it is in the conversation. `is_verified`: a trusted server
    has confirmed the sender.
    """
    address, name = mail.sender
    root = known_root or (mail.references or [mail.message_id])[0]
    files, notes = _files(mail)
    body = _text(mail, us if known_root is not None else None) or "[This mail has no text.]"
    if len(body) > _MAX_TEXT or mail.is_text_cut:
        body = body[:_MAX_TEXT].rstrip()
        notes = ["[The text of this mail is longer; the rest was left out.]", *notes]
    text = "\n\n".join([body, *notes])
    event = MessageEvent(
        text=text,
        message_type=MessageType.COMMAND if text.startswith("/") else MessageType.TEXT,
        source=SessionSource(
            platform=Platform.EMAIL,
            chat_id=address,
            chat_name=name or address,
            chat_type="dm",
            user_id=address,
            user_name=name or address,
            thread_id=root,
            chat_topic=mail.subject or None,
            message_id=mail.message_id,
            is_unverified=not is_verified,
        ),
        message_id=mail.message_id,
        files=[IncomingFile(file.name, at_hand(file.content)) for file in files],
        reply_to_message_id=mail.in_reply_to,
        reply_to_is_own_message=(mail.in_reply_to or "").startswith(OWN_ID),
        metadata={"subject": mail.subject},
        timestamp=mail.written_at,
    )
    return Letter(event, root)


def _files(mail: Mail) -> tuple[list[File], list[str]]:
    """Return the files of a mail, and notes about those that are left out."""
    if mail.is_cut:
        size = mail.size_bytes // 1_000_000
        return [], [f"[This mail has {size} MB; only its beginning was read, and no attachment.]"]
    files = mail.files()
    left_out = len(files) - _MAX_FILES
    notes = [f"[{left_out} more attachments were left out.]"] if left_out > 0 else []
    return files[:_MAX_FILES], notes


def _text(mail: Mail, us: Writer | None) -> str:
    """Return the text of a mail; with `us`, without our own text in its thread."""
    whole = mail.text()
    unsigned = "\n".join(quotes.without_signature(whole.split("\n"))).strip()
    if not unsigned and mail.subject.startswith("/"):
        return mail.subject
    if us is not None and not quotes.is_forward(mail.subject):
        text = quotes.new_text(whole, us)
    else:
        text = unsigned or whole
    # The subject is a part of the text only once, and a command must come first.
    if us is not None or text.startswith("/") or not mail.subject:
        return text
    return f"{mail.subject}\n\n{text}".strip()
