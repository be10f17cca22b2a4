"""What is being streamed of a reply, and the thread that notes it, so that a kill takes a moment of it.

It is noted when the stream is quiet for a moment, and now and then while it is not; never by who
streams. When the step is stored nothing is noted any more: a late note would bring back what has its own
place.
"""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial

from hermes_agent.events import Event, FellBack, Retrying, TextDelta

_LOOK_EVERY_S = 0.1
_QUIET_S = 0.2
_AT_LEAST_EVERY_S = 1.0


class Streamed:
    """What was streamed of the step that is being made, for when it is cut off."""

    def __init__(self) -> None:
        self.text = ""
        self._noted = ""
        self._noted_at = self._heard_at = 0.0
        self._noting = threading.Lock()

    @contextmanager
    def step(self, note: Callable[[str], None]) -> Generator[None]:
        """A step begins; what comes in this block is noted by `note`, which must not fail."""
        self.text = self._noted = ""
        self._noted_at = time.monotonic()
        _scribe.follow(self, note)
        try:
            yield
        finally:
            _scribe.leave(self)
            with self._noting:  # what is being noted is noted before the block ends
                pass

    def hear(self, event: Event) -> None:
        """Follow the events of a model call."""
        if isinstance(event, TextDelta):
            self.text += event.text
        elif isinstance(event, Retrying | FellBack):
            self.text = ""
        self._heard_at = time.monotonic()

    @property
    def _is_due(self) -> bool:
        now = time.monotonic()
        is_quiet = now - self._heard_at >= _QUIET_S
        return self.text != self._noted and (is_quiet or now - self._noted_at >= _AT_LEAST_EVERY_S)

    def note_if_due(self, note: Callable[[str], None], is_followed: Callable[[], bool]) -> None:
        """Note what came, when it is time and the step still runs."""
        with self._noting:
            if self._is_due and is_followed():
                text = self.text
                note(text)
                self._noted, self._noted_at = text, time.monotonic()


class _Scribe:
    """Looks after what is being streamed; its thread lives as long as anything is."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._followed: dict[Streamed, Callable[[str], None]] = {}
        self._is_at_work = False

    def follow(self, streamed: Streamed, note: Callable[[str], None]) -> None:
        with self._changed:
            self._followed[streamed] = note
            self._changed.notify()
            if not self._is_at_work:
                self._is_at_work = True
                threading.Thread(target=self._run, name="scribe", daemon=True).start()

    def leave(self, streamed: Streamed) -> None:
        with self._changed:
            self._followed.pop(streamed, None)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._followed)
                due = list(self._followed.items())
            for streamed, note in due:
                streamed.note_if_due(note, partial(self._followed.__contains__, streamed))
            time.sleep(_LOOK_EVERY_S)


_scribe = _Scribe()
