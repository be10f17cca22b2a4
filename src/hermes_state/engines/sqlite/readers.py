"""Pool the read-only connections: one per concurrent read, kept open for reuse."""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw

from hermes_core.errors import StoreError
from hermes_state.engines.sqlite import lenient
from hermes_state.engines.sqlite.connection import no_memory, no_text, translate

T = TypeVar("T")

_MAX_IDLE = 8
"""Idle connections that stay open; each has its own cache, and reads are short."""


class Readers:
    """Runs functions on read-only connections."""

    def __init__(self, open_one: Callable[[], apsw.Connection], path: Path) -> None:
        self._open_one = open_one
        self._path = path
        self._idle: deque[apsw.Connection] = deque()
        self._is_closed = False

    def run(self, fn: Callable[[apsw.Connection], T]) -> T:
        """Run `fn` on one snapshot."""

        def on_snapshot(conn: apsw.Connection) -> T:
            conn.execute("BEGIN")
            result = fn(conn)
            conn.execute("ROLLBACK")
            return result

        return self.lend(on_snapshot)

    def lend(self, fn: Callable[[apsw.Connection], T]) -> T:
        """Run `fn` without a transaction: each of its statements has its own snapshot."""
        if self._is_closed:
            raise StoreError(f"{self._path} is closed.")
        idle = self._idle
        try:
            conn = self._take()
            try:
                result = fn(conn)
            except UnicodeDecodeError:
                conn.close(True)
                return self._lend_leniently(fn)
            except BaseException:
                # Ctrl-C may come between any two instructions, and a failing function may leave an open
                # query: in both cases the connection would keep its old snapshot.
                conn.close(True)
                raise
        except apsw.Error as error:
            raise translate(error, self._path) from error
        except UnicodeEncodeError as error:
            raise no_text(error) from error
        except MemoryError as error:
            raise no_memory(self._path) from error
        if idle is self._idle and len(idle) < _MAX_IDLE:
            idle.append(conn)
        else:
            conn.close()
        return result

    def _lend_leniently(self, fn: Callable[[apsw.Connection], T]) -> T:
        """Repeat a function that met invalid text, with the bad bytes replaced."""
        conn = self._open_one()
        try:
            conn.cursor_factory = lenient.Cursor
            return fn(conn)
        finally:
            conn.close(True)

    def _take(self) -> apsw.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._open_one()

    def renew(self) -> None:
        """Use new connections from now on; close those in use when they are returned."""
        old, self._idle = self._idle, deque()
        while old:
            old.pop().close()

    def close(self) -> None:
        """Close every connection; those in use are closed when they are returned."""
        self._is_closed = True
        self.renew()
