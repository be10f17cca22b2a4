"""`read_file`: the lines of a text file, or a picture."""

import base64
import itertools
from pathlib import Path

from hermes_agent.tools import files, schema
from hermes_agent.tools.base import Args, Call, Result, Tool
from hermes_core import pictures
from hermes_core.errors import ToolError
from hermes_core.text import truncate

_MAX_LINES = 2_000
_MAX_LINE = 2_000
_MAX_IMAGE_BYTES = 4 * 1024 * 1024
_NOTE_ROOM = 120


def _run(args: Args, call: Call) -> Result:
    path = files.resolve(call.bench, args["path"])
    size = files.check_file(path).st_size
    try:
        with path.open("rb") as f:
            beginning = f.read(8_192)
    except OSError as error:
        raise ToolError(f"{path} cannot be read: {error.strerror}.") from error
    kind = pictures.kind_of(beginning)
    if kind:
        return _picture(path, kind, size)
    if files.is_binary(beginning):
        raise ToolError(
            f"{path} is not a text file ({size} bytes).", fix="Look at it with terminal: file, xxd."
        )
    room = call.bench.settings.tools.output_limit - _NOTE_ROOM
    return _lines(path, args.get("offset", 1), args.get("limit", _MAX_LINES), room)


def _picture(path: Path, kind: str, size: int) -> Result:
    if size > _MAX_IMAGE_BYTES:
        raise ToolError(f"The picture {path} is too large: {size} bytes.", fix="Make it smaller.")
    data = base64.b64encode(path.read_bytes()).decode()
    return Result(f"{path.name}: {kind}, {size} bytes.", images=[f"data:{kind};base64,{data}"])


def _lines(path: Path, offset: int, limit: int, room: int) -> Result:
    first = max(offset, 1)
    output: list[str] = []
    used = 0
    with path.open(encoding="utf-8", errors="replace", newline=None) as f:
        total = sum(1 for _ in itertools.islice(f, first - 1))
        for line in f:
            total += 1
            text = truncate(line.rstrip("\n"), _MAX_LINE)
            if len(output) < min(limit, _MAX_LINES) and used + len(text) + 1 <= room:
                output.append(text)
                used += len(text) + 1
            else:
                room = 0  # what follows is only counted
    if not total:
        return Result("(the file is empty)")
    if not output:
        raise ToolError(f"{path} has only {total} lines.", fix=f"Give an offset up to {total}.")
    last = first + len(output) - 1
    text = "\n".join(output)
    is_whole = first == 1 and last == total
    return Result(text if is_whole else f"{text}\n[lines {first}-{last} of {total}]")


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
