"""The terminal: what happens when it goes away, and when a signal ends the interface."""

import asyncio
import os
import queue
import select
import signal
import termios
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, cast

from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.drivers.linux_driver import LinuxDriver
from textual.keys import Keys
from textual.message import Message

if TYPE_CHECKING:
    from textual.app import App

_EXIT_TIMEOUT_S = 0.9
"""From the signal, or the loss of the terminal, to the end of the process, whatever blocks."""
_RESTORE = (
    b"\x1b[?2004l\x1b[?7h\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l"
    b"\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l\x1b[23;2t"
)
"""Leave the alternate screen and end the reports that Textual's driver asked for."""
cast("dict[str, tuple[Keys, ...]]", ANSI_SEQUENCES_KEYS)["\x1b\r"] = (Keys.ControlJ,)
"""Alt+Enter, of which Textual makes Enter; both insert a line."""
_HANGUP_STATUS = 128 + signal.SIGHUP


class Driver(LinuxDriver):
    """Textual's driver for a terminal that may go away at any moment.

    A failed write would end Textual's writer thread, and everybody who writes would then wait for
    a place in its queue for ever. Output to a terminal that is gone is dropped instead.
    """

    class ExitRequested(Message):
        """A signal arrived, or the terminal is gone: the application must exit now."""

        def __init__(self, status: int) -> None:
            super().__init__()
            self.status = status

    def __init__(self, app: "App[Any]", **options: Any) -> None:  # noqa: ANN401 -- Textual's
        super().__init__(app, **options)  # pyright: ignore[reportUnknownMemberType] -- Textual's
        self._file = _Output(self._file, self._on_lost)  # type: ignore[assignment]
        self._deadline = _ExitDeadline(self._force_exit)

    def start_application_mode(self) -> None:
        self._handle_signals()
        super().start_application_mode()
        self.write("\x1b[22;2t")  # the terminal keeps the title of the window until it is left

    def stop_application_mode(self) -> None:
        self.write("\x1b[23;2t")
        super().stop_application_mode()

    def is_lost(self) -> bool:
        """Return whether the other end of the terminal was closed. Reading would never end."""
        poll = select.poll()
        poll.register(self.fileno, 0)
        is_lost = any(what & (select.POLLHUP | select.POLLNVAL) for _, what in poll.poll(0))
        if is_lost:
            self._on_lost()
        return is_lost

    def _handle_signals(self) -> None:
        """Exit in good order on SIGTERM and SIGHUP, and by force while the loop is blocked."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._request_exit, 128 + number)
            signal.signal(number, self._start_deadline)  # the loop is woken as before

    def _start_deadline(self, number: int, _frame: FrameType | None) -> None:
        self._deadline.start(128 + number)

    def _request_exit(self, status: int) -> None:
        self._app.post_message(self.ExitRequested(status))

    def _on_lost(self) -> None:
        self._deadline.start(_HANGUP_STATUS)
        self._request_exit(_HANGUP_STATUS)

    def _force_exit(self, status: int) -> None:
        """Restore the terminal as far as it can be done without waiting, and end the process."""
        try:
            if self.attrs_before is not None:
                termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)
            if select.select([], [self._file], [], 0)[1]:
                os.write(self._file.fileno(), _RESTORE)
        except (OSError, termios.error):
            pass  # there is no terminal any more
        finally:
            os._exit(status)


class _Output:
    """The terminal as a file that drops what cannot be written any more."""

    def __init__(self, file: IO[str], on_lost: Callable[[], None]) -> None:
        self._file = file
        self._on_lost = on_lost
        self._is_lost = False

    def write(self, text: str) -> None:
        self._attempt(self._file.write, text)

    def flush(self) -> None:
        self._attempt(self._file.flush)

    def fileno(self) -> int:
        return self._file.fileno()

    def _attempt(self, action: Callable[..., object], *arguments: str) -> None:
        if self._is_lost:
            return
        try:
            action(*arguments)
        except (OSError, ValueError):
            self._is_lost = True
            self._on_lost()


class _ExitDeadline:
    """A thread that ends the process some time after it was asked to."""

    def __init__(self, force: Callable[[int], None]) -> None:
        self._force = force
        self._statuses: queue.SimpleQueue[int] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="exit deadline", daemon=True).start()

    def start(self, status: int) -> None:
        """Start it; may be called by a signal handler, which no lock is safe from but this queue's."""
        self._statuses.put(status)

    def _run(self) -> None:
        status = self._statuses.get()
        time.sleep(_EXIT_TIMEOUT_S)
        self._force(status)
