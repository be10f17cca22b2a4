"""Files and folders that a prompt names with @: what the model gets of them, and what people see."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from hermes_core.markdown import fenced
from hermes_core.secrets import redact
from hermes_core.text import counted, human_size
from hermes_protocol.results import Mention

_MAX_FILES = 20
_MAX_BYTES = 100_000
"""Of one file; a larger one is only named, and the model can read the part it wants."""
_MAX_ENTRIES = 200
_PROBE_BYTES = 8_000
_HEADER = re.compile(r"(?:\n\n|\A)\[Attached: (.+)\](?:\n|\Z)")


class _Found(NamedTuple):
    name: str
    path: Path
    note: str
    content: str | None
    """None: it is only named."""


def describe(names: Iterable[str], cwd: Path) -> list[Mention]:
    """Return what would be attached for each name that exists."""
    return [Mention(file.name, file.note, file.content is not None) for file in _find(names, cwd)]


def with_files(text: str, names: Sequence[str], cwd: Path) -> str:
    """Add the content of files to a prompt."""
    found = _find(names, cwd)
    if not found:
        return text
    header = "; ".join(f"{file.name} ({file.note})" for file in found)
    contents = [f"{file.name}:\n{file.content}" for file in found if file.content is not None]
    return "\n\n".join([text, f"[Attached: {header}]", *contents])


def without_files(text: str) -> tuple[str, list[str]]:
    """Return a prompt as a person wrote it, and the names of its files with their notes."""
    found = _HEADER.search(text)
    return (text[: found.start()], found[1].split("; ")) if found else (text, [])


def existing(name: str, cwd: Path) -> Path | None:
    """Return the file or folder of a name."""
    try:
        path = cwd / Path(name).expanduser()
        return path if path.exists() else None
    except (OSError, ValueError, RuntimeError):
        return None


def _find(names: Iterable[str], cwd: Path) -> list[_Found]:
    paths = {name: path for name in names if (path := existing(name, cwd)) is not None}
    return [_read(name, path) for name, path in list(paths.items())[:_MAX_FILES]]


def _read(name: str, path: Path) -> _Found:
    try:
        return _folder(name, path) if path.is_dir() else _file(name, path)
    except OSError as error:
        return _Found(name, path, f"cannot be read: {error.strerror}", None)


def _folder(name: str, path: Path) -> _Found:
    entries = sorted(f"{entry.name}{'/' * entry.is_dir()}" for entry in os.scandir(path))
    listed = entries[:_MAX_ENTRIES]
    if len(entries) > len(listed):
        listed.append(f"… {len(entries) - len(listed)} more")
    note = f"folder, {counted(len(entries), 'item')}"
    return _Found(name, path, note, fenced(redact("\n".join(listed))))


def _file(name: str, path: Path) -> _Found:
    length = path.stat().st_size
    if not path.is_file():
        return _Found(name, path, "not a regular file", None)
    if length > _MAX_BYTES:
        return _Found(name, path, f"{human_size(length)}, too large to include", None)
    data = path.read_bytes()[:_MAX_BYTES]
    if b"\0" in data[:_PROBE_BYTES]:
        return _Found(name, path, f"{human_size(length)}, not text", None)
    return _Found(name, path, human_size(length), fenced(redact(data.decode("utf-8", "replace"))))
