"""Threads for what takes a while, kept for the next time, because starting one takes a while, too."""

import logging
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

logger = logging.getLogger(__name__)

_MAX_WAITING = 256
_IDLE_S = 10.0
"""How long a thread waits for more to do before it ends."""


class Pool:
    """Runs functions in threads that end with the process, or when there is nothing to do for long."""

    def __init__(
        self, threads: int = sys.maxsize, waiting: int = _MAX_WAITING, idle_s: float = _IDLE_S
    ) -> None:
        self._most_threads = threads
        self._most_waiting = waiting
        self._idle_s = idle_s
        self._waiting: deque[Callable[[], None]] = deque()
        lock = threading.RLock()
        self._news = threading.Condition(lock)
        self._quiet = threading.Condition(lock)
        self._threads = 0
        self._idle = 0

    def run(self, work: Callable[[], None]) -> bool:
        """Run a function soon; return False when too many are waiting."""
        with self._news:
            if len(self._waiting) >= self._most_waiting:
                return False
            self._waiting.append(work)
            if self._idle < len(self._waiting) and self._threads < self._most_threads:
                self._threads += 1
                work_here = partial(self._work, threading.get_ident())
                threading.Thread(target=work_here, name="worker", daemon=True).start()
            self._news.notify()
        return True

    def drain(self, seconds: float) -> bool:
        """Wait until nothing waits and nothing runs; tells whether that is so."""
        with self._quiet:
            return self._quiet.wait_for(self._is_quiet, seconds)

    def _is_quiet(self) -> bool:
        return not self._waiting and self._idle == self._threads

    def _work(self, starter: int) -> None:
        # Scenarios have threads that run where they are started: nobody there has more to do.
        patience_s = 0.0 if threading.get_ident() == starter else self._idle_s
        while (work := self._next(patience_s)) is not None:
            run_logged(work, "Background work")

    def _next(self, patience_s: float) -> Callable[[], None] | None:
        with self._news:
            self._idle += 1
            self._quiet.notify_all()
            is_due = self._news.wait_for(lambda: self._waiting, patience_s)
            self._idle -= 1
            if is_due:
                return self._waiting.popleft()
            self._threads -= 1
            return None


def run_logged(work: Callable[[], object], what: str) -> None:
    """Run a function without waiting for it; log what it raises, and let the caller continue."""
    try:
        work()
    except Exception:
        logger.exception("%s failed", what)
