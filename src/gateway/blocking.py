"""Runs blocking calls in threads: the store and the agent block, the event loop must not.

Measured faster than `asyncio.to_thread`, which each message would use several times: an idle thread gets
the job directly, and one call reports its result to the loop.
"""

import asyncio
import atexit
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

MAX_THREADS = 32


class _Job:
    """A call in the context of its caller, with its result."""

    __slots__ = ("_context", "_fn", "_loop", "error", "is_over", "value")

    def __init__(self, fn: Callable[[], Any]) -> None:
        self._fn = fn
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self.is_over: asyncio.Future[None] = self._loop.create_future()
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Run the call in a thread, unless it was cancelled before."""
        if self.is_over.cancelled():
            return
        try:
            self.value = self._context.run(self._fn)
        except BaseException as error:  # noqa: BLE001 -- raised in the caller
            self.error = error
        try:
            self._loop.call_soon_threadsafe(self._set_over)
        except RuntimeError:
            return  # the loop is closed

    def _set_over(self) -> None:
        if not self.is_over.done():
            self.is_over.set_result(None)


class _Threads:
    """A bounded pool of threads; they end with the interpreter, not in a job."""

    def __init__(self, max_threads: int) -> None:
        self._max_threads = max_threads
        self._lock = threading.Lock()
        self._all: list[tuple[threading.Thread, SimpleQueue[_Job | None]]] = []
        self._idle: list[SimpleQueue[_Job | None]] = []
        self._waiting: deque[_Job] = deque()

    def run(self, job: _Job) -> None:
        """Run a job as soon as a thread is free."""
        with self._lock:
            if not self._idle and len(self._all) < self._max_threads:
                self._try_to_start()
            if not self._idle:
                self._waiting.append(job)
                return
            jobs = self._idle.pop()
        jobs.put(job)

    def _try_to_start(self) -> None:
        """Start a thread; without memory for one, the others do the work."""
        try:
            self._start_one()
        except RuntimeError:
            if not self._all:
                raise

    def _start_one(self) -> None:
        jobs: SimpleQueue[_Job | None] = SimpleQueue()
        name = f"gateway_{len(self._all)}"
        thread = threading.Thread(target=self._work, args=(jobs,), name=name, daemon=True)
        thread.start()
        self._all.append((thread, jobs))
        self._idle.append(jobs)

    def _work(self, jobs: "SimpleQueue[_Job | None]") -> None:
        while (job := jobs.get()) is not None:
            while job is not None:
                job.run()
                job = self._next(jobs)

    def _next(self, jobs: "SimpleQueue[_Job | None]") -> _Job | None:
        """Return the next job; mark the thread as idle when there is none."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._idle.append(jobs)
            return None

    def close(self) -> None:
        """Run the queued jobs to their end and stop the threads."""
        for _, jobs in self._all:
            jobs.put(None)
        for thread, _ in self._all:
            thread.join()


_threads = _Threads(MAX_THREADS)
atexit.register(_threads.close)


async def run_blocking(fn: Callable[[], T]) -> T:
    """Call a blocking function in a thread, with the context variables of the caller."""
    job = _Job(fn)
    _threads.run(job)
    await job.is_over
    if job.error is None:
        return job.value
    error, job.error = job.error, None
    try:
        raise error
    finally:
        del error  # it refers to this frame: a cycle
