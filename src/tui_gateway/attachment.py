"""Attachments of a prompt: pictures, files, and long texts that were pasted."""

import base64
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from hermes_core import attachments, pictures
from hermes_core.paths import Home, make_folder, open_private
from hermes_protocol.errors import BAD_ARGUMENT
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import LiveSession

_SUFFIXES = (".gif", ".jpeg", ".jpg", ".png", ".webp")
_LARGEST = 20 * 1024 * 1024
_MARK = "[Attached image: {}]"
_PASTE = re.compile(r"\[Pasted text #\d+: \d+ lines? → ([^\]\n]+)\]")
_FULL_NAME = re.compile("[\"']?[/~]|file:")
_BLANK = re.compile(r"\s")
_MAX_NAME = 4096
_UNSAFE = re.compile(r"[^\w.-]+")


def with_images(images: Sequence[str], home: Home, text: str) -> Any:  # noqa: ANN401 -- text or parts
    """The content of a prompt: what was typed and pasted, and the pictures that go along."""
    text = with_pasted(home, text)
    if not images:
        return text
    marks = "\n".join(_MARK.format(path) for path in images)
    return [{"type": "text", "text": f"{text}\n{marks}".strip()}, *map(_picture, images)]


def with_pasted(home: Home, text: str) -> str:
    """A text with what was pasted in the place of what stands for it."""
    return _PASTE.sub(lambda found: _pasted(home, found), text)


def _picture(path: str) -> dict[str, Any]:
    data = _read(Path(path))
    kind, text = check_picture(Path(path).name, data), base64.b64encode(data).decode()
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{text}"}}


def _pasted(home: Home, found: re.Match[str]) -> str:
    """The text behind a placeholder; one that is not ours stays what it is."""
    path = Path(found[1])
    if path.parent != home.attachments or not path.is_file():
        return found[0]
    return path.read_text("utf-8", "replace")


def attach(session: LiveSession, path: Path) -> int:
    """Attach a picture to the next prompt; return how many are attached."""
    check_picture(path.name, _read(path))
    images = session.setdefault("attached_images", [])
    if str(path) not in images:
        images.append(str(path))
    return len(images)


def check_picture(name: str, data: bytes) -> str:
    """The kind of a picture; raises RpcError when it is none, whatever its name says."""
    kind = pictures.kind_of(data)
    if not kind:
        fix = f"Models can read {', '.join(_SUFFIXES)}."
        raise RpcError(BAD_ARGUMENT, f"{name} is not a picture that models can read.", fix=fix)
    return kind


def is_image(path: Path) -> bool:
    """Return whether a file has the name of a picture."""
    return path.suffix.lower() in _SUFFIXES


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > _LARGEST:
            raise RpcError(BAD_ARGUMENT, f"{path.name} is larger than {_LARGEST >> 20} MiB.")
        return path.read_bytes()
    except OSError as error:
        raise RpcError(BAD_ARGUMENT, f"{path} cannot be read: {error.strerror}.") from error


def named(text: str, cwd: Path) -> Path:
    """The file that a client names; raises RpcError when there is none."""
    path = cwd / Path(text).expanduser()
    try:
        is_file = path.is_file()
    except (OSError, ValueError):
        is_file = False
    if not text or not is_file:
        raise RpcError(BAD_ARGUMENT, f"There is no file {text[:200]!r}.")
    return path.absolute()


def decoded(text: str) -> bytes:
    """The bytes of base64 text or of a data address; raises RpcError."""
    _, _, data = text.rpartition("base64,") if text.startswith("data:") else ("", "", text)
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise RpcError(BAD_ARGUMENT, "The content is not valid base64.") from error


def keep(session: LiveSession, home: Home, name: str, data: bytes) -> Path:
    """Put something a client sent into a private file of the home."""
    if len(data) > _LARGEST:
        raise RpcError(BAD_ARGUMENT, f"It is larger than {_LARGEST >> 20} MiB.")
    safe = _UNSAFE.sub("_", Path(name).name)[-80:].lstrip(".") or "file"
    make_folder(home.attachments)
    path = _unused_path(session, home, safe)
    with open_private(path) as file:
        file.write(data)
    return path


def _unused_path(session: LiveSession, home: Home, name: str) -> Path:
    """A file that is not there yet: who had the conversation open before may have kept some."""
    while True:
        number = session["image_counter"] = session.get("image_counter", 0) + 1
        path = attachments.path_of(home, session["session_key"], number, name)
        if not path.exists():
            return path


def collapse(session: LiveSession, home: Home, text: str) -> tuple[str, Path, int]:
    """Keep a long text; returns what stands for it in a prompt, where it is, and its lines."""
    path = keep(session, home, "paste.txt", text.encode("utf-8", "replace"))
    lines = text.count("\n") + 1
    number = session.get("image_counter", 0)
    counted = f"{lines} line{'s' * (lines > 1)}"
    return f"[Pasted text #{number}: {counted} → {path}]", path, lines


def parse_drop(text: str, cwd: Path) -> tuple[Path, str] | None:
    """Find the file that was dropped on a terminal; return it with the text after its name.

    Only a name that begins at the root, the home or with `file:` may have text after it.
    """
    text = text.strip()
    ends = [len(text)]
    if _FULL_NAME.match(text):
        ends += [blank.start() for blank in _BLANK.finditer(text, 0, _MAX_NAME)][::-1]
    for end in ends:
        if not 0 < end <= _MAX_NAME or "\n" in text[:end]:
            continue
        for name in _candidate_names(text[:end]):
            with suppress(RpcError):
                return named(name, cwd), text[end:].strip()
    return None


def _candidate_names(text: str) -> list[str]:
    """The names that a terminal may have meant: an address, a name as it is, a name that is quoted."""
    if text.startswith("file://"):
        return [unquote(urlsplit(text).path)]
    try:
        words = shlex.split(text)
    except ValueError:
        words = []
    return [text, *(words if len(words) == 1 else [])]
