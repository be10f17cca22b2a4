"""Files and links of a workspace in the terms of a git tree: read, written and deleted by their path.

No link on the way is followed.
"""

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable
from typing import NamedTuple

from hermes_agent.sandbox import strict_open

FILE, PROGRAM, LINK = "100644", "100755", "120000"
_CHUNK = 1 << 20


class Entry(NamedTuple):
    """A file or a link: its mode in git, and the id of its content."""

    mode: str
    id: str


def blob_id(data: bytes) -> str:
    """Return the id that git gives to a content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


_PLACEHOLDER = b"hermes: too large to keep\n"


def placeholder(found: os.stat_result) -> bytes:
    """Return what stands in a tree for a file that is too large; it changes as the file does."""
    facts = f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}\n"
    return _PLACEHOLDER + facts.encode()


def is_placeholder(data: bytes) -> bool:
    """Return whether this content stands for one that was not kept."""
    return data.startswith(_PLACEHOLDER)


def mode_of(found: os.stat_result) -> str:
    """Return the mode in git of a file or a link."""
    if stat.S_ISLNK(found.st_mode):
        return LINK
    return PROGRAM if found.st_mode & stat.S_IXUSR else FILE


def is_plain(path: str) -> bool:
    """Return whether a path of a tree stays below its root and outside of `.git`."""
    parts = path.split("/")
    return all(part not in ("", ".", "..") and part.casefold() != ".git" for part in parts)


def read(workspace: str, path: str, max_bytes: int) -> Entry | None:
    """Return what lies at a path; None when nothing does that a tree can hold."""
    parent, _, name = f"{workspace}/{path}".rpartition("/")
    try:
        folder = strict_open.open_folder(parent)
    except OSError:
        return None
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            return Entry(LINK, blob_id(os.fsencode(os.readlink(name, dir_fd=folder))))
        if not stat.S_ISREG(found.st_mode):
            return None
        if found.st_size > max_bytes:
            return Entry(mode_of(found), blob_id(placeholder(found)))
        return Entry(mode_of(found), _file_id(name, folder))
    except OSError:
        return None
    finally:
        os.close(folder)


def _file_id(name: str, folder: int) -> str:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
        return blob_id(file.read())


def remove(workspace: str, path: str) -> None:
    """Delete a file or a link, and the folders that are empty then. Raises OSError."""
    _at_parent(workspace, path, lambda folder, name: os.unlink(name, dir_fd=folder))
    parent = path.rpartition("/")[0]
    with contextlib.suppress(OSError):
        while parent:
            _at_parent(workspace, parent, lambda folder, name: os.rmdir(name, dir_fd=folder))
            parent = parent.rpartition("/")[0]


def write(workspace: str, path: str, entry: Entry, data: bytes) -> None:
    """Put a file or a link in the place of what is there, all at once. Raises OSError."""
    parent, _, name = f"{workspace}/{path}".rpartition("/")
    folder = strict_open.open_folder(parent, make=True)
    draft = f".{os.urandom(8).hex()}.hermes"
    try:
        if entry.mode == LINK:
            os.symlink(os.fsdecode(data), draft, dir_fd=folder)
        else:
            _write_file(folder, name, draft, data, is_program=entry.mode == PROGRAM)
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=folder)  # a folder that is empty by now
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=folder)  # what could not be put in place
        os.close(folder)


def _write_file(folder: int, name: str, draft: str, data: bytes, *, is_program: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, 0o666, dir_fd=folder), "wb") as file:
        file.write(data)
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        with contextlib.suppress(OSError):
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                mode = stat.S_IMODE(found.st_mode)
        readers = mode & 0o444
        os.fchmod(file.fileno(), mode | readers >> 2 if is_program else mode & ~0o111)


def _at_parent(workspace: str, path: str, act: Callable[[int, str], None]) -> None:
    parent, _, name = f"{workspace}/{path}".rpartition("/")
    folder = strict_open.open_folder(parent)
    try:
        act(folder, name)
    finally:
        os.close(folder)
