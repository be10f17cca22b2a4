"""A disk that is full at one kind of write, and waiting for what tells nobody."""

import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import apsw
import pytest

from hermes_state import SessionDB

_NO_LIMIT = 1_000_000

needs_dev_full = pytest.mark.skipif(
    not os.access("/dev/full", os.W_OK), reason="/dev/full cannot be written by this user"
)


@contextmanager
def disk_full_at(store: SessionDB, event: str) -> Generator[None]:
    """Have SQLite find no space whenever `event` happens, such as `INSERT ON turns`.

    A trigger of this connection asks for more pages than there may be: the error is SQLite's own.
    """

    def fill(conn: apsw.Connection) -> None:
        conn.execute(
            f"CREATE TEMP TRIGGER full_disk BEFORE {event} BEGIN"
            " INSERT INTO meta (key, value) VALUES ('full', hex(zeroblob(4000000))); END"
        )
        conn.pragma("max_page_count", conn.pragma("page_count") + 500)

    def empty(conn: apsw.Connection) -> None:
        conn.execute("DROP TRIGGER full_disk")
        conn.pragma("max_page_count", _NO_LIMIT)

    store._execute_write(fill)
    try:
        yield
    finally:
        store._execute_write(empty)


def eventually(met: Callable[[], bool], what: str = "this") -> None:
    """Wait, within reason, for something that tells nobody when it happens."""
    moment, deadline = threading.Event(), time.monotonic() + 30
    while not met():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        moment.wait(0.01)


@contextmanager
def no_threads(name: str) -> Generator[None]:
    """Let no thread of this name start, as without memory for one."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == name:
            raise RuntimeError("can't start new thread")
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield
