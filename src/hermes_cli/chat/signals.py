"""Signals and the wish to leave: what reaches the program from outside while it works or waits."""

import select
import signal
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple

EXIT_HANGUP = 128 + signal.SIGHUP
EXIT_INTERRUPTED = 128 + signal.SIGINT
_HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCONT)


class Leaving(Exception):
    """The program is to end: somebody said so, a signal came, or the terminal is gone."""

    def __init__(self, status: int = 0) -> None:
        super().__init__(status)
        self.status = status
        """The exit status; 0 when the person left of their own accord."""


class Signalled(NamedTuple):
    """A signal, as an item among others that the main thread deals with in turn."""

    number: int

    def check(self) -> None:
        """Raise Leaving when it asks the program to end."""
        if self.number in (signal.SIGTERM, signal.SIGHUP):
            raise Leaving(128 + self.number)


class Signals:
    """Has signals told to a function, in the main thread, for the length of a block.

    What was ignored when the program was started stays ignored: `nohup` means it.
    """

    def __init__(self, tell: Callable[[Signalled], None]) -> None:
        self._tell = tell
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Signals":
        for number in _HEARD:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        self._tell(Signalled(number))


def is_hung_up(descriptor: int) -> bool:
    """Whether nobody is at the other end of a terminal any more."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    gone = select.POLLHUP | select.POLLERR | select.POLLNVAL
    return any(events & gone for _, events in poll.poll(0))
