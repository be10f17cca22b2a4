"""ReplyAttachments: the files that a reply brings along, each named by a line of it.

A line `MEDIA:/absolute/path` that stands alone becomes a file; it is taken out of the text, or replaced
by the reason why nothing is sent. A file leaves the machine only for who may have files read to them,
and only out of the workspace; what people sent here goes to an owner in private alone.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from gateway.source import SessionSource
from hermes_agent.approval.danger import places
from hermes_agent.permissions import Permissions
from hermes_core import markdown
from hermes_core.paths import Home

MARK = "MEDIA:"
"""What a line begins with that names a file."""
_READING = "read_file"
"""The tool that somebody must have."""
_MOST = 10
MANNER = (
    "To send the user a file of the workspace, put a line MEDIA:/absolute/path, alone, into your final"
    " reply, one for each file."
)
"""What the model is told where files can be sent."""


class ReplyWithFiles(NamedTuple):
    """A reply as it is sent."""

    text: str
    files: list[str]


class ReplyAttachments:
    """Decides which files go along."""

    def __init__(
        self,
        home: Home,
        limit_bytes: int,
        permissions_of: Callable[[SessionSource], Permissions],
    ) -> None:
        self._home = home
        self._limit = limit_bytes
        self._permissions_of = permissions_of

    def of(self, text: str, place: SessionSource, workspace: Path) -> ReplyWithFiles:
        """The files of a reply to somebody, and what is left of its text."""
        if MARK not in text:
            return ReplyWithFiles(text, [])
        permissions = self._permissions_of(place)
        lines: list[str] = []
        files: list[str] = []
        for line, path in _read(text):
            if path is None:
                lines.append(line)
            elif refusal := self._refusal(path, permissions, workspace, len(files)):
                lines.append(f"[{Path(path).name or path} is not sent: {refusal}.]")
            else:
                files.append(os.path.realpath(path))
        names = ", ".join(Path(one).name for one in files)
        return ReplyWithFiles("\n".join(lines).strip() or (names and f"📎 {names}"), files)

    def _refusal(self, path: str, permissions: Permissions, workspace: Path, so_far: int) -> str:
        """Why a file does not go along; empty when it does."""
        if not may_send(permissions):
            return "who asked may not read files here"
        real = os.path.realpath(path)
        if not Path(path).is_absolute() or not self._is_open(real, permissions, workspace):
            return "only files of the workspace that are not hidden are"
        if not Path(real).is_file():
            return "there is no such file"
        if (size := Path(real).stat().st_size) > self._limit:
            return f"it has {size >> 20} MB, and {self._limit >> 20} MB are the most"
        return f"{_MOST} files are the most" if so_far >= _MOST else ""

    def _is_open(self, path: str, permissions: Permissions, workspace: Path) -> bool:
        """Whether a file may leave: by where it lies, with every link followed."""
        place = places.place_of(workspace, self._home.root)
        if places.is_under(path, os.path.realpath(self._home.attachments)):
            return permissions.is_owner and permissions.is_private  # others may have sent it
        if not places.is_under(path, place.workspace) or places.is_under(path, place.home):
            return False
        inside = Path(path).relative_to(place.workspace).parts
        is_hidden = any(part.startswith(".") for part in inside)
        return not is_hidden and not places.is_secret(path, place)


def may_send(permissions: Permissions) -> bool:
    """Whether files of the machine may go to somebody."""
    return permissions.tools is None or _READING in permissions.tools


def without(text: str) -> str:
    """What of a reply is shown while it is written: its files are named when they are sent."""
    if MARK not in text:
        return text
    return "\n".join(line for line, path in _read(text) if path is None)


def _read(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield the lines of a text, each with the file that it names; code names none."""
    code = markdown.code_lines(text)
    for number, line in enumerate(text.split("\n")):
        words = line.strip()
        is_named = words.startswith(MARK) and number not in code
        yield line, words.removeprefix(MARK).strip().strip("`") if is_named else None
