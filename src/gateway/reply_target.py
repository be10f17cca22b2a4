"""ReplyTarget: where the reply of a message goes, stored with it: enough to answer after any restart."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from gateway.platforms.base import Attachment, MessageEvent
from gateway.source import SessionSource
from hermes_state.ledger import inbox
from hermes_state.ledger.records import encode
from hermes_state.store import Store
from hermes_state.values import InboundMessage


class ReplyTarget(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that the gateway must know to answer a message."""

    stored_source: dict[str, Any] = msgspec.field(name="source")
    session_key: str = ""
    message_id: str | None = None
    text: str = ""
    """The text of a command; the words of a turn are in its conversation."""
    digest: str = msgspec.field(default="", name="said")
    """The digest of the text of any message: enough to see whether an edit changes it."""
    files: list[tuple[str, str, str]] = []
    """Path, media type and name of each attachment."""
    parts: list[str] = []
    """The ids of the messages that it was combined from, if there are several."""
    part_sizes: list[int] = []
    """The lengths of their texts, when they are one text."""
    subject: str = ""
    edits: str | None = None
    answers: str | None = None
    is_bot: bool = False
    is_vouched: bool = False
    """Whether the platform itself let the sender in."""
    can_be_asked: bool = True
    """Whether the sender is shown what the agent asks; else the answer to that is a no, at once."""
    quotes_others: bool = False
    """Whether the message has text of somebody else than its sender and the bot."""
    is_in_place: bool = False
    """Whether the reply goes back on the request itself, so that there is nothing to deliver."""
    model: str = ""
    """The model that a program asked for with its message."""
    instructions: str = ""
    """Instructions of a program for the conversation, from its message on."""

    @property
    def attachments(self) -> list[Attachment]:
        return [Attachment(Path(path), kind, name) for path, kind, name in self.files]

    @property
    def source(self) -> SessionSource:
        """The chat and the person of the message."""
        source = SessionSource.from_dict(self.stored_source)
        source.is_bot, source.role_authorized = self.is_bot, self.is_vouched
        return source


def of_event(
    event: MessageEvent,
    source: SessionSource,
    session_key: str,
    *,
    is_turn: bool,
    is_in_place: bool,
) -> ReplyTarget:
    """Return the reply target of a message."""
    return ReplyTarget(
        stored_source=source.to_dict(),
        session_key=session_key,
        message_id=event.message_id,
        text="" if is_turn else event.text,
        digest=digest(event.text),
        files=[(str(file.path), file.kind, file.name) for file in event.attachments],
        parts=event.parts,
        part_sizes=event.part_sizes,
        subject=str(event.metadata.get("subject", "")),
        edits=event.edits,
        answers=event.answers,
        is_bot=source.is_bot,
        is_vouched=source.role_authorized,
        can_be_asked=event.can_be_asked,
        quotes_others=event.quotes_others,
        is_in_place=is_in_place,
        model=str(event.options.get("model") or ""),
        instructions=str(event.options.get("instructions") or ""),
    )


def inbound_message(
    event: MessageEvent, source: SessionSource, target: ReplyTarget | None = None
) -> InboundMessage:
    """Return a message as the inbox knows it, by the name that its repeats have too."""
    within = event.named_within or source.chat_id
    message = InboundMessage(source.platform.value, within, event.message_id or "")
    if target is None:
        return message
    return message._replace(
        payload=encode(msgspec.to_builtins(target)),
        session_key=target.session_key,
        edits=event.edits,
        parts=event.parts,
    )


def digest(text: str) -> str:
    """Return a digest of a text that reveals nothing of it."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


def decode(payload: str) -> ReplyTarget:
    """Read the reply target that was stored with a message."""
    return msgspec.json.decode(payload, type=ReplyTarget)


def of_turn(store: Store, turn_id: str) -> ReplyTarget | None:
    """Return where the reply of a turn goes; None when it came from no platform."""
    row = store.read(inbox.of_turn, turn_id)
    return decode(row["payload"]) if row is not None else None
