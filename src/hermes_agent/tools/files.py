"""Files as tools see them: where a path leads, what may be opened, and replacing one as a whole."""

import contextlib
import difflib
import os
import stat
from pathlib import Path
from typing import BinaryIO

from hermes_agent.approval.danger import places
from hermes_agent.tools.base import ToolContext
from hermes_core.errors import ToolError

_MAX_DIFF_LINES = 20_000
_MAX_DIFF_CHARACTERS = 40_000
_BINARY_PROBE = 8_192


def resolve(bench: ToolContext, path: str) -> Path:
    """The file that is meant, every link followed; relative paths start where commands start."""
    if not path:
        raise ToolError("'' is not a valid path.", fix="Give the path of a file.")
    meant = Path(os.path.normpath(bench.cwd / places.expand(path)))
    place = places.place_of(bench.workspace, bench.home.root)
    if places.is_temporary(str(meant), place):  # what confined commands see there is their own
        meant = bench.processes.sandbox.real(meant, bench.workspace)
    return Path(places.resolve(str(meant), "/"))


def display_name(bench: ToolContext, path: Path) -> str:
    """Return a path as a person would name it: relative inside the workspace."""
    with contextlib.suppress(ValueError):
        return str(path.relative_to(os.path.realpath(bench.workspace)))
    return str(path)


def check_file(path: Path) -> os.stat_result:
    """Raise ToolError unless this is a plain file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise ToolError(f"There is no file {path}.", fix=_near(path)) from None
    except OSError as error:
        raise ToolError(f"{path} cannot be opened: {error.strerror}.") from error
    if stat.S_ISDIR(found.st_mode):
        raise ToolError(f"{path} is a folder.", fix="Use search_files or terminal to list it.")
    if not stat.S_ISREG(found.st_mode):
        raise ToolError(f"{path} is a device or a pipe, not a file.", fix="Use a plain file.")
    return found


def _near(path: Path) -> str:
    """Names beside it that may have been meant."""
    with contextlib.suppress(OSError):
        names = sorted(entry.name for entry in path.parent.iterdir())
        close = difflib.get_close_matches(path.name, names, 3)
        if close:
            return f"Did you mean: {', '.join(close)}?"
    return "Look for it with search_files."


def open_file(path: Path) -> BinaryIO:
    """Open a plain file; raises ToolError, also when a pipe or a device takes its place meanwhile."""
    check_file(path)  # first: opening a device may do something
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError as error:
        raise ToolError(f"{path} cannot be read: {error.strerror}.") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ToolError(f"{path} is not a file any more.", fix="Look at it again.")
    return file


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a plain file; raises ToolError when it is too large or cannot be read."""
    with open_file(path) as file:
        try:
            data = file.read(most + 1)
        except OSError as error:
            raise ToolError(f"{path} cannot be read: {error.strerror}.") from error
    if len(data) > most:
        raise ToolError(
            f"{path} is too large: more than {most} bytes.", fix="Use terminal for a part of it."
        )
    return data


def is_binary(data: bytes) -> bool:
    """Return whether this is binary."""
    return b"\0" in data[:_BINARY_PROBE]


def replace(path: Path, data: bytes) -> None:
    """Put this content in place of a file's, all at once; its mode stays. Raises ToolError."""
    draft = path.with_name(f".{path.name[:100]}.{os.getpid()}.hermes")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
        with draft.open("xb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        if mode is not None:
            draft.chmod(mode)
        draft.replace(path)
    except OSError as error:
        raise ToolError(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def diff(name: str, before: str, after: str) -> str:
    """A unified diff for a person; large ones are only counted."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    if max(len(old), len(new)) > _MAX_DIFF_LINES:
        return f"--- {name}\n+++ {name}\n(too large to compare: {len(old)} and {len(new)} lines)\n"
    lines = difflib.unified_diff(old, new, name if before else "/dev/null", name)
    text = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
    if len(text) > _MAX_DIFF_CHARACTERS:
        return f"{text[:_MAX_DIFF_CHARACTERS]}\n(the rest of the comparison is left out)\n"
    return text
