"""Files that came with messages: how they are fetched and kept, and how the model is told of them.

A file is named after its content, and its type is told from its content. What its sender called it is
shown to the model and to nobody else: it is no part of a path.
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
_LARGEST_PICTURE = 5 * 1024 * 1024
_ALL_PICTURES = 20 * 1024 * 1024


class Attachments:
    """The folder that they lie in."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit = limit_bytes

    async def collect(self, event: MessageEvent, held: ExitStack | None = None) -> None:
        """Fetch and keep the files of a message; of one that is not to be had, its text says why.

        As long as they are held, no deletion takes one that is a file of another conversation too.
        After a StoreError it goes on where it was.
        """
        while event.files:
            try:
                kept = await self._keep(event.files[0], held)
            except PlatformError as error:
                if event.files[0].is_needed:
                    raise
                note = f"[The file {_shown(event.files[0].name)} was left out: {error.message}]"
                event.text = f"{event.text}\n{note}".strip()
            else:
                event.attachments.append(kept)
                event.media_urls.append(str(kept.path))
                event.media_types.append(kept.kind)
            event.files.pop(0)

    async def _keep(self, file: IncomingFile, held: ExitStack | None) -> Attachment:
        content = await file.fetch()
        return await run_blocking(partial(self.save, content, file.name, held))

    def save(self, content: bytes, name: str, held: ExitStack | None = None) -> Attachment:
        """Keep a file, for good when this returns; raises PlatformError and StoreError."""
        shown = _shown(name)
        if len(content) > self._limit:
            raise PlatformError(
                f"{shown} has {_size(len(content))}; files up to {_size(self._limit)} are taken.",
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
            kept = StoreFullError if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreIOError
            raise kept(f"{path} cannot be written: {error.strerror}.") from error
        return Attachment(path, kind, shown)


def kind_of(content: bytes) -> str:
    """The media type of a file, by what is in it."""
    for beginning, kind in _BEGINNINGS:
        if beginning.match(content):
            return kind
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return _UNKNOWN
    return _UNKNOWN if _NOT_IN_TEXT.search(content) else _TEXT


def as_content(text: str, attachments: Sequence[Attachment]) -> str | list[dict[str, Any]]:
    """A message for the model: small pictures are in it, of other files it says where they lie."""
    pictures: list[dict[str, Any]] = []
    marks: list[str] = []
    room = _ALL_PICTURES
    for one in attachments:
        content = _picture(one, room)
        room -= len(content or b"")
        marks.append(f"[Attached image: {one.path}]" if content else _mark(one))
        if content:
            address = f"data:{one.kind};base64,{base64.b64encode(content).decode()}"
            pictures.append({"type": "image_url", "image_url": {"url": address}})
    said = "\n".join(part for part in (text, *marks) if part)
    return [{"type": "text", "text": said}, *pictures] if pictures else said


def _picture(one: Attachment, room: int) -> bytes | None:
    """The picture, when it is one that models see and there is room for it."""
    if one.kind not in _PICTURES:
        return None
    try:
        if one.path.stat().st_size > min(_LARGEST_PICTURE, room):
            return None
        return one.path.read_bytes()
    except OSError:
        return None


def _mark(one: Attachment) -> str:
    try:
        size = _size(one.path.stat().st_size)
    except OSError:
        return f"[Attached file: {one.name} ({one.kind}), which is no longer there]"
    return f"[Attached file: {one.name} ({one.kind}, {size}) at {one.path}]"


def _write(path: Path, content: bytes) -> None:
    make_folder(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with open_private(draft) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        _settle(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def _settle(folder: Path) -> None:
    """Have the names in a folder survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _shown(name: str) -> str:
    """A name that can be shown in one line, in brackets."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    plain = "".join(one for one in last if one.isprintable()).translate(_BRACKETS)
    return truncate(plain.strip(), 120) or "file"


_BRACKETS = str.maketrans("[]", "()")


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} bytes"
    return f"{count / 1024:.1f} KB" if count < 1024 * 1024 else f"{count / 1024 / 1024:.1f} MB"
