"""The terminal itself: whether it is still there."""

import select
import sys


def is_gone() -> bool:
    """Whether the other end of the terminal was closed."""
    try:
        descriptor = sys.__stdin__.fileno() if sys.__stdin__ is not None else -1
    except (OSError, ValueError):
        return True
    looking = select.poll()
    looking.register(descriptor, 0)
    return any(what & (select.POLLHUP | select.POLLNVAL) for _, what in looking.poll(0))
