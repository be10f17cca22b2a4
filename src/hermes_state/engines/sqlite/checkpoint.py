"""Checkpoint the write-ahead log in a background thread instead of in a commit.

idle → (enough pages were written) → a thread copies them → the next commit copies the rest → idle

The thread copies nearly all pages while others write. Their writes keep the log from being reused, so a
writer copies the last pages after its commit, when no other thread of this process writes. A failure
costs only a longer log, and the checkpoint is tried again.
"""

import logging
import threading
from collections.abc import Callable

import apsw

logger = logging.getLogger(__name__)

PAGES = 2000
"""Pages in the log before a checkpoint starts."""


class Checkpoints:
    """Runs the checkpoints of one writing connection."""

    def __init__(
        self,
        conn: apsw.Connection,
        wait: Callable[[int], bool],
        open_another: Callable[[], apsw.Connection],
    ) -> None:
        """`wait` is the busy handler of the connection."""
        conn.pragma("wal_autocheckpoint", 0)
        self._conn = conn
        self._wait = wait
        self._open_another = open_another
        self._mark = 0
        """Pages written before the last checkpoint started."""
        self._is_requested = threading.Event()
        self._is_running = False
        self._leaves_rest = False
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def committed(self) -> None:
        """Start or finish a checkpoint if needed; the writer calls this after each commit."""
        if self._leaves_rest:
            self._leaves_rest = not self._copy_rest()
        elif not self._is_running and self._written() - self._mark >= PAGES:
            self._mark = self._written()
            self._is_running = True
            self._begin()

    def close(self) -> None:
        """Wait for a running checkpoint and start no more."""
        self._is_closed = True
        self._is_requested.set()
        if self._thread is not None:
            self._thread.join()

    def _copy_rest(self) -> bool:
        """Copy the last pages under the write lock, without waiting for it."""
        self._conn.set_busy_handler(None)
        try:
            return _copy(self._conn, apsw.SQLITE_CHECKPOINT_FULL)
        finally:
            self._conn.set_busy_handler(self._wait)

    def _written(self) -> int:
        return self._conn.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]

    def _begin(self) -> None:
        if self._thread is None:  # most processes never need it
            thread = threading.Thread(target=self._work, name="hermes-checkpoint", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # too many threads; the commit must not fail
                logger.warning("No thread for a checkpoint; a writer runs it: %s", error)
                self._leaves_rest, self._is_running = True, False
                return
            self._thread = thread
        self._is_requested.set()

    def _work(self) -> None:
        conn: apsw.Connection | None = None
        while self._is_requested.wait() and not self._is_closed:
            self._is_requested.clear()
            try:
                conn = conn or self._open_another()
            except apsw.Error as error:
                logger.warning("No connection for a checkpoint; a writer runs it: %s", error)
            else:
                _copy(conn, apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._leaves_rest, self._is_running = True, False
        if conn is not None:
            conn.close()


def _copy(conn: apsw.Connection, mode: int) -> bool:
    """Copy the pages that can be copied now; return whether that was all."""
    try:
        written, copied = conn.wal_checkpoint(mode=mode)
    except apsw.BusyError:
        return False  # another process is checkpointing
    except apsw.Error as error:
        logger.warning("Checkpoint failed: %s", error)
        return True  # do not retry after every commit
    return written == copied
