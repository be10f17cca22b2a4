"""Parses a mail as it arrived, however malformed it is."""

import codecs
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from email.errors import HeaderParseError
from email.header import Header, decode_header
from email.message import Message
from email.parser import BytesHeaderParser, BytesParser
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any, NamedTuple, cast

from gateway.platforms.email.markup import text_of_html
from hermes_core.text import one_line, without_surrogates

_ADDRESS = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*"
_SENDER = re.compile(
    rf'\s*(?:(?P<name>(?:"(?:[^"\\]|\\.)*"|[^<>"])*)<\s*(?P<address>{_ADDRESS})\s*>'
    rf"|(?P<bare>{_ADDRESS})(?:\s*\([^()]*\))?)\s*"
)
_MESSAGE_ID = re.compile(r"<[^<>\s]{1,300}>")
_NO_ID = "@no-message-id.invalid>"
_MAX_NAME = 120
_MAX_TEXT_BYTES = 1_000_000
_SLOW_CODECS = frozenset({"idna", "punycode"})
"""Codecs whose time grows with the square of the text; no mail is written in them."""

_ACTUAL_CHARSETS = {"iso8859-1": "cp1252"}
"""Charsets that programs declare, and the larger ones that they use."""
_VARIANT = re.compile(r"^x-|-[ie]$", re.IGNORECASE)
"""Prefixes and suffixes that some programs add to the name of a charset."""


