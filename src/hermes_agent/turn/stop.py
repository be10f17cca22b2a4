"""Stop: one flag per turn, owned by the caller, which everything that works for the turn waits on.

A blocking call that cannot wait on the flag registers how to end it (`callback`): a socket is shut, a
process group is killed. The undo runs at once in the thread that sets the flag, or right away when the
flag is set already, so a stop that comes before its turn has started is not lost.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextvars import copy_context
from typing import TypeVar

from hermes_core import threads
from hermes_core.errors import Interrupted

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Stop:
    """Tells a turn to stop. Set once; every turn has its own."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._undos: list[Callable[[], None]] = []
        self.is_suspended = False
        """Whether the turn is only suspended: it gets no end, and a later start resumes it."""

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    @property
    def is_interrupted(self) -> bool:
        """Tell whether the turn is to end, not only to be suspended."""
        return self.is_set and not self.is_suspended

    def set(self) -> None:
        """Stop the turn: wake every thread that waits and run every undo."""
        with self._lock:
            if self._event.is_set():
                return
            self._event.set()
            undos = list(self._undos)
        for undo in undos:
            _run(undo)

    def suspend(self) -> None:
        """Stop the turn until a later start; one that is interrupted already stays so."""
        if not self.is_set:
            self.is_suspended = True
        self.set()

    def check(self) -> None:
        """Raise Interrupted when the flag is set."""
        if self._event.is_set():
            raise Interrupted

    def wait(self, seconds: float) -> None:
        """Sleep until the flag is set; raises Interrupted then."""
        if self._event.wait(seconds):
            raise Interrupted

    def wait_for(self, seconds: float) -> bool:
        """Wait for the flag; returns whether it is set."""
        return self._event.wait(seconds)

    @contextlib.contextmanager
    def linked(self) -> Generator["Stop"]:
        """Yield a stop that is set together with this one, and can be set without it."""
        linked = Stop()
        with self.callback(lambda: linked.suspend() if self.is_suspended else linked.set()):
            yield linked

    @contextlib.contextmanager
    def callback(self, undo: Callable[[], None]) -> Generator[None]:
        """Call `undo` when the flag is set inside the block; it must not block."""
        with self._lock:
            stopped = self._event.is_set()
            if not stopped:
                self._undos.append(undo)
        if stopped:
            _run(undo)
        try:
            yield
        finally:
            with self._lock:
                if undo in self._undos:
                    self._undos.remove(undo)

    def abandonable(self, work: Callable[[], T], name: str) -> T:
        """Do work in a thread that is left behind when the flag is set. Raises Interrupted then."""
        finished = threading.Event()
        try:
            future = in_thread(work, name)
        except RuntimeError:  # no memory for a thread: then a stop does wait
            return work()
        future.add_done_callback(lambda _: finished.set())
        with self.callback(finished.set):
            finished.wait()
        if not future.done():
            raise Interrupted
        return future.result()


def in_thread(work: Callable[[], T], name: str) -> Future[T]:
    """Do work in a daemon thread of its own; the future gets its result, or what it raises."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 -- raised where the result is asked for
            future.set_exception(error)

    context = copy_context()
    threads.start(threading.Thread(target=context.run, args=(run,), name=name, daemon=True))
    return future


def _run(undo: Callable[[], None]) -> None:
    try:
        undo()
    except OSError:  # what was to be ended has ended by itself
        logger.debug("an undo found nothing to end", exc_info=True)
