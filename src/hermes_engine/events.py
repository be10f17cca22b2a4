"""Events of a running conversation, numbered, for its subscribers.

A log belongs to one conversation. It is bounded: a subscriber that missed more is told so and reads the
conversation from the store.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from hermes_agent.turn.events import Event

MAX_KEPT_EVENTS = 4096


class TurnQueued(Event, frozen=True):
    """A turn was accepted."""


class TurnStarted(Event, frozen=True):
    """A turn runs from now on."""

    is_resumed: bool
    """Whether another process accepted it, or an earlier start began it."""


class TurnWaiting(Event, frozen=True):
    """A turn cannot continue now and is tried again; what was streamed of this step is void."""

    reason: str


class TurnSuspended(Event, frozen=True):
    """A turn was stopped without an end; it resumes later, perhaps in another process."""

    reason: str


class TurnCancelled(Event, frozen=True):
    """A queued turn was ended before it began."""

    reason: str


class TurnDetached(Event, frozen=True):
    """A turn is not run here any more: another process ended it, or its conversation is gone."""


class LogEntry(NamedTuple):
    """One event of a conversation."""

    seq: int
    turn_id: str
    """Empty for what belongs to no turn, as a title."""
    event: Event


class Gap(NamedTuple):
    """A subscriber missed events that are not kept any more."""

    log_id: str
    seq: int
    """The number of the last event so far."""


T = TypeVar("T")
Subscriber = Callable[[LogEntry], None]
"""Called in order, one entry after the other, in the thread that publishes; must not block."""


class EventLog:
    """The events of one conversation. May be used from several threads."""

    def __init__(self, max_kept: int = MAX_KEPT_EVENTS) -> None:
        self.id = os.urandom(8).hex()
        """Tells the numbers of this log from those of an earlier process."""
        self._lock = threading.RLock()
        self._entries: deque[LogEntry] = deque(maxlen=max_kept)
        self._subscribers: list[Subscriber] = []
        self._seq = 0

    @property
    def seq(self) -> int:
        """The number of the last event; 0 before the first."""
        return self._seq

    @property
    def has_subscribers(self) -> bool:
        return bool(self._subscribers)

    def keeps(self, log_id: str, seq: int) -> bool:
        """Return whether everything after a position is kept, so that it can be replayed."""
        with self._lock:
            oldest = self._entries[0].seq if self._entries else self._seq + 1
            return log_id == self.id and oldest - 1 <= seq <= self._seq

    def capture(self, read: Callable[[], T]) -> tuple[int, T]:
        """Read the state of a subscriber; return it with the number of the last event in it."""
        with self._lock:
            return self._seq, read()

    def publish(self, turn_id: str, event: Event) -> LogEntry:
        """Number an event, keep it, and hand it to every subscriber."""
        with self._lock:
            self._seq += 1
            entry = LogEntry(self._seq, turn_id, event)
            self._entries.append(entry)
            for subscriber in list(self._subscribers):
                subscriber(entry)
            return entry

    def subscribe(
        self, subscriber: Subscriber, *, after: int | None = None, log_id: str | None = None
    ) -> Gap | None:
        """Follow the conversation: first what came after the number `after`, then all that follows.

        None for `after`: only what follows. Returns a Gap when some of what was missed is not kept, or
        when the number is that of another log; then only what follows is sent.
        """
        with self._lock:
            self._subscribers.append(subscriber)
            if after is None:
                return None
            if not self.keeps(log_id or self.id, after):
                return Gap(self.id, self._seq)
            for entry in list(self._entries):
                if entry.seq > after:
                    subscriber(entry)
            return None

    def follow_turn(self, turn_id: str, subscriber: Subscriber) -> Subscriber:
        """Follow one turn, from the first of its events that is kept; return what to unsubscribe."""

        def filtered(entry: LogEntry) -> None:
            if entry.turn_id == turn_id:
                subscriber(entry)

        with self._lock:
            for entry in list(self._entries):
                filtered(entry)
            self._subscribers.append(filtered)
        return filtered

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Stop following; one that does not follow is ignored."""
        with self._lock:
            self._subscribers = [other for other in self._subscribers if other != subscriber]
