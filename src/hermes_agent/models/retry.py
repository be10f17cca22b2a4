"""Asking again: only for what may pass by itself, after a pause that grows and that a stop ends.

A provider that says when to come back is believed, up to a minute. One that wants us to stay away for
longer is given up at once: a fallback may answer meanwhile, and a person had better be told than wait.
"""

import random
import time
from collections.abc import Callable

from hermes_agent.events import Retrying, Sink
from hermes_agent.models.base import Facts, Model, Reply, Request
from hermes_agent.stop import Stop
from hermes_core.errors import ModelError

LONGEST_PAUSE_S = 60.0
_FIRST_PAUSE_S = 1.0
_LONGEST_GUESS_S = 30.0
_PATIENCE_S = 600.0
"""No attempt begins later than this after the first: a silent model costs minutes each time."""

Wait = Callable[[Stop, float], None]
Jitter = Callable[[float], float]


def _anything_up_to(seconds: float) -> float:
    return random.uniform(0, seconds)


class Persistent:
    """A model that is asked again when that may help."""

    def __init__(
        self,
        model: Model,
        *,
        retries: int = 4,
        wait: Wait = Stop.wait,
        jitter: Jitter = _anything_up_to,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._retries = retries
        self._wait = wait
        self._jitter = jitter
        self._clock = clock

    @property
    def facts(self) -> Facts:
        return self._model.facts

    def ask(self, request: Request, stop: Stop, report: Sink) -> Reply:
        """Answer one request; raises the last error once asking again is of no use."""
        began = self._clock()
        attempt = 0
        while True:
            try:
                return self._model.ask(request, stop, report)
            except ModelError as error:
                attempt += 1
                is_late = self._clock() - began > _PATIENCE_S
                if not error.retryable or attempt > self._retries or is_late:
                    raise
                pause = self._pause(error, attempt)
                report(Retrying(reason=error.message, delay_s=pause, attempt=attempt))
                self._wait(stop, pause)

    def close(self) -> None:
        self._model.close()

    def _pause(self, error: ModelError, attempt: int) -> float:
        told = error.retry_after_s
        if told is None:
            return self._jitter(min(_FIRST_PAUSE_S * 2 ** (attempt - 1), _LONGEST_GUESS_S))
        if told > LONGEST_PAUSE_S:
            error.fix = f"{error.provider or 'It'} may be asked again in {told:.0f} s. {error.fix}"
            raise error
        # Never earlier than told, and not all who were told the same at once.
        return told + self._jitter(min(told / 4, 1.0))
