"""Opening resolved paths step by step, without following a link that came in since."""

import contextlib
import errno
import os
import stat

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_folder(path: str, *, make: bool = False) -> int:
    """Open a folder and return its descriptor; `make` makes those that are missing. Raises OSError."""
    fd = os.open("/", _FOLDER)
    for name in filter(None, path.split("/")):
        try:
            inner = _inner(name, fd, make=make)
        finally:
            os.close(fd)
        fd = inner
    return fd


def _inner(name: str, parent: int, *, make: bool) -> int:
    if name == "..":
        raise OSError(errno.EINVAL, "Not a resolved path")
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
    return os.open(name, _FOLDER, dir_fd=parent)


def open_file(path: str, flags: int, *, mode: int = 0o666) -> int:
    """Open a path whose links are all resolved; raises OSError, also for one that is a link by now."""
    folder, _, name = path.rstrip("/").rpartition("/")
    parent = open_folder(folder)
    try:
        return os.open(name or ".", flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=parent)
    finally:
        os.close(parent)


def read_from(path: str, flags: int = 0) -> int:
    """Open a file or a folder for reading; never waits for a pipe. Raises OSError."""
    return open_file(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | flags)


def stat_of(path: str) -> os.stat_result:
    """Return what lies at a path, without opening it; raises OSError."""
    folder, _, name = path.rstrip("/").rpartition("/")
    parent = open_folder(folder)
    try:
        return os.stat(name or ".", dir_fd=parent, follow_symlinks=False)
    finally:
        os.close(parent)


def open_anything(path: str) -> int:
    """Return a descriptor that only names a file or a folder (Linux); raises OSError."""
    fd = open_file(path, os.O_PATH)
    if stat.S_ISLNK(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return fd
