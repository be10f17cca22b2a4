"""Stopping: one flag a turn, which whoever works for the turn waits on or leaves an undo with.

A blocking call that cannot wait on the flag registers how to end it (`undoing`): a socket is shut, a
process group is killed. The undo runs in the thread that stops, at once, also when the flag is set
already.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Generator

from hermes_core.errors import Interrupted

logger = logging.getLogger(__name__)


class Stop:
    """Whether a turn is to stop. Set once; a new turn gets a new one."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._undos: list[Callable[[], None]] = []
        self.is_suspended = False
        """Whether the turn is only put off: it keeps no end, and goes on at the next start."""

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        """Stop: wake whoever waits and run every undo."""
        with self._lock:
            if self._event.is_set():
                return
            self._event.set()
            undos = list(self._undos)
        for undo in undos:
            _run(undo)

    def suspend(self) -> None:
        """Stop for now; what was stopped for good stays so."""
        if not self.is_set:
            self.is_suspended = True
        self.set()

    def check(self) -> None:
        """Raise Interrupted when the turn is to stop."""
        if self._event.is_set():
            raise Interrupted

    def wait(self, seconds: float) -> None:
        """Sleep, but not past a stop; raises Interrupted."""
        if self._event.wait(seconds):
            raise Interrupted

    @contextlib.contextmanager
    def undoing(self, undo: Callable[[], None]) -> Generator[None]:
        """Have `undo` called when the turn is stopped inside the block; it must not block."""
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


def _run(undo: Callable[[], None]) -> None:
    try:
        undo()
    except OSError:  # what was to be ended has ended by itself
        logger.debug("an undo found nothing to end", exc_info=True)
