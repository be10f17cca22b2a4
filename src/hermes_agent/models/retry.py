"""Retry model calls: only after errors that may pass, with a growing backoff that a stop ends.

Retry-After is respected up to a minute. A longer one fails the call at once: a fallback may answer
meanwhile, and a person is better told than left waiting.
"""

import random
import time
from collections.abc import Callable

from hermes_agent.models.base import Facts, Model, Reply, Request
from hermes_agent.turn.events import Retrying, Sink
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ModelError

MAX_PAUSE_S = 60.0
_INITIAL_PAUSE_S = 1.0
_MAX_BACKOFF_S = 30.0
_RETRY_PERIOD_S = 600.0
"""No attempt starts later than this after the first: a silent model costs minutes each time."""

Wait = Callable[[Stop, float], None]
Jitter = Callable[[float], float]


def _full_jitter(seconds: float) -> float:
    return random.uniform(0, seconds)


class RetryingModel:
    """Retry the calls of a model when that may help."""

    def __init__(
        self,
        model: Model,
        *,
        retries: int = 4,
        wait: Wait = Stop.wait,
        jitter: Jitter = _full_jitter,
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
        """Answer one request; raises the last error once no retry can help."""
        began = self._clock()
        attempt = 0
        while True:
            try:
                return self._model.ask(request, stop, report)
            except ModelError as error:
                attempt += 1
                is_late = self._clock() - began > _RETRY_PERIOD_S
                if not error.retryable or attempt > self._retries or is_late:
                    raise
                pause = self._pause(error, attempt)
                report(Retrying(reason=error.message, delay_s=pause, attempt=attempt))
                self._wait(stop, pause)

    def close(self) -> None:
        self._model.close()

    def _pause(self, error: ModelError, attempt: int) -> float:
        retry_after_s = error.retry_after_s
        if retry_after_s is None:
            return self._jitter(min(_INITIAL_PAUSE_S * 2 ** (attempt - 1), _MAX_BACKOFF_S))
        if retry_after_s > MAX_PAUSE_S:
            name = error.provider or "It"
            error.fix = f"{name} accepts requests again in {retry_after_s:.0f} s. {error.fix}"
            raise error
        # Never earlier, and not all clients that got the same answer at once.
        return retry_after_s + self._jitter(min(retry_after_s / 4, 1.0))
