"""The terminal of a chat: reads lines and receives signals."""

import contextlib
import select
import signal
import socket
import sys
import termios
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import TextIO

from hermes_agent.turn.events import Event
from hermes_core import config
from hermes_tui.history import InputHistory

EXIT_HANGUP = 128 + signal.SIGHUP
EXIT_INTERRUPTED = 128 + signal.SIGINT
PROMPT = "> "
_CONTINUATION = "  "
_EXIT_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_WAKE_SIGNAL = signal.SIGUSR1
"""Sent to the thread that reads, until it stops reading."""
_RETRY_INTERVAL_S = 0.02


class ExitRequested(Exception):
    """The program must exit: the user or a signal asked for it, or the terminal is gone."""

    def __init__(self, status: int = 0) -> None:
        super().__init__(status)
        self.status = status
        """The exit status; 0 when the user quit."""


class WorkDone:
    """The turn that the main thread waits for has ended."""


class SignalReceived:
    """A signal has arrived."""


Item = Event | WorkDone | SignalReceived


class _ReadInterruptedError(Exception):
    """A signal has arrived, or the question was answered elsewhere."""


class Terminal:
    """Reads lines in the main thread; while it does not, events wait in `items`, and signals too.

    What was ignored when the program was started stays ignored: `nohup` means it.

    CPython acts on a signal only when it interrupts a system call, so one that arrives just before
    `input` waits for a key would be noticed at the next key. Therefore a thread takes every signal,
    from the descriptor that CPython's handler writes to, and interrupts the reader until it stops.
    """

    def __init__(self, out: TextIO) -> None:
        """Prompts go to `out`."""
        self.items: SimpleQueue[Item] = SimpleQueue()
        self._signals: deque[int] = deque()
        self._out = out
        self._is_reading = False
        self._is_settled: Callable[[], bool] = lambda: False
        self._history: InputHistory | None = None
        self._before: dict[int, object] = {}
        self._arriving, self._wakeup = socket.socketpair()

    def __enter__(self) -> "Terminal":
        self._wakeup.setblocking(False)
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGINT, *_EXIT_SIGNALS, _WAKE_SIGNAL):
            if number == _WAKE_SIGNAL or signal.getsignal(number) is not signal.SIG_IGN:
                handler = self._interrupt_read if number == _WAKE_SIGNAL else _ignore
                self._before[number] = signal.signal(number, handler)
        threading.Thread(target=self._take_signals, name="signals", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        signal.set_wakeup_fd(-1)
        self._wakeup.close()  # ends the thread, which closes the other end

    def edit(self, history: Path, names: Callable[[], Sequence[str]]) -> None:
        """Enable line editing, history and completion of command names."""
        if config.is_dumb_terminal():
            return
        try:
            import readline  # noqa: PLC0415 -- only a chat at a terminal edits lines
        except ImportError:  # a Python that was built without it
            return
        self._history = InputHistory(history)
        self._history.load()
        readline.set_auto_history(False)
        for text in self._history.texts:
            readline.add_history(text)

        def complete(typed: str, number: int) -> str | None:
            found = [f"/{name} " for name in names() if f"/{name}".startswith(typed)]
            return found[number] if typed.startswith("/") and number < len(found) else None

        readline.set_completer(complete)
        readline.set_completer_delims(" \n")
        readline.parse_and_bind("tab: complete")

    def read(self) -> str:
        """Read a message; a backslash at the end of a line continues it in the next.

        Lines that were pasted together are one message. Raises ExitRequested, or KeyboardInterrupt
        at Ctrl-C.
        """
        lines = [self._line(PROMPT)]
        while lines[-1].endswith("\\") or _has_input():
            lines[-1] = lines[-1].removesuffix("\\")
            lines.append(self._line(_CONTINUATION))
        text = "\n".join(lines)
        if self._history is not None and text.strip():
            import readline  # noqa: PLC0415 -- as above

            self._history.add(text)
            readline.add_history(self._history.texts[-1])
        return text

    def discard_input(self) -> None:
        """Discard keys that were pressed before a question was shown."""
        with contextlib.suppress(termios.error):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)

    def ask(self, prompt: str, is_settled: Callable[[], bool]) -> str | None:
        """Read a short answer; None when it is no longer needed."""
        self._is_settled = is_settled
        try:
            return self._line(prompt)
        except _ReadInterruptedError:
            self._out.write("\n")
            return None
        finally:
            self._is_settled = lambda: False

    def take_signal(self) -> int | None:
        """Return the oldest signal that has not been handled."""
        return self._signals.popleft() if self._signals else None

    def wake(self) -> None:
        """Check again whether an answer is still needed; called from any thread."""
        with contextlib.suppress(OSError):  # full, so the thread will look; or closed
            self._wakeup.send(bytes([_WAKE_SIGNAL]))

    def _line(self, prompt: str) -> str:
        self._is_reading = True
        try:
            return self._typed(prompt)
        except (_ReadInterruptedError, SystemError):
            # SystemError: the next signal came before CPython left `input` with the exception.
            if not self._must_stop_reading():
                raise
            if self._is_settled():
                raise _ReadInterruptedError from None
            error = _exception_for(self._signals.popleft())
            if isinstance(error, KeyboardInterrupt):
                self._out.write("\n")
            raise error from None
        except EOFError:
            raise ExitRequested(EXIT_HANGUP if _is_hung_up() else 0) from None
        except OSError:
            raise ExitRequested(EXIT_HANGUP) from None
        finally:
            self._is_reading = False

    def _typed(self, prompt: str) -> str:
        if self._must_stop_reading():
            raise _ReadInterruptedError
        self._out.flush()
        if self._out is sys.stdout and sys.stdout.isatty():
            return input(prompt)
        self._out.write(prompt)  # `input` would write it to a redirected stdout
        self._out.flush()
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.removesuffix("\n")

    def _must_stop_reading(self) -> bool:
        return bool(self._signals) or self._is_settled()

    def _interrupt_read(self, _number: int, frame: FrameType | None) -> None:
        """Handle a signal in the main thread.

        Only an exception that is raised in the frame of `_typed` itself reaches its caller: `input`
        clears those of a completer, and Python those of a finalizer.
        """
        if frame and frame.f_code is Terminal._typed.__code__ and self._must_stop_reading():
            raise _ReadInterruptedError

    def _take_signals(self) -> None:
        """Store the signals that arrive, and interrupt the reader for them; runs in a thread."""
        with self._arriving:
            while numbers := self._arriving.recv(64):
                for number in numbers:
                    if number in self._before and number != _WAKE_SIGNAL:
                        self._signals.append(number)
                        self.items.put(SignalReceived())
                while self._is_reading and self._must_stop_reading():
                    signal.pthread_kill(threading.main_thread().ident or 0, _WAKE_SIGNAL)
                    time.sleep(_RETRY_INTERVAL_S)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the thread that takes signals has it from CPython's own handler."""


def _exception_for(number: int) -> BaseException:
    return ExitRequested(128 + number) if number in _EXIT_SIGNALS else KeyboardInterrupt()


def _has_input() -> bool:
    """Return whether there is more input already, such as pasted lines."""
    return bool(select.select([sys.stdin], [], [], 0)[0]) and not _is_hung_up()


def _is_hung_up() -> bool:
    """Return whether nobody is at the other end of the terminal any more."""
    poll = select.poll()
    poll.register(sys.stdin.fileno(), select.POLLIN)
    hangup = select.POLLHUP | select.POLLERR | select.POLLNVAL
    return any(events & hangup for _, events in poll.poll(0))
