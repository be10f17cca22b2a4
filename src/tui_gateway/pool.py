"""A few threads for requests that take a while, so that the others need not wait behind them."""

import threading
from collections import deque
from collections.abc import Callable

_MOST_THREADS = 8
_MOST_WAITING = 256


class Pool:
    """Runs functions in threads that end with the process."""

    def __init__(self, threads: int = _MOST_THREADS, waiting: int = _MOST_WAITING) -> None:
        self._most_threads = threads
        self._most_waiting = waiting
        self._waiting: deque[Callable[[], None]] = deque()
        lock = threading.RLock()
        self._news = threading.Condition(lock)
        self._quiet = threading.Condition(lock)
        self._threads = 0
        self._idle = 0

    def run(self, work: Callable[[], None]) -> bool:
        """Have a function run soon; False when too much waits already."""
        with self._news:
            if len(self._waiting) >= self._most_waiting:
                return False
            self._waiting.append(work)
            if self._idle < len(self._waiting) and self._threads < self._most_threads:
                self._threads += 1
                name = f"request-{self._threads}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
            self._news.notify()
        return True

    def drain(self, seconds: float) -> bool:
        """Wait until nothing waits and nothing runs; tells whether that is so."""
        with self._quiet:
            return self._quiet.wait_for(self._is_quiet, seconds)

    def _is_quiet(self) -> bool:
        return not self._waiting and self._idle == self._threads

    def _work(self) -> None:
        while True:
            with self._news:
                self._idle += 1
                self._quiet.notify_all()
                self._news.wait_for(lambda: self._waiting)
                self._idle -= 1
                work = self._waiting.popleft()
            work()
