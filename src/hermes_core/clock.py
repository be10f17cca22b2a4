"""The wall clock, read in one place so that a test may set it."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime

_EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
_LATEST = datetime(9999, 1, 1, tzinfo=UTC)

_UNITS = ((86400 * 365, "y"), (86400 * 30, "mo"), (86400, "d"), (3600, "h"), (60, "min"))

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


def ago(moment: float | None, at: float | None = None) -> str:
    """Format the time since a moment, in its largest unit; empty for None."""
    if moment is None:
        return ""
    past = (now() if at is None else at) - moment
    found = next(((size, unit) for size, unit in _UNITS if past >= size), None)
    return f"{past // found[0]:.0f} {found[1]} ago" if found else "just now"


@contextmanager
def replaced(source: Callable[[], float]) -> Generator[None]:
    """Let `now()` read another clock within a block."""
    global _read  # noqa: PLW0603 -- the one replaceable clock of the process
    before, _read = _read, source
    try:
        yield
    finally:
        _read = before
