"""Partial replies: a streamed reply is stored now and then, so that a kill loses only a moment of it.

A thread stores the text when the stream pauses, and at intervals while it does not; the thread that
streams never waits for the store. Once the step is stored nothing more is written: a late write would
bring back text that has its own place.
"""

import logging
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial

from hermes_agent.turn.events import Event, FellBack, Retrying, TextDelta

logger = logging.getLogger(__name__)

_LOOK_INTERVAL_S = 0.1
_PAUSE_S = 0.2
_MAX_INTERVAL_S = 1.0
_IDLE_TIMEOUT_S = 1.0


class PartialReply:
    """The text that was streamed of the current step."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._stored = ""
        self._stored_at = self._received_at = 0.0
        self._storing = threading.Lock()

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    def clear(self) -> None:
        """Drop the text: the step is stored, or begins again."""
        self._pieces = []

    @contextmanager
    def step(self, store: Callable[[str], None]) -> Generator[None]:
        """Begin a step; `store` is called with the text within this block and must not fail."""
        self.clear()
        self._stored = ""
        self._stored_at = time.monotonic()
        _writer.add(self, store)
        try:
            yield
        finally:
            _writer.remove(self)
            with self._storing:  # a write that has begun ends before the block
                pass

    def receive(self, event: Event) -> None:
        """Follow the events of a model call."""
        if isinstance(event, TextDelta):
            self._pieces.append(event.text)  # joined when it is stored: joining copies all of it
        elif isinstance(event, Retrying | FellBack):
            self.clear()
        self._received_at = time.monotonic()

    @property
    def _is_due(self) -> bool:
        now = time.monotonic()
        has_paused = now - self._received_at >= _PAUSE_S
        is_old = now - self._stored_at >= _MAX_INTERVAL_S
        return (has_paused or is_old) and self.text != self._stored

    def store_if_due(self, store: Callable[[str], None], is_open: Callable[[], bool]) -> None:
        """Store the text when it is time and the step is still open."""
        with self._storing:
            if self._is_due and is_open():
                text = self.text
                store(text)
                self._stored, self._stored_at = text, time.monotonic()


class Writer:
    """Stores partial replies in one thread, which ends when there have been none for a moment."""

    def __init__(self, idle_timeout_s: float = _IDLE_TIMEOUT_S) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._changed = threading.Condition()
        self._replies: dict[PartialReply, Callable[[str], None]] = {}
        self._thread: threading.Thread | None = None

    def add(self, reply: PartialReply, store: Callable[[str], None]) -> None:
        """Store a reply from time to time until it is removed."""
        with self._changed:
            self._replies[reply] = store
            self._changed.notify()
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="partial replies", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # no memory; the next reply tries again
                    logger.warning("partial replies are not stored: %s", error)
                else:
                    self._thread = thread

    def remove(self, reply: PartialReply) -> None:
        """Store a reply no longer."""
        with self._changed:
            self._replies.pop(reply, None)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._replies, self._idle_timeout_s):
                    self._thread = None
                    return
                due = list(self._replies.items())
            for reply, store in due:
                reply.store_if_due(store, partial(self._replies.__contains__, reply))
            time.sleep(_LOOK_INTERVAL_S)


_writer = Writer()
