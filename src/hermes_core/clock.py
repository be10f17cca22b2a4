"""The wall clock, read in one place so that a test may set it."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime

_EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
_LATEST = datetime(9999, 1, 1, tzinfo=UTC)

_read: Callable[[], float] = time.time


def now() -> float:
    """Return seconds since the epoch, UTC."""
    return _read()


def date(seconds: float) -> datetime:
    """Convert a timestamp to UTC; clamps one outside of the calendar, as imports may have."""
    if not _EARLIEST.timestamp() < seconds < _LATEST.timestamp():
        return _LATEST if seconds > 0 else _EARLIEST
    return datetime.fromtimestamp(seconds, UTC)


def local(seconds: float) -> str:
    """Format a timestamp to the minute in local time."""
    return f"{date(seconds).astimezone():%Y-%m-%d %H:%M}"


@contextmanager
def replaced(source: Callable[[], float]) -> Generator[None]:
    """Let `now()` read another clock within a block."""
    global _read  # noqa: PLW0603 -- the one replaceable clock of the process
    before, _read = _read, source
    try:
        yield
    finally:
        _read = before
