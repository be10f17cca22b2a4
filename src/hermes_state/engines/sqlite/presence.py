"""Who has a store open, and whether the file they have open is still the one at its place.

Everybody who opens a store shares a lock on a file beside it, as long as the store is open; who replaces
the store must have that lock alone. So nobody can be left with the old file, whose log SQLite would take
for the log of the new one. Nothing of this keeps a person from removing or replacing the file by hand:
then what is written goes where nobody will find it, which is noticed before it is acknowledged.
"""

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from hermes_core.errors import StoreBusyError
from hermes_core.paths import touch_private

_NAP_S = 0.02
_SETTLED_NS = 1_000_000_000
"""A folder that changed longer ago than this shows its next change by a new time, on any file system."""


class Presence:
    """One open store's share in the lock, and its memory of which file it opened."""

    def __init__(self, store: Path, timeout_s: float, *, read_only: bool) -> None:
        self._lock = _opened(store, read_only=read_only)
        if self._lock >= 0:
            try:
                _share(self._lock, store, timeout_s)
            except BaseException:
                self.close()
                raise
        real = store.resolve()
        self._folder = str(real.parent)
        self._files = [real.with_name(real.name + suffix) for suffix in ("", "-wal", "-shm")]
        self._known: dict[Path, tuple[int, int]] = {}
        self._quiet: tuple[int, int] | None = None

    def remember(self) -> None:
        """The store is open now: these are its files."""
        found = ((file, identity(file)) for file in self._files)
        self._known = {file: known for file, known in found if known is not None}

    def is_ours(self) -> bool:
        """Whether the files at their place are still those that were opened."""
        try:
            folder = os.stat(self._folder)  # noqa: PTH116 -- half the time of Path's, in every commit
        except OSError:
            return self._is_unchanged()
        now = (folder.st_ino, folder.st_ctime_ns)
        if now == self._quiet:
            return True  # one look at the folder is all that most commits pay
        same = self._is_unchanged()
        if same and time.time_ns() - folder.st_ctime_ns > _SETTLED_NS:
            self._quiet = now
        return same

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _is_unchanged(self) -> bool:
        try:
            return all(identity(file) == known for file, known in self._known.items())
        except OSError:
            return True  # nothing is known: a folder one may not enter, a server that is away


@contextmanager
def alone_with(store: Path) -> Generator[None]:
    """Be the only one who has the store open; refused while somebody else has it."""
    lock = _opened(store, read_only=False)
    try:
        if lock >= 0:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise in_use(store) from error
        yield
    finally:
        if lock >= 0:
            os.close(lock)


def in_use(store: Path) -> StoreBusyError:
    """The error for who would replace a store that somebody has open."""
    return StoreBusyError(
        f"{store} is in use, so it was not repaired.",
        fix="Nothing was changed. Close every other Hermes (`hermes gateway stop`, terminals, "
        "dashboards), then run it again.",
    )


def _opened(store: Path, *, read_only: bool) -> int:
    real = store.resolve()
    path = real.with_name(real.name + "-open")
    try:
        if not read_only:
            touch_private(path)
        return os.open(path, os.O_RDONLY)
    except OSError:
        return -1  # a folder that nobody may write to: nothing there can be replaced either


def _share(lock: int, store: Path, timeout_s: float) -> None:
    began = time.monotonic()
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() - began > timeout_s:
                raise StoreBusyError(
                    f"{store} is being repaired.", fix="Wait until that is done."
                ) from error
        time.sleep(_NAP_S)


def identity(file: Path) -> tuple[int, int] | None:
    """Which file is at a place, however it is written to; None when there is none."""
    try:
        found = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
