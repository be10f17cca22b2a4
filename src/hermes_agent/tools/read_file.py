"""`read_file`: the lines of a text file, or a picture."""

import base64
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

from hermes_agent.tools import files, schema
from hermes_agent.tools.base import Args, Call, Result, Tool
from hermes_agent.turn.stop import Stop
from hermes_core import pictures
from hermes_core.errors import ToolError
from hermes_core.text import truncate

_MAX_LINES = 2_000
_MAX_LINE = 2_000
_MAX_IMAGE_BYTES = 4 * 1024 * 1024
_MAX_SCANNED = 100_000_000
"""Characters that are looked through for the lines that are wanted."""
_CHUNK = 65_536
_NOTE_ROOM = 120


def _run(args: Args, call: Call) -> Result:
    path = files.path_of(call, args["path"])
    with files.open_file(path) as file:
        try:
            return _content(file, path, args, call)
        except OSError as error:
            raise ToolError(f"{path} cannot be read: {error.strerror}.") from error


def _content(file: BinaryIO, path: Path, args: Args, call: Call) -> Result:
    beginning = file.read(8_192)
    kind = pictures.kind_of(beginning)
    if kind:
        return _picture(path, kind)
    if files.is_binary(beginning):
        size = os.fstat(file.fileno()).st_size
        raise ToolError(
            f"{path} is not a text file ({size} bytes).", fix="Look at it with terminal: file, xxd."
        )
    file.seek(0)
    room = call.bench.settings.tools.output_limit - _NOTE_ROOM
    with io.TextIOWrapper(file, "utf-8", "replace", newline=None) as text:
        scan = _Scan(text, call.stop)
        return _lines(path, scan, args.get("offset", 1), args.get("limit", _MAX_LINES), room)


def _picture(path: Path, kind: str) -> Result:
    data = files.read_bytes(path, _MAX_IMAGE_BYTES)
    text = base64.b64encode(data).decode()
    return Result(f"{path.name}: {kind}, {len(data)} bytes.", images=[f"data:{kind};base64,{text}"])


class _Scan:
    """The lines of a file, of each only the beginning; ends after a number of characters."""

    def __init__(self, text: TextIO, stop: Stop) -> None:
        self._text = text
        self._stop = stop
        self._room = _MAX_SCANNED
        self.total = 0

    @property
    def is_cut(self) -> bool:
        """Return whether there is more that was not looked at."""
        return self._room <= 0 and self._text.read(1) != ""

    def __iter__(self) -> Iterator[str]:
        while self._room > 0 and (line := self._piece(_MAX_LINE + 1)):
            self.total += 1
            end = line
            while self._room > 0 and end and not end.endswith("\n"):
                end = self._piece(_CHUNK)
            yield truncate(line.rstrip("\n"), _MAX_LINE)

    def _piece(self, size: int) -> str:
        self._stop.check()
        piece = self._text.readline(size)
        self._room -= len(piece)
        return piece


def _lines(path: Path, scan: _Scan, offset: int, limit: int, room: int) -> Result:
    first = max(offset, 1)
    output: list[str] = []
    used = 0
    for line in scan:
        if scan.total < first:
            continue
        if len(output) < min(limit, _MAX_LINES) and used + len(line) + 1 <= room:
            output.append(line)
            used += len(line) + 1
        else:
            room = 0  # what follows is only counted
    if not scan.total:
        return Result("(the file is empty)")
    is_cut, total = scan.is_cut, scan.total
    if not output and is_cut:
        fix = "Use terminal, for example sed -n or tail."
        raise ToolError(f"{path} is too large: line {first} lies too far inside.", fix=fix)
    if not output:
        raise ToolError(f"{path} has only {total} lines.", fix=f"Give an offset up to {total}.")
    last = first + len(output) - 1
    text = "\n".join(output)
    if first == 1 and last == total and not is_cut:
        return Result(text)
    return Result(f"{text}\n[lines {first}-{last} of {'more than ' if is_cut else ''}{total}]")


TOOL = Tool(
    name="read_file",
    description="Read a text file or picture.",
    parameters=schema.of(
        ["path"],
        path="",
        offset={"type": "integer", "description": "first line, from 1"},
        limit={"type": "integer", "minimum": 1},
    ),
    run=_run,
    subject="path",
    is_path=True,
    read_only=True,
    timeout_s=30,
    small=("path",),
    one_line="Read a file.",
)
