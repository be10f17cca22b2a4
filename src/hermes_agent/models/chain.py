"""A model and those who answer when it cannot."""

import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from hermes_agent.events import FellBack, Sink
from hermes_agent.models.base import Facts, Model, Reply, Request
from hermes_agent.stop import Stop
from hermes_core.errors import ContextTooLongError, ModelError

REST_S = 60.0
"""How long a model that failed is left alone, so that not every step pays for finding out again."""

_ABOUT_THE_REQUEST = (400, 422)
"""Statuses that say nothing about the next request."""


class Chain:
    """Asks the first model, then the next; knows who failed lately.

    What does not fit the first model's window is for the caller to shorten, so it passes through.
    """

    def __init__(
        self, models: Sequence[Model], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.models = tuple(models)
        self._clock = clock
        self._rests_until = [float("-inf")] * len(self.models)
        self._lock = threading.Lock()

    @property
    def facts(self) -> Facts:
        return self.models[0].facts

    def ask(self, request: Request, stop: Stop, report: Sink) -> Reply:
        """Answer one request; raises the first model's error when nobody could."""
        failure: ModelError | None = None
        for number in self._order():
            model = self.models[number]
            try:
                if failure is not None:
                    report(FellBack(model=model.facts.name, reason=failure.message))
                reply = model.ask(request, stop, report)
            except ContextTooLongError:
                raise
            except ModelError as error:
                failure = failure or error
                self._rest(number, error)
            else:
                self._wake(number)
                return reply if number == 0 else _signed(reply, model.facts)
        assert failure is not None
        raise failure

    def close(self) -> None:
        for model in self.models:
            model.close()

    def _order(self) -> list[int]:
        """Those who are well, in order; when nobody is, all of them."""
        now = self._clock()
        with self._lock:
            well = [n for n, until in enumerate(self._rests_until) if until <= now]
        return well or list(range(len(self.models)))

    def _rest(self, number: int, error: ModelError) -> None:
        if error.status not in _ABOUT_THE_REQUEST:
            with self._lock:
                self._rests_until[number] = self._clock() + REST_S

    def _wake(self, number: int) -> None:
        with self._lock:
            self._rests_until[number] = float("-inf")


def _signed(reply: Reply, facts: Facts) -> Reply:
    if reply.model:
        return reply
    return msgspec.structs.replace(
        reply, model=facts.name, provider=facts.provider, cost_usd=facts.cost_usd(reply.usage)
    )
