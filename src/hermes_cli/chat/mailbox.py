"""The mailbox of the main thread: events of a turn in their order, and signals before them."""

import contextlib
import os
import select
from collections import deque
from typing import TypeVar

from hermes_agent.events import Event
from hermes_cli.chat.signals import Signalled

Kind = TypeVar("Kind", bound=Event)


class Done:
    """The work that was waited for has ended."""


Item = Event | Done


class Mailbox:
    """Takes items from any thread and from signal handlers; one thread waits for them."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._signals: deque[Signalled] = deque()
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)

    def post(self, item: Item) -> None:
        """Put an item in and wake who waits."""
        self._items.append(item)
        self.wake()

    def signal(self, signalled: Signalled) -> None:
        """Put a signal in and wake who waits."""
        self._signals.append(signalled)
        self.wake()

    def wake(self) -> None:
        """Have who waits look around."""
        with contextlib.suppress(BlockingIOError):  # full of wakes: one more is not needed
            os.write(self._writing, b".")

    def take(self) -> Item | None:
        """The oldest item, or None."""
        return self._items.popleft() if self._items else None

    def take_signal(self) -> Signalled | None:
        """The oldest signal, or None."""
        return self._signals.popleft() if self._signals else None

    def take_if(self, kind: type[Kind]) -> Kind | None:
        """The oldest item when it is of this kind."""
        if self._items and isinstance(first := self._items[0], kind):
            self._items.popleft()
            return first
        return None

    @property
    def is_empty(self) -> bool:
        return not self._items and not self._signals

    def wait(self, seconds: float | None, descriptor: int | None = None) -> bool:
        """Wait to be woken, or until a descriptor can be read; tells whether that can."""
        watched = [self._reading] if descriptor is None else [self._reading, descriptor]
        ready, _, _ = select.select(watched, [], [], seconds)
        if self._reading in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._reading, 65536)
        return descriptor in ready
