"""Share the write lock fairly between processes.

SQLite gives its lock to the process that polls at the right moment. Frequent polling costs more than
the writes; rare polling lets a process wait for seconds while another writes without pause. So a waiting
process polls rarely at first. After a while it requests priority with a lock on a file beside the store,
and the others let it write first. The lock dies with its process, and nobody yields for longer than a
moment: fairness can delay a write, never prevent it.

A byte in that file says that a process may have requested priority. It is read from mapped memory before
every write; only the lock tells whether the request still stands.
"""

import fcntl
import mmap
import os
import time
from contextlib import suppress
from pathlib import Path

from hermes_core.paths import touch_private

_PRIORITY_AFTER_S = 0.25
"""How long a process waits before it requests priority."""

_MAX_YIELD_S = 0.05
"""How long the others yield when it does not write."""

_PAUSES_S = (0.0005, 0.001, 0.002, 0.004, 0.008)
_LONG_PAUSES_S = (0.02, 0.04)
"""Pauses of a process that has just written, as it probably writes without pause."""
_JUST_NOW_S = 0.0003
_POLL_INTERVAL_S = 0.0001
_NO_REQUEST, _REQUEST = b"\0", b"\1"


class WriteFairness:
    """Yields to, and requests priority from, the other processes."""

    def __init__(self, store: Path, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._file = -1
        path = store.with_name(store.name + "-turn")
        self._flag: mmap.mmap | None = None
        try:
            touch_private(path)
            self._file = os.open(path, os.O_RDWR)
            self._flag = _first_byte(self._file)
        except (OSError, ValueError):
            pass  # without the file, the lock of SQLite is enough to be safe
        self._has_priority = False
        self._began = 0.0
        self._ended = 0.0
        self._pauses = _PAUSES_S

    def give_way(self) -> None:
        """Yield to a process that requests priority; called before each write."""
        if self._file < 0 or (self._flag is not None and self._flag[:1] == _NO_REQUEST):
            return
        if self._is_free():
            return
        began = time.monotonic()
        while time.monotonic() - began < _MAX_YIELD_S:
            time.sleep(_POLL_INTERVAL_S)
            if self._is_free():
                return

    def wait(self, times: int) -> bool:
        """Wait as a busy handler, requesting priority later; return False after the timeout."""
        now = time.monotonic()
        if times == 0:
            self._began = now
            self._pauses = _LONG_PAUSES_S if now - self._ended < _JUST_NOW_S else _PAUSES_S
        waited = now - self._began
        if waited > self._timeout_s:
            return False
        if waited > _PRIORITY_AFTER_S and not self._has_priority and self._file >= 0:
            self._has_priority = self._try(fcntl.LOCK_EX)
            if self._has_priority:
                self._set_flag(_REQUEST)
        time.sleep(
            _POLL_INTERVAL_S
            if self._has_priority
            else self._pauses[min(times, len(self._pauses) - 1)]
        )
        return True

    def done(self) -> None:
        """Release the priority after a write or a failed attempt."""
        self._ended = time.monotonic()
        if self._has_priority:
            self._has_priority = False
            self._set_flag(_NO_REQUEST)
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._flag is not None:
            self._flag.close()
            self._flag = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _is_free(self) -> bool:
        """Return whether no process requests priority, clearing the byte of a dead one."""
        if not self._try(fcntl.LOCK_SH):
            return False
        self._set_flag(_NO_REQUEST)
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return True

    def _try(self, kind: int) -> bool:
        try:
            fcntl.flock(self._file, kind | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _set_flag(self, flag: bytes) -> None:
        """Set the byte that tells the others that a process may request priority."""
        with suppress(OSError):  # a full disk: no priority then
            os.pwrite(self._file, flag, 0)


def _first_byte(file: int) -> mmap.mmap:
    """Map the shared byte for reading; it is written by system calls, which can fail safely."""
    if not os.fstat(file).st_size:
        os.pwrite(file, _NO_REQUEST, 0)
    return mmap.mmap(file, 1, access=mmap.ACCESS_READ)
