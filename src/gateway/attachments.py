"""Attachments of messages: fetching, storing, and presenting them to the model.

The name and the media type of a file are derived from its content. The name that its sender gave it is
shown to the model only; it is never part of a path.
"""

import base64
import errno
import hashlib
import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from gateway.blocking import run_blocking
from gateway.platforms.base import Attachment, IncomingFile, MessageEvent, PlatformError
from hermes_core.attachments import hold
from hermes_core.errors import StoreFullError, StoreIOError
from hermes_core.paths import make_folder, open_private
from hermes_core.text import truncate

_UNKNOWN = "application/octet-stream"
_TEXT = "text/plain"
_EXTENSIONS = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "application/pdf": ".pdf",
    "application/zip": ".zip",
    "audio/ogg": ".ogg",
    "audio/mpeg": ".mp3",
    "audio/wav": ".wav",
    "audio/mp4": ".m4a",
    "video/mp4": ".mp4",
    "video/webm": ".webm",
    _TEXT: ".txt",
}
_BEGINNINGS: tuple[tuple[re.Pattern[bytes], str], ...] = tuple(
    (re.compile(pattern, re.DOTALL), kind)
    for pattern, kind in (
        (rb"\x89PNG\r\n\x1a\n", "image/png"),
        (rb"\xff\xd8\xff", "image/jpeg"),
        (rb"GIF8[79]a", "image/gif"),
        (rb"RIFF....WEBP", "image/webp"),
        (rb"RIFF....WAVE", "audio/wav"),
        (rb"%PDF-", "application/pdf"),
        (rb"PK(?:\x03\x04|\x05\x06)", "application/zip"),
        (rb"OggS", "audio/ogg"),
        (rb"ID3|\xff[\xfb\xfa\xf3\xf2]", "audio/mpeg"),
        (rb"....ftypM4[AB]", "audio/mp4"),
        (rb"....ftyp(?:isom|iso[2-9]|mp4[12]|avc1|dash|M4V|MSNV|3gp)", "video/mp4"),
        (rb"\x1a\x45\xdf\xa3.{0,40}webm", "video/webm"),
    )
)
_NOT_IN_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_MAX_PICTURE_BYTES = 5 * 1024 * 1024
_MAX_PICTURES_BYTES = 20 * 1024 * 1024


class Attachments:
    """The folder of attachments."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit = limit_bytes

    async def collect(self, event: MessageEvent, held: ExitStack | None = None) -> None:
        """Fetch and store the files of a message; its text says why one is missing.

        While they are held, no deletion of another conversation takes a file that both have. After a
        StoreError, a second call continues with the next file.
        """
        while event.files:
            try:
                attachment = await self._keep(event.files[0], held)
            except PlatformError as error:
                if event.files[0].is_needed:
                    raise
                note = f"[The file {_printable(event.files[0].name)} was left out: {error.message}]"
                event.text = f"{event.text}\n{note}".strip()
            else:
                event.attachments.append(attachment)
            event.files.pop(0)

    async def _keep(self, file: IncomingFile, held: ExitStack | None) -> Attachment:
        content = await file.fetch()
        return await run_blocking(partial(self.save, content, file.name, held))

    def save(self, content: bytes, name: str, held: ExitStack | None = None) -> Attachment:
        """Store a file durably; raises PlatformError and StoreError."""
        printable = _printable(name)
        if len(content) > self._limit:
            raise PlatformError(
                f"{printable} has {_size(len(content))}; the limit is {_size(self._limit)}.",
                fix="Send a smaller one, or raise gateway.attachment_limit_mb.",
            )
        kind = kind_of(content)
        digest = hashlib.sha256(content).hexdigest()[:32]
        path = self._folder / f"{digest}{_EXTENSIONS.get(kind, '.bin')}"
        try:
            while (file := hold(path)) is None:
                _write(path, content)
            held.enter_context(file) if held is not None else file.close()
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            failure = StoreFullError if is_full else StoreIOError
            raise failure(f"{path} cannot be written: {error.strerror}.") from error
        return Attachment(path, kind, printable)


def kind_of(content: bytes) -> str:
    """Return the media type of a file by its content."""
    for beginning, kind in _BEGINNINGS:
        if beginning.match(content):
            return kind
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return _UNKNOWN
    return _UNKNOWN if _NOT_IN_TEXT.search(content) else _TEXT


def as_content(text: str, attachments: Sequence[Attachment]) -> str | list[dict[str, Any]]:
    """Return a message for the model: small pictures are included, other files named by path."""
    pictures: list[dict[str, Any]] = []
    marks: list[str] = []
    room = _MAX_PICTURES_BYTES
    for file in attachments:
        content = _picture(file, room)
        room -= len(content or b"")
        marks.append(f"[Attached image: {file.path}]" if content else _mark(file))
        if content:
            address = f"data:{file.kind};base64,{base64.b64encode(content).decode()}"
            pictures.append({"type": "image_url", "image_url": {"url": address}})
    text = "\n".join(part for part in (text, *marks) if part)
    return [{"type": "text", "text": text}, *pictures] if pictures else text


def _picture(file: Attachment, room: int) -> bytes | None:
    """Return the content of a picture that models can see and that fits."""
    if file.kind not in _PICTURES:
        return None
    try:
        if file.path.stat().st_size > min(_MAX_PICTURE_BYTES, room):
            return None
        return file.path.read_bytes()
    except OSError:
        return None


def _mark(file: Attachment) -> str:
    try:
        size = _size(file.path.stat().st_size)
    except OSError:
        return f"[Attached file: {file.name} ({file.kind}), which is no longer there]"
    return f"[Attached file: {file.name} ({file.kind}, {size}) at {file.path}]"


def _write(path: Path, content: bytes) -> None:
    make_folder(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with open_private(draft) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        _sync_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _printable(name: str) -> str:
    """Return a name for one line, within brackets."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    plain = "".join(filter(str.isprintable, last)).translate(_BRACKETS)
    return truncate(plain.strip(), 120) or "file"


_BRACKETS = str.maketrans("[]", "()")


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} bytes"
    return f"{count / 1024:.1f} KB" if count < 1024 * 1024 else f"{count / 1024 / 1024:.1f} MB"
