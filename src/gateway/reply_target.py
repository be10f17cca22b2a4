"""Where a turn came from, kept with its delivery: enough to answer it after any restart."""

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
    """What the gateway must know to answer a message."""

    stored_source: dict[str, Any] = msgspec.field(name="source")
    session_key: str = ""
    message_id: str | None = None
    text: str = ""
    """What was written, for a command; the words of a turn are in its conversation."""
    digest: str = msgspec.field(default="", name="said")
    """The digest of the text of any message: enough to see whether an edit changes it."""
    files: list[tuple[str, str, str]] = []
    """The path, the kind and the name of what came along."""
    parts: list[str] = []
    """The messages that it was made of, where these are several."""
    subject: str = ""
    edits: str | None = None
    answers: str | None = None
    is_bot: bool = False
    is_vouched: bool = False
    """Whether the platform itself let the sender in."""
    can_be_asked: bool = True
    """Whether the sender is shown what the agent asks; else the answer to that is a no, at once."""
    is_in_place: bool = False
    """Whether the reply goes back on the request itself, so that there is nothing to deliver."""
    model: str = ""
    """The model that a program asked for with its message."""
    instructions: str = ""
    """What a program wants of the conversation, from its message on."""

    @property
    def attachments(self) -> list[Attachment]:
        return [Attachment(Path(path), kind, name) for path, kind, name in self.files]

    @property
    def source(self) -> SessionSource:
        """The chat and the person of the message."""
        source = SessionSource.from_dict(self.stored_source)
        source.is_bot, source.role_authorized = self.is_bot, self.is_vouched
        return source


def inbound_message(
    event: MessageEvent, session_key: str, *, is_turn: bool, is_in_place: bool
) -> InboundMessage:
    """A message as the store's inbox knows it."""
    source = event.source
    if source is None or not event.message_id:
        raise ValueError("A message without a source or an id cannot be taken in.")
    target = ReplyTarget(
        stored_source=source.to_dict(),
        session_key=session_key,
        message_id=event.message_id,
        text="" if is_turn else event.text,
        digest=digest(event.text),
        files=[(str(one.path), one.kind, one.name) for one in event.attachments],
        parts=event.parts,
        subject=str(event.metadata.get("subject", "")),
        edits=event.edits,
        answers=event.answers,
        is_bot=source.is_bot,
        is_vouched=source.role_authorized,
        can_be_asked=event.can_be_asked,
        is_in_place=is_in_place,
        model=str(event.options.get("model") or ""),
        instructions=str(event.options.get("instructions") or ""),
    )
    payload = encode(msgspec.to_builtins(target))
    return named(event, source)._replace(
        payload=payload, session_key=session_key, edits=event.edits, parts=event.parts
    )


def named(event: MessageEvent, source: SessionSource) -> InboundMessage:
    """A message by the name that its repeats have too."""
    within = event.named_within or source.chat_id
    return InboundMessage(source.platform.value, within, event.message_id or "")


def digest(text: str) -> str:
    """Words in a form that tells nobody what they are."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


def decode(payload: str) -> ReplyTarget:
    """The origin that was kept with a delivery."""
    return msgspec.json.decode(payload, type=ReplyTarget)


def of_turn(store: Store, turn_id: str) -> ReplyTarget | None:
    """Where a turn came from; None when it came from no platform."""
    row = store.read(inbox.of_turn, turn_id)
    return decode(row["payload"]) if row is not None else None
