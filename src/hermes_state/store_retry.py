"""Retry writes until the store can be written again."""

import logging
from collections.abc import Callable
from typing import TypeVar

from hermes_core.errors import StoreError

T = TypeVar("T")

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0


class StoreRetry:
    """Computes the pauses between attempts at a write."""

    def __init__(self, subject: str) -> None:
        """`subject` names the write in the log."""
        self._subject = subject
        self._pause_s = FIRST_PAUSE_S

    def pause_after(self, error: StoreError) -> float:
        """Log a failure and return the seconds to wait, longer each time."""
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, MAX_PAUSE_S)
        logger.warning("%s is tried again in %g s: %s", self._subject, pause_s, error)
        return pause_s


def until_stored(subject: str, attempt: Callable[[], T], wait: Callable[[float], bool]) -> T:
    """Repeat an attempt until the store can be written; return what it returns.

    `wait` pauses for some seconds and returns whether to give up. Raises the last StoreError then, and
    at once one that is not temporary.
    """
    retry = StoreRetry(subject)
    while True:
        try:
            return attempt()
        except StoreError as error:
            if not error.is_temporary or wait(retry.pause_after(error)):
                raise
