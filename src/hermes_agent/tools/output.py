"""The output of commands: made plain, kept within bounds, and saved whole when only a part is shown."""

import codecs
import contextlib
import os
import re
from collections import deque
from collections.abc import Callable
from pathlib import Path

from hermes_core.paths import write_private
from hermes_core.secrets import redact

_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours and moves
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles and links
    r"|[PX^_][^\x1b]*\x1b\\|[()*+][0-9A-Za-z]|[@-Z\\-_=>78])"
)
_CONTROL = re.compile(r"[\x00-\x07\x0b-\x1f\x7f]")
_BACKSPACE = re.compile(r"[^\x08]?\x08")
_MAX_LINE = 64_000
_MAX_CAPTURE = 2_000_000
"""Characters kept of the beginning and of the end."""
_MAX_FILES = 200
_NOTE_ROOM = 200


class Plain:
    """Bytes to plain text: any encoding error replaced, no colours, progress bars as they ended."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes) -> str:
        """The lines that are complete now."""
        self._rest += self._decoder.decode(data)
        whole, newline, self._rest = self._rest.rpartition("\n")
        text = "".join(f"{plain_line(line)}\n" for line in whole.split("\n")) if newline else ""
        if len(self._rest) > _MAX_LINE:
            text += self._shorten_rest()
        return text

    def _shorten_rest(self) -> str:
        """A line without end: what was overwritten is dropped, the rest goes out as it is."""
        overwritten, _, last = self._rest.rstrip("\r").rpartition("\r")
        if overwritten:
            self._rest = last
            return ""
        out, self._rest = plain_line(self._rest), ""
        return out

    def end(self) -> str:
        """The last line, which has no line end."""
        rest, self._rest = self._rest + self._decoder.decode(b"", final=True), ""
        return plain_line(rest)


def plain_line(line: str) -> str:
    """A line as it would stand on a screen in the end."""
    line = _ESCAPE.sub("", line)
    if "\r" in line:
        line = next((part for part in reversed(line.split("\r")) if part), "")
    while "\x08" in line:
        line = _BACKSPACE.sub("", line, count=1)
    return _CONTROL.sub("", line)


class Capture:
    """Text within bounds: the beginning and the end are kept, the middle of too much is not."""

    def __init__(self, limit: int = _MAX_CAPTURE) -> None:
        self._limit = limit
        self._head: list[str] = []
        self._head_size = 0
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self.total = 0

    def add(self, text: str) -> None:
        self.total += len(text)
        room = self._limit - self._head_size
        if room > 0:
            self._head.append(text[:room])
            self._head_size += min(len(text), room)
            text = text[room:]
        if text:
            self._tail.append(text)
            self._tail_size += len(text)
            while self._tail_size - len(self._tail[0]) >= self._limit:
                self._tail_size -= len(self._tail.popleft())

    @property
    def lost(self) -> int:
        """Characters of the middle that were not kept."""
        return self.total - self._head_size - self._tail_size

    def text(self) -> str:
        """All that was kept, with a note where something is missing."""
        gap = f"\n[… {self.lost} characters were not kept …]\n" if self.lost else ""
        return "".join(self._head) + gap + "".join(self._tail)


class Progress:
    """Lets lines through as they come, and fewer the more there are; measured by size, not by time."""

    def __init__(self, tell: Callable[[str], None], free: int = 2_000, step: int = 4_000) -> None:
        self._tell = tell
        self._free = free
        self._step = step
        self._waiting = 0

    def add(self, text: str) -> None:
        lines = text.strip("\n")
        if not lines:
            return
        if self._free > 0:
            head = lines[: self._free]
            self._free -= len(head)
            self._tell(redact(head))
            return
        self._waiting += len(lines)
        if self._waiting >= self._step:
            self._waiting = 0
            self._tell(redact(lines.rpartition("\n")[2][-200:]))


def for_model(text: str, limit: int, folder: Path) -> str:
    """Return the text for the model: whole, or both ends and the path of the saved whole."""
    text = redact(text)
    if len(text) <= limit:
        return text
    path = folder / f"{os.urandom(16).hex()}.txt"
    write_private(path, text)
    _drop_old(folder.parent)
    room = max(limit - _NOTE_ROOM - len(str(path)), limit // 2)
    head, tail = _whole_lines(text, room * 2 // 3, room - room * 2 // 3)
    left_out = len(text) - len(head) - len(tail)
    note = f"[… {left_out} of {len(text)} characters left out; all of it: {path} …]"
    return f"{head.rstrip()}\n{note}\n{tail.lstrip()}"


def _whole_lines(text: str, head_size: int, tail_size: int) -> tuple[str, str]:
    """Both ends, cut at line ends when those are near."""
    head, tail = text[:head_size], text[-tail_size:]
    cut = head.rfind("\n")
    head = head[:cut] if cut > head_size // 2 else head
    cut = tail.find("\n")
    return head, tail[cut + 1 :] if 0 <= cut < tail_size // 2 else tail


def _drop_old(outputs: Path) -> None:
    """Delete the oldest outputs of all conversations."""
    saved = sorted(outputs.rglob("*.txt"), key=lambda path: path.stat().st_mtime)
    for path in saved[:-_MAX_FILES]:
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it has others
            path.parent.rmdir()
