"""Lock files: held by at most one process, released by the system when that process ends.

A file may carry a record of its holder, which others read to say who has the lock.
"""

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path

_MAX_RECORD = 64 * 1024


class LockHeldError(Exception):
    """Another process holds the lock."""

    def __init__(self, path: Path, record: bytes, owner: int) -> None:
        super().__init__(f"{path} is locked by another process")
        self.record = record
        """The record of the holder; may be empty."""
        self.owner = owner
        """The user id of the owner of the file."""


class LockFile:
    """A lock file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    @property
    def is_held(self) -> bool:
        return self._descriptor >= 0

    @property
    def descriptor(self) -> int:
        """The descriptor that has the lock, for processes that inherit it; -1 if it is not held."""
        return self._descriptor

    def acquire(self, *, wait: bool = False) -> None:
        """Create and lock the file, again if its last holder removes it meanwhile.

        Raises OSError, and LockHeldError unless it may `wait`.
        """
        while not self.is_held:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                if _is_at(descriptor, self.path):
                    self._descriptor, descriptor = descriptor, -1
            except BlockingIOError:
                found = os.fstat(descriptor)
                record = os.pread(descriptor, _MAX_RECORD, 0)
                raise LockHeldError(self.path, record, found.st_uid) from None
            finally:
                if descriptor >= 0:
                    os.close(descriptor)

    def create(self) -> None:
        """Create a new file that gets its name only once it is locked."""
        temp = self.path.with_name(f".{self.path.name}.{os.getpid()}-{os.urandom(4).hex()}")
        descriptor = os.open(temp, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        temp.rename(self.path)
        self._descriptor = descriptor

    def write(self, record: bytes) -> None:
        """Replace the record; a concurrent reader may see the tail of the old one behind it."""
        os.fchmod(self._descriptor, 0o600)
        os.pwrite(self._descriptor, record, 0)
        os.ftruncate(self._descriptor, len(record))

    def release(self, *, remove: bool = False) -> None:
        """Unlock the file; with `remove` delete it, unless another process holds it by now."""
        if not self.is_held:
            return
        try:
            if remove and _is_at(self._descriptor, self.path):
                self.path.unlink(missing_ok=True)
        finally:
            os.close(self._descriptor)
            self._descriptor = -1


@contextlib.contextmanager
def locked(path: Path) -> Generator[None]:
    """Wait for the lock of a file and hold it within a block."""
    lock = LockFile(path)
    lock.acquire(wait=True)
    try:
        yield
    finally:
        lock.release()


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of a file. Raises FileNotFoundError."""
    with path.open("rb") as file:
        try:
            # Shared, so that two concurrent checks do not see each other as the holder.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
