"""From the event loop to a thread and back: the store and the agent block, the loop must not.

Every message makes this way several times, so it does only what it must: a thread that has nothing to do
is handed the job itself, and one call tells the loop what came of it.
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

_MOST = 32


class _Job:
    """Something to call in the context it comes from, and what came of it."""

    __slots__ = ("_context", "_fn", "_loop", "error", "is_over", "value")

    def __init__(self, fn: Callable[[], Any]) -> None:
        self._fn = fn
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self.is_over: asyncio.Future[None] = self._loop.create_future()
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Call it, in a thread; what was given up before it began is not begun."""
        if self.is_over.cancelled():
            return
        try:
            self.value = self._context.run(self._fn)
        except BaseException as error:  # noqa: BLE001 -- it is raised where the job comes from
            self.error = error
        try:
            self._loop.call_soon_threadsafe(self._tell)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    def _tell(self) -> None:
        if not self.is_over.done():
            self.is_over.set_result(None)


class _Threads:
    """Threads that run jobs, no more than so many; they end with the interpreter, not in a job."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._all: list[tuple[threading.Thread, SimpleQueue[_Job | None]]] = []
        self._idle: list[SimpleQueue[_Job | None]] = []
        self._waiting: deque[_Job] = deque()

    def run(self, job: _Job) -> None:
        """Have a job run, as soon as a thread is free."""
        with self._lock:
            if not self._idle and len(self._all) < self._most:
                self._try_to_start()
            if not self._idle:
                self._waiting.append(job)
                return
            jobs = self._idle.pop()
        jobs.put(job)

    def _try_to_start(self) -> None:
        """Start a thread; without memory for one, those that run do the work."""
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
        """What waits for a thread; when nothing does, this one waits for what comes."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._idle.append(jobs)
            return None

    def close(self) -> None:
        """Wait for what was begun, and for what waits."""
        for _, jobs in self._all:
            jobs.put(None)
        for thread, _ in self._all:
            thread.join()


_threads = _Threads(_MOST)
atexit.register(_threads.close)


async def run_blocking(fn: Callable[[], T]) -> T:
    """Call something that blocks; the context variables go along."""
    job = _Job(fn)
    _threads.run(job)
    await job.is_over
    if job.error is None:
        return job.value
    error, job.error = job.error, None
    try:
        raise error
    finally:
        del error  # it knows this frame: they would keep each other
