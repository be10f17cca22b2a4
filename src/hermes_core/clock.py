"""The wall clock, read in one place so that a test may set it."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

_read: Callable[[], float] = time.time


def now() -> float:
    """Seconds since the epoch, UTC."""
    return _read()


@contextmanager
def reading(source: Callable[[], float]) -> Generator[None]:
    """Let `now()` read another clock for the length of a block."""
    global _read  # noqa: PLW0603 -- the one replaceable clock of the process
    before, _read = _read, source
    try:
        yield
    finally:
        _read = before
