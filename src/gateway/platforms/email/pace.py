"""Limits the mails per hour to one address, so that two programs stop answering each other."""

from collections import deque

from hermes_core import clock

_HOUR_S = 3600.0
_MAX_ADDRESSES = 10_000


class Pace:
    """The mails of the last hour, by address."""

    def __init__(self, per_hour: int) -> None:
        self._per_hour = per_hour
        self._sent: dict[str, deque[float]] = {}

    def wait_s(self, address: str) -> float:
        """Return how long the next mail to this address must wait; 0: it may go."""
        sent = self._sent.get(address, deque())
        while sent and sent[0] <= clock.now() - _HOUR_S:
            sent.popleft()
        return sent[0] + _HOUR_S - clock.now() if len(sent) >= self._per_hour else 0.0

    def note(self, address: str) -> None:
        """One more was sent."""
        self._sent.setdefault(address, deque()).append(clock.now())
        if len(self._sent) > _MAX_ADDRESSES:
            del self._sent[next(iter(self._sent))]