class File(NamedTuple):
    """A file that came with a mail."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Mail:
    """A parsed mail; none of its methods raises."""

    raw: bytes
    message: Message
    size_bytes: int
    """Its size on the server; more than `raw` when only its beginning was fetched."""

    @classmethod
    def read(cls, raw: bytes, size_bytes: int | None = None) -> "Mail":
        try:
            message = BytesParser().parsebytes(raw)
        except RecursionError:  # parts within parts without end
            message = BytesHeaderParser().parsebytes(raw)
        return cls(raw, message, max(size_bytes or 0, len(raw)))

    @property
    def is_cut(self) -> bool:
        """Return whether only its beginning was fetched."""
        return self.size_bytes > len(self.raw)

    def header(self, name: str) -> str:
        """Return the first header of this name, decoded, on one line; empty when there is none."""
        values = self.headers(name)
        return one_line(_readable(values[0])) if values else ""

    def headers(self, name: str) -> list[Any]:
        return self.message.get_all(name) or []

    @cached_property
    def sender(self) -> tuple[str, str]:
        """The address (in lower case) and the name; the address is empty unless there is exactly one.

        It is read from the raw header: an encoded word must not smuggle an address in.
        """
        values = self.headers("From")
        found = _SENDER.fullmatch(one_line(str(values[0]))) if len(values) == 1 else None
        if found is None:
            return "", ""
        name = one_line(_readable(found["name"] or "")).strip("\"' ").replace('\\"', '"')
        return (found["address"] or found["bare"]).lower(), name

    @cached_property
    def subject(self) -> str:
        return self.header("Subject")

    @cached_property
    def message_id(self) -> str:
        """Its Message-ID, or one made of its content."""
        found = _MESSAGE_ID.search(self.header("Message-ID"))
        return found[0] if found else f"<{hashlib.sha256(self.raw).hexdigest()[:32]}{_NO_ID}"

    @cached_property
    def in_reply_to(self) -> str | None:
        found = _MESSAGE_ID.search(self.header("In-Reply-To"))
        return found[0] if found else None

    @cached_property
    def references(self) -> list[str]:
        """The mails before this one in its thread, the first one first."""
        found: list[str] = _MESSAGE_ID.findall(self.header("References"))
        if self.in_reply_to and self.in_reply_to not in found:
            found.append(self.in_reply_to)
        return [name for name in dict.fromkeys(found) if name != self.message_id]

    @cached_property
    def written_at(self) -> datetime:
        """Its date in local time; now, when the header cannot be read."""
        try:
            return parsedate_to_datetime(self.header("Date")).astimezone().replace(tzinfo=None)
        except (ValueError, TypeError, IndexError, OverflowError, OSError):
            return datetime.now()  # noqa: DTZ005 -- local, as MessageEvent has it

    def text(self) -> str:
        """Return its text."""
        return without_surrogates("\n\n".join(part.text for part in self._texts)).strip()

    @property
    def is_text_cut(self) -> bool:
        """Return whether a part is so long that `text` has only its beginning."""
        return any(part.is_cut for part in self._texts)

    @cached_property
    def _texts(self) -> "list[_Text]":
        return _texts(self.message)

    def files(self) -> list[File]:
        return [_file(part) for part in _leaves(self.message) if _is_file(part)]


def is_real_id(message_id: str) -> bool:
    """Return whether other programs know a mail by this id."""
    return bool(_MESSAGE_ID.fullmatch(message_id)) and not message_id.endswith(_NO_ID)


def decode(content: bytes, charset: str | None) -> str:
    """Decode bytes in the declared charset, else in one that fits."""
    plain = _VARIANT.sub("", charset or "utf-8")
    for name in (charset or "utf-8", plain, "utf-8", "cp1252"):
        try:
            codec = codecs.lookup(name).name
            if codec not in _SLOW_CODECS:
                return content.decode(_ACTUAL_CHARSETS.get(codec, codec))
        except (LookupError, ValueError):
            continue
    return content.decode("latin-1")


def _readable(value: str | Header) -> str:
    try:
        pieces = decode_header(value)
    except (HeaderParseError, ValueError):
        return without_surrogates(str(value))
    texts = (text if isinstance(text, str) else decode(text, charset) for text, charset in pieces)
    return without_surrogates("".join(texts))


def _leaves(part: Message) -> Iterator[Message]:
    """Yield the parts with content; a mail within the mail is one of them."""
    inner = _inner(part)
    for child in inner or ():
        yield from _leaves(child)
    if inner is None:
        yield part


def _inner(part: Message) -> list[Message] | None:
    """Return the parts within a part; None when it has none."""
    # Asking a part without inner ones for them would decode it, in whatever charset it claims.
    if part.get_content_maintype() != "multipart" or not part.is_multipart():
        return None
    return [inner for inner in cast("list[Any]", part.get_payload()) if isinstance(inner, Message)]


def _is_file(part: Message) -> bool:
    kind = part.get_content_type()
    if part.get_content_disposition() == "attachment" or kind not in ("text/plain", "text/html"):
        return part.get_content_maintype() != "multipart"
    return bool(_filename(part))


def _filename(part: Message) -> str:
    try:
        return one_line(_readable(part.get_filename() or ""))
    except (ValueError, LookupError, TypeError):  # broken RFC 2231 parameters
        return ""


def _file(part: Message) -> File:
    name = _filename(part).replace("\\", "/").rpartition("/")[2][-_MAX_NAME:]
    if part.get_content_type() == "message/rfc822":
        inner = cast("list[Message]", part.get_payload()) if part.is_multipart() else []
        return File(name or "mail.eml", _as_bytes(inner[0]) if inner else _content(part))
    return File(name or f"file.{part.get_content_subtype()}", _content(part))


def _as_bytes(mail: Message) -> bytes:
    """Serialize a mail within the mail. (The library cannot write every malformed one that it reads.)"""
    try:
        return mail.as_bytes()
    except (ValueError, LookupError):
        return mail.as_string().encode("utf-8", "surrogateescape")


def _content(part: Message) -> bytes:
    content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else b""


class _Text(NamedTuple):
    """The text of a part, or its beginning."""

    text: str
    is_cut: bool


def _texts(part: Message) -> list[_Text]:
    """Return the texts of a part and of the parts within it."""
    parts = _inner(part)
    if parts is None:
        return [] if _is_file(part) else _leaf_texts(part)
    if part.get_content_type() == "multipart/alternative":
        parts.sort(key=_is_html)  # plain text first; sorting keeps the order otherwise
        found = (_texts(child) for child in parts)
        return next((texts for texts in found if texts), list[_Text]())
    return [text for child in parts for text in _texts(child)]


def _leaf_texts(part: Message) -> list[_Text]:
    content = _content(part)
    text = _leaf_text(part, content[:_MAX_TEXT_BYTES]).strip()
    return [_Text(text, len(content) > _MAX_TEXT_BYTES)] if text else []


def _leaf_text(part: Message, content: bytes) -> str:
    text = decode(content, _charset(part)).replace("\r\n", "\n").replace("\0", "")
    if part.get_content_type() == "text/html":
        return text_of_html(text)
    if _parameter(part, "format") != "flowed":
        return text
    return _unflowed(text, is_space_extra=_parameter(part, "delsp") == "yes")


def _parameter(part: Message, name: str) -> str:
    return str(part.get_param(name, "")).lower()


def _is_html(part: Message) -> bool:
    return any(leaf.get_content_type() == "text/html" for leaf in _leaves(part))


def _charset(part: Message) -> str | None:
    try:
        return part.get_content_charset()
    except (ValueError, LookupError, TypeError):  # broken RFC 2231 parameters
        return None


def _unflowed(text: str, *, is_space_extra: bool) -> str:
    """Join lines that were only broken to be short; a quoted one and a signature stay as they are.

    The space that a broken line ends with may have been added to it.
    """
    lines: list[str] = []
    is_open = False
    for line in text.split("\n"):
        if is_open and not line.startswith(">"):
            before = lines[-1].removesuffix(" ") if is_space_extra else lines[-1]
            lines[-1] = before + line.removeprefix(" ")
        else:
            lines.append(line.removeprefix(" "))
        is_open = line.endswith(" ") and line != "-- " and not line.startswith(">")
    return "\n".join(lines)
