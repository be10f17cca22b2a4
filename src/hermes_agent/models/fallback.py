"""A model with fallbacks, which answer while it cannot."""

import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from hermes_agent.models.base import Facts, Model, Reply, Request
from hermes_agent.turn.events import FellBack, Sink
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ContextTooLongError, ModelError

COOLDOWN_S = 60.0
"""A model that failed is not asked for so long, so that not every step pays for finding out again."""

_ABOUT_THE_REQUEST = (400, 422)
"""Statuses that tell nothing about the next request."""


class FallbackModel:
    """Ask the first model, then the next ones; skip those that failed lately.

    ContextTooLongError of the first model passes through: the caller compacts the conversation.
    """

    def __init__(
        self, models: Sequence[Model], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.models = tuple(models)
        self._clock = clock
        self._cooling_until = [float("-inf")] * len(self.models)
        self._lock = threading.Lock()

    @property
    def facts(self) -> Facts:
        return self.models[0].facts

    def ask(self, request: Request, stop: Stop, report: Sink) -> Reply:
        """Answer one request; raises the first model's error when none could."""
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
                self._cool_down(number, error)
            else:
                self._mark_healthy(number)
                return reply if number == 0 else _attributed(reply, model.facts)
        assert failure is not None
        raise failure

    def close(self) -> None:
        for model in self.models:
            model.close()

    def _order(self) -> list[int]:
        """Return the models that did not fail lately, in order; all of them if each did."""
        now = self._clock()
        with self._lock:
            healthy = [n for n, until in enumerate(self._cooling_until) if until <= now]
        return healthy or list(range(len(self.models)))

    def _cool_down(self, number: int, error: ModelError) -> None:
        if error.status not in _ABOUT_THE_REQUEST:
            with self._lock:
                self._cooling_until[number] = self._clock() + COOLDOWN_S

    def _mark_healthy(self, number: int) -> None:
        with self._lock:
            self._cooling_until[number] = float("-inf")


def _attributed(reply: Reply, facts: Facts) -> Reply:
    if reply.model:
        return reply
    return msgspec.structs.replace(
        reply, model=facts.name, provider=facts.provider, cost_usd=facts.cost_usd(reply.usage)
    )
