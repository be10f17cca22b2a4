"""The lines that loopback's server and its clients exchange: one JSON object each."""

from typing import Any

import msgspec

LINE_LIMIT = 64 * 1024 * 1024


class File(msgspec.Struct, frozen=True):
    """A file, whole."""

    name: str
    content: bytes


class Incoming(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person wrote, changed or pressed."""

    chat: str
    message_id: str
    text: str
    user: str
    chat_type: str = "dm"
    thread: str | None = None
    mention: bool = True
    reply_to: str | None = None
    edits: str | None = None
    answers: str | None = None
    files: list[File] = []
    at: float = 0.0


class Listen(msgspec.Struct, frozen=True, tag="listen"):
    """Deliver to me, from the oldest that nobody has acknowledged."""

    id: int


class Ack(msgspec.Struct, frozen=True, tag="ack"):
    """It is safe with me. There is no answer: one that is lost is delivered again."""

    delivery: int


class Send(msgspec.Struct, frozen=True, tag="send", kw_only=True, omit_defaults=True):
    """Show a message in a chat."""

    id: int
    chat: str
    text: str
    key: str = ""
    reply_to: str | None = None
    thread: str | None = None
    question: str | None = None
    buttons: list[tuple[str, str]] = []
    files: list[File] = []


class Edit(msgspec.Struct, frozen=True, tag="edit"):
    """Give a shown message another text."""

    id: int
    chat: str
    message_id: str
    text: str


class Find(msgspec.Struct, frozen=True, tag="find"):
    """Is there a message that was sent under this key?"""

    id: int
    chat: str
    key: str


class Typing(msgspec.Struct, frozen=True, tag="typing"):
    """Show that somebody writes."""

    id: int
    chat: str
    is_on: bool


class Commands(msgspec.Struct, frozen=True, tag="commands"):
    """Offer these commands to people: names and help."""

    id: int
    commands: list[tuple[str, str]]


Request = Listen | Ack | Send | Edit | Find | Typing | Commands
Answerable = Listen | Send | Edit | Find | Typing | Commands
"""The requests that are answered."""


class Reply(msgspec.Struct, frozen=True, tag="reply", omit_defaults=True):
    """What became of a request."""

    id: int
    message_id: str | None = None
    kind: str = ""
    """Why not; as `SendResult.error_kind`."""
    error: str = ""
    retry_after: float | None = None


class Delivery(msgspec.Struct, frozen=True, tag="delivery"):
    """Something that came in. It is delivered until it is acknowledged."""

    number: int
    message: msgspec.Raw
    """An `Incoming`, or something newer than this client."""


requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
news: msgspec.json.Decoder[Reply | Delivery] = msgspec.json.Decoder(Reply | Delivery)


def line(frame: Any) -> bytes:
    return msgspec.json.encode(frame) + b"\n"
