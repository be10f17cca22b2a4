"""Files as tools see them: where a path leads, what may be opened, and replacing one as a whole."""

import contextlib
import hashlib
import os
import stat
from pathlib import Path
from typing import BinaryIO

from hermes_agent.approval.danger import places
from hermes_agent.sandbox import strict_open
from hermes_agent.tools.base import Call, ToolContext
from hermes_core.errors import ToolDeniedError, ToolError
from hermes_core.text import one_line, similar

_MAX_DIFF_LINES = 20_000
_MAX_DIFF_CHARACTERS = 40_000
_BINARY_PROBE = 8_192


def path_of(call: Call, asked: str) -> Path:
    """Return the path that the gate has let through, where it lies for us; its links are resolved.

    It is opened without following links: one that came in since the gate looked leads nowhere.
    """
    if not asked:
        raise ToolError("'' is not a valid path.", fix="Give the path of a file.")
    return real_path(call.bench, call.permit.path)


def real_path(bench: ToolContext, resolved: str) -> Path:
    """Return where a path that tools use lies for us."""
    path = Path(resolved)
    if places.is_temporary(str(path), places.place_of(bench.workspace, bench.home.root)):
        sandbox = bench.processes.sandbox
        real = sandbox.real(path, bench.workspace)  # what confined commands see there is their own
        if real != path:
            return Path(os.path.realpath(sandbox.private), real.relative_to(sandbox.private))
    return path


def display_name(bench: ToolContext, path: Path) -> str:
    """Return a path as a person would name it: relative inside the workspace."""
    with contextlib.suppress(ValueError):
        return str(path.relative_to(os.path.realpath(bench.workspace)))
    return str(path)


def check_file(path: Path) -> os.stat_result:
    """Raise ToolError unless this is a plain file."""
    try:
        found = strict_open.stat_of(str(path))
    except FileNotFoundError:
        raise ToolError(f"There is no file {path}.", fix=_near(path)) from None
    except OSError as error:
        raise ToolError(f"{path} cannot be opened: {error.strerror}.") from error
    if stat.S_ISDIR(found.st_mode):
        raise ToolError(f"{path} is a folder.", fix="Use search_files or terminal to list it.")
    if stat.S_ISLNK(found.st_mode):
        raise ToolError(f"{path} is a link.", fix="Give the path that it leads to.")
    if not stat.S_ISREG(found.st_mode):
        raise ToolError(f"{path} is a device or a pipe, not a file.", fix="Use a plain file.")
    return found


def _near(path: Path) -> str:
    """Names beside it that may have been meant."""
    with contextlib.suppress(OSError):
        folder = strict_open.read_from(str(path.parent), os.O_DIRECTORY)
        try:
            names = sorted(entry.name for entry in os.scandir(folder))
        finally:
            os.close(folder)
        close = similar(path.name, names, 3)
        if close:
            return f"Did you mean: {', '.join(close)}?"
    return "Look for it with search_files."


def exists(path: Path) -> bool:
    """Return whether something lies at this path."""
    try:
        strict_open.stat_of(str(path))
    except OSError:
        return False
    return True


def open_file(path: Path) -> BinaryIO:
    """Open a plain file; raises ToolError, also when a link or a device takes its place meanwhile."""
    check_file(path)  # first: opening a device may do something
    try:
        file = os.fdopen(strict_open.read_from(str(path)), "rb")
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
    try:
        folder = strict_open.open_folder(str(path.parent), make=True)
        try:
            _replace_in(folder, path.name, data)
        finally:
            os.close(folder)
    except OSError as error:
        raise ToolError(f"{path} cannot be written: {error.strerror}.") from error


def _replace_in(folder: int, name: str, data: bytes) -> None:
    draft = f".{name[:100]}.{os.getpid()}.hermes"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, 0o666, dir_fd=folder), "wb") as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            with contextlib.suppress(FileNotFoundError):
                before = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISREG(before.st_mode):
                    os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft, dir_fd=folder)
            raise


def digest(data: bytes | None) -> str:
    """Return a digest of the content of a file; of none, too."""
    return "absent" if data is None else hashlib.sha256(data).hexdigest()


def check_basis(call: Call, data: bytes | None) -> None:
    """Raise ToolError when a file is not what a person was shown the change of."""
    if call.permit.basis not in ("", digest(data)):
        raise ToolError(
            f"{call.permit.path} has changed since the question about it was asked; nothing was"
            " written.",
            fix="Look at it again and repeat the call.",
        )


def is_hidden(bench: ToolContext, resolved: str) -> bool:
    """Return whether the content of a file is not shown unasked, also not with a question."""
    return bool(places.of_read(resolved, bench.place))


def whole_diff(path: str, before: str, after: str) -> str:
    """Return a unified diff with every change in it; raises ToolDeniedError when that is too large."""
    if max(before.count("\n"), after.count("\n")) > _MAX_DIFF_LINES:
        raise ToolDeniedError(
            f"The change of {path} is too large to be shown, so nobody can allow it.",
            fix="Change a smaller file, or use smaller files.",
        )
    return _unified(one_line(path), before, after) or "(the content stays the same)"


def diff(name: str, before: str, after: str) -> str:
    """A unified diff for a person; large ones are only counted."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    if max(len(old), len(new)) > _MAX_DIFF_LINES:
        return f"--- {name}\n+++ {name}\n(too large to compare: {len(old)} and {len(new)} lines)\n"
    text = _unified(name, before, after)
    if len(text) > _MAX_DIFF_CHARACTERS:
        return f"{text[:_MAX_DIFF_CHARACTERS]}\n(the rest of the comparison is left out)\n"
    return text


def _unified(name: str, before: str, after: str) -> str:
    import difflib  # noqa: PLC0415 -- slow to load, and needed for changes alone

    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    lines = difflib.unified_diff(old, new, name if before else "/dev/null", name)
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
