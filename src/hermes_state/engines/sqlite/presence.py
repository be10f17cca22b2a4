"""Lock a store while it is open, and detect that its file was replaced.

Every process with an open store holds a shared lock on a file beside it; replacing the store needs the
exclusive lock. So no process keeps the old file, whose log SQLite would mistake for the log of the new
one. A person can still remove or replace the file by hand: this is detected before a write is
acknowledged.
"""

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from hermes_core import config
from hermes_core.errors import StoreBusyError
from hermes_core.paths import touch_private

LOCK_VARIABLE = "HERMES_STORE_LOCK"
"""The descriptor of the lock that a parent process lends us."""
_POLL_INTERVAL_S = 0.02
_MIN_AGE_NS = 1_000_000_000
"""After this long, the next change of a folder has a new timestamp on any file system."""


class Presence:
    """Holds the shared lock of one open store and the identity of its files."""

    def __init__(self, store: Path, timeout_s: float, *, read_only: bool) -> None:
        self._lock = _inherited(store)
        is_shared = self._lock < 0
        if is_shared:
            self._lock = _opened(store, read_only=read_only)
        if self._lock >= 0 and is_shared:
            try:
                _share(self._lock, store, timeout_s)
            except BaseException:
                self.close()
                raise
        real = store.resolve()
        self._folder = str(real.parent)
        self._files = [real.with_name(real.name + suffix) for suffix in ("", "-wal", "-shm")]
        self._identities: dict[Path, tuple[int, int]] = {}
        self._quiet: tuple[int, int] | None = None

    def remember(self) -> None:
        """Record the files of the store, which is open now."""
        found = ((file, identity(file)) for file in self._files)
        self._identities = {file: identity_ for file, identity_ in found if identity_ is not None}

    def is_ours(self) -> bool:
        """Return whether the paths still name the files that were opened."""
        try:
            folder = os.stat(self._folder)  # noqa: PTH116 -- half the time of Path's, in every commit
        except OSError:
            return self._is_unchanged()
        now = (folder.st_ino, folder.st_ctime_ns)
        if now == self._quiet:
            return True  # most commits need only this one call
        same = self._is_unchanged()
        if same and time.time_ns() - folder.st_ctime_ns > _MIN_AGE_NS:
            self._quiet = now
        return same

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _is_unchanged(self) -> bool:
        try:
            return all(identity(file) == identity_ for file, identity_ in self._identities.items())
        except OSError:
            return True  # unknown: no permission, or the server is away


@contextmanager
def alone_with(store: Path) -> Generator[None]:
    """Hold the exclusive lock; raise StoreBusyError while another process has the store open."""
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
    """Return the error for replacing a store that is open elsewhere."""
    return StoreBusyError(
        f"{store} is in use, so nothing was changed.",
        fix="Close every other Hermes (`hermes gateway stop`, terminals), then run it again.",
    )


def _inherited(store: Path) -> int:
    """Return a copy of the exclusive lock that a parent process holds and lends us, or -1.

    `hermes update` keeps everybody else out of a store while the new version checks it.
    """
    try:
        lock = int(config.variable(LOCK_VARIABLE))
        real = store.resolve()
        path = real.with_name(real.name + "-open")
        if not os.path.samestat(os.fstat(lock), path.stat()):
            return -1
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no change for who has it already
        return os.dup(lock)
    except (ValueError, OSError):
        return -1


def _opened(store: Path, *, read_only: bool) -> int:
    real = store.resolve()
    path = real.with_name(real.name + "-open")
    try:
        if not read_only:
            touch_private(path)
        return os.open(path, os.O_RDONLY)
    except OSError:
        return -1  # a read-only folder: nothing in it can be replaced


def _share(lock: int, store: Path, timeout_s: float) -> None:
    began = time.monotonic()
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() - began > timeout_s:
                raise StoreBusyError(
                    f"{store} is being repaired or updated.",
                    fix="Wait until that is done.",
                ) from error
        time.sleep(_POLL_INTERVAL_S)


def identity(file: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file, or None when it does not exist."""
    try:
        found = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
