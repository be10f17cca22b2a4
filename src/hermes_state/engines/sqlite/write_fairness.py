"""Taking turns between processes that write the same file.

SQLite's lock goes to whoever asks at the right moment. Polled often, it costs more than the writes
themselves; polled seldom, somebody waits for seconds while another writes without pause. So: a process
that waits naps at first, and the others go on, which is cheapest for all. When it has waited long enough
it insists, by a lock on a file beside the store, and everybody lets it go first. The lock dies with its
process, and nobody gives way for longer than a moment: courtesy can delay a write, never prevent it.

A byte in that file says that there may be somebody who insists. It is looked at in memory, since it is
looked at before every write; only the lock tells whether it is still so.
"""

import fcntl
import mmap
import os
import time
from contextlib import suppress
from pathlib import Path

from hermes_core.paths import touch_private

_PATIENCE_S = 0.25
"""How long a process waits before it insists."""

_GIVES_WAY_S = 0.05
"""How long the others let it go first, if it does not take its turn."""

_NAPS_S = (0.0005, 0.001, 0.002, 0.004, 0.008)
_LONG_NAPS_S = (0.02, 0.04)
"""For a process that has just written: it writes without pause, and so does whoever has the lock."""
_JUST_NOW_S = 0.0003
_GLANCE_S = 0.0001
_CALM, _URGENT = b"\0", b"\1"


class WriteFairness:
    """One process's manners towards the others."""

    def __init__(self, store: Path, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._file = -1
        path = store.with_name(store.name + "-turn")
        self._sign: mmap.mmap | None = None
        try:
            touch_private(path)
            self._file = os.open(path, os.O_RDWR)
            self._sign = _first_byte(self._file)
        except (OSError, ValueError):
            pass  # without the file there is SQLite's lock alone, which is enough to be safe
        self._insists = False
        self._began = 0.0
        self._ended = 0.0
        self._naps = _NAPS_S

    def give_way(self) -> None:
        """Before a write: if somebody insists, let it go first."""
        if self._file < 0 or (self._sign is not None and self._sign[:1] == _CALM):
            return
        if self._is_free():
            return
        began = time.monotonic()
        while time.monotonic() - began < _GIVES_WAY_S:
            time.sleep(_GLANCE_S)
            if self._is_free():
                return

    def wait(self, times: int) -> bool:
        """SQLite's busy handler: nap, later insist; False when the time is up."""
        now = time.monotonic()
        if times == 0:
            self._began = now
            self._naps = _LONG_NAPS_S if now - self._ended < _JUST_NOW_S else _NAPS_S
        waited = now - self._began
        if waited > self._timeout_s:
            return False
        if waited > _PATIENCE_S and not self._insists and self._file >= 0:
            self._insists = self._try(fcntl.LOCK_EX)
            if self._insists:
                self._say(_URGENT)
        time.sleep(_GLANCE_S if self._insists else self._naps[min(times, len(self._naps) - 1)])
        return True

    def done(self) -> None:
        """After a write, or a vain attempt at one: the next may insist."""
        self._ended = time.monotonic()
        if self._insists:
            self._insists = False
            self._say(_CALM)
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._sign is not None:
            self._sign.close()
            self._sign = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _is_free(self) -> bool:
        """Whether nobody insists; who did may have died with its sign up."""
        if not self._try(fcntl.LOCK_SH):
            return False
        self._say(_CALM)
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return True

    def _try(self, kind: int) -> bool:
        try:
            fcntl.flock(self._file, kind | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _say(self, sign: bytes) -> None:
        """Have the others see whether somebody insists, by whoever has the lock."""
        with suppress(OSError):  # a full disk: then nobody is let go first
            os.pwrite(self._file, sign, 0)


def _first_byte(file: int) -> mmap.mmap:
    """The sign as every process sees it. It is written by calls, which can fail, not in memory."""
    if not os.fstat(file).st_size:
        os.pwrite(file, _CALM, 0)
    return mmap.mmap(file, 1, access=mmap.ACCESS_READ)
