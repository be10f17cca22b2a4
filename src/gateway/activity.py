"""Activity: the line of a draft that shows which tools of a turn run, and for how long."""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from hermes_agent.turn.call_summary import summary_of
from hermes_agent.turn.events import Event, TextDelta, ToolEnded, ToolStarted
from hermes_core.secrets import mask_words, redact

_MAX_SUMMARY = 120
_DELAY_S = 1.0
"""How long after the first tool of a turn the line appears: quick turns need none."""
_STEPS_S = ((60.0, 5.0), (600.0, 30.0), (float("inf"), 60.0))
"""Up to this duration, the shown one changes every so often: each change is a request."""


class _Call(NamedTuple):
    label: str
    began: float


class Activity:
    """The tools of one turn. Events are reported in the thread of the turn, and read in another."""

    def __init__(
        self, *, shows_arguments: bool, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._shows_arguments = shows_arguments
        self._monotonic = monotonic
        self._running: Mapping[str, _Call] = {}
        """Running calls; replaced as a whole, so that the reader needs no lock."""
        self._last = ""
        """The call that ended last, until the model writes."""
        self._began: float | None = None

    def report(self, event: Event) -> None:
        """Handle an event of the turn."""
        if isinstance(event, ToolStarted):
            now = self._monotonic()
            self._began = self._began if self._began is not None else now
            self._running = {**self._running, event.call_id: _Call(self._label(event), now)}
        elif isinstance(event, ToolEnded):
            self._end(event)
        elif isinstance(event, TextDelta) and event.text.strip():
            self._last = ""

    def note(self, text: str) -> None:
        """Show a text until the next tool starts or the model writes."""
        self._last = text

    def _end(self, event: ToolEnded) -> None:
        call = self._running.get(event.call_id)
        if call is None:  # it was refused, and never ran
            return
        self._running = {key: other for key, other in self._running.items() if other is not call}
        mark = "✗" if event.is_error else "✓"
        self._last = f"{mark} {call.label}{_duration(round(event.seconds))}"

    def _label(self, event: ToolStarted) -> str:
        if not self._shows_arguments:
            return event.name
        summary = summary_of(event.arguments, _MAX_SUMMARY, _masked).replace("`", "'")
        return f"{event.name} `{summary}`" if summary else event.name

    def line(self) -> str:
        """Return the line as Markdown; empty when there is nothing to show."""
        running = list(self._running.values())
        if not running:
            return self._last
        first, *others = running
        more = f" (+{len(others)})" if others else ""
        return f"⚙️ {first.label}{_duration(self._shown_seconds(first))}{more}"

    def _shown_seconds(self, call: _Call) -> int:
        elapsed = self._monotonic() - call.began
        step = _step(elapsed)
        return int(elapsed // step * step)

    @property
    def is_due(self) -> bool:
        """Return whether to show the line although there is no draft yet."""
        return self._began is not None and self._monotonic() - self._began >= _DELAY_S

    def next_change_s(self) -> float | None:
        """Return the seconds until the line changes by itself; None when it does not."""
        if self._began is not None and not self.is_due:
            return self._began + _DELAY_S - self._monotonic()
        running = list(self._running.values())
        if not running:
            return None
        elapsed = self._monotonic() - running[0].began
        step = _step(elapsed)
        return step - elapsed % step


def _masked(text: str) -> str:
    return mask_words(redact(text))


def _step(elapsed: float) -> float:
    return next(step for limit, step in _STEPS_S if elapsed < limit)


def _duration(seconds: int) -> str:
    """Return the end of a label with the duration; empty for less than a second."""
    minutes, rest = divmod(seconds, 60)
    parts = [f"{minutes} min" * bool(minutes), f"{rest} s" * bool(rest)]
    text = " ".join(part for part in parts if part)
    return f" · {text}" if text else ""
