"""Bringing what was committed from the log into the file, beside the writers instead of in a commit.

at rest → (enough pages were written) → a thread copies them → the next commit copies the rest → at rest

The thread does nearly all of the work while others go on writing. What they write meanwhile keeps the
log from being used anew, so the last few pages are copied by a writer after its commit, when nobody else
of this process writes. Whatever fails here costs nothing but a longer log, and is tried again.
"""

import logging
import threading
from collections.abc import Callable

import apsw

logger = logging.getLogger(__name__)

PAGES = 2000
"""How many pages are written before they are brought into the file."""


class Checkpoints:
    """The checkpoints of one writing connection."""

    def __init__(
        self,
        conn: apsw.Connection,
        wait: Callable[[int], bool],
        open_another: Callable[[], apsw.Connection],
    ) -> None:
        """`wait` is what the connection does while another process has the lock."""
        conn.pragma("wal_autocheckpoint", 0)
        self._conn = conn
        self._wait = wait
        self._open_another = open_another
        self._mark = 0
        """How many pages had been written when the last checkpoint was begun."""
        self._wish = threading.Event()
        self._is_running = False
        self._leaves_rest = False
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def committed(self) -> None:
        """After a commit, by whoever made it: see to it that the log does not grow."""
        if self._leaves_rest:
            self._leaves_rest = not self._copy_rest()
        elif not self._is_running and self._written() - self._mark >= PAGES:
            self._mark = self._written()
            self._is_running = True
            self._begin()

    def close(self) -> None:
        """Wait for a checkpoint that runs; there is none after it."""
        self._is_closed = True
        self._wish.set()
        if self._thread is not None:
            self._thread.join()

    def _copy_rest(self) -> bool:
        """Copy with the writers' lock, so that no other process adds to it; never wait for the lock."""
        self._conn.set_busy_handler(None)
        try:
            return _copy(self._conn, apsw.SQLITE_CHECKPOINT_FULL)
        finally:
            self._conn.set_busy_handler(self._wait)

    def _written(self) -> int:
        return self._conn.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]

    def _begin(self) -> None:
        if self._thread is None:  # most processes write too little to need one
            thread = threading.Thread(target=self._work, name="hermes-checkpoint", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # too many; whoever waits for this commit must not hang
                logger.warning("no thread for a checkpoint; a writer makes it: %s", error)
                self._leaves_rest, self._is_running = True, False
                return
            self._thread = thread
        self._wish.set()

    def _work(self) -> None:
        conn: apsw.Connection | None = None
        while self._wish.wait() and not self._is_closed:
            self._wish.clear()
            try:
                conn = conn or self._open_another()
            except apsw.Error as error:
                logger.warning("no connection for a checkpoint; a writer makes it: %s", error)
            else:
                _copy(conn, apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._leaves_rest, self._is_running = True, False
        if conn is not None:
            conn.close()


def _copy(conn: apsw.Connection, mode: int) -> bool:
    """Copy what can be copied now; tells whether that was all, so that the log can be used anew."""
    try:
        written, copied = conn.wal_checkpoint(mode=mode)
    except apsw.BusyError:
        return False  # another process is at it
    except apsw.Error as error:
        logger.warning("the log was not brought into the file: %s", error)
        return True  # then not with every commit
    return written == copied
