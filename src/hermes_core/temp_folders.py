"""Temporary folders that are removed whatever ends the process.

A folder is locked while its process lives. It is removed when closed, at process exit, or, after a kill,
by the next process that creates one.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

_PREFIX = "hermes-"
_MIN_AGE_S = 3600.0
"""Younger folders are left alone: another process may be about to lock its own."""
_MAX_REMOVED = 1000


class TempFolder:
    """A folder of this process alone."""

    def __init__(self, kind: str) -> None:
        """`kind` is in the name of the folder, for people."""
        _remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-"))
        self._lock = _lock(self.path)
        _open.add(self)

    def close(self) -> None:
        """Remove the folder with what is in it; may be called again."""
        if self in _open:
            _open.discard(self)
            shutil.rmtree(self.path, ignore_errors=True)
            if self._lock is not None:
                os.close(self._lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_exception: object) -> None:
        self.close()


_open: set[TempFolder] = set()
_owner = os.getpid()
_has_looked: list[bool] = []


@atexit.register
def _close_all() -> None:
    if os.getpid() == _owner:  # a fork must not remove the folders of its parent
        for folder in list(_open):
            folder.close()


def _lock(path: Path) -> int | None:
    """Lock a folder until the descriptor is closed; returns None when somebody else has the lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_abandoned() -> None:
    """Remove old folders of our user that no living process has locked; once per process."""
    if _has_looked:
        return
    _has_looked.append(True)
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        candidates = [entry for entry in entries if entry.name.startswith(_PREFIX)]
        for entry in candidates[:_MAX_REMOVED]:
            with suppress(OSError):
                _remove_if_abandoned(entry)


def _remove_if_abandoned(entry: os.DirEntry[str]) -> None:
    status = entry.stat(follow_symlinks=False)
    is_ours = entry.is_dir(follow_symlinks=False) and status.st_uid == os.getuid()
    if not is_ours or time.time() - status.st_mtime < _MIN_AGE_S:
        return
    descriptor = _lock(Path(entry.path))
    if descriptor is not None:
        shutil.rmtree(entry.path, ignore_errors=True)
        os.close(descriptor)
