"""Lines typed on a terminal as it is, without a line editor: for dumb terminals and single questions."""

import os
import signal
import termios
from collections.abc import Callable
from typing import TextIO

from hermes_cli.chat.mailbox import Mailbox
from hermes_cli.chat.signals import EXIT_HANGUP, Leaving, Signalled, is_hung_up

PROMPT = "> "
GOES_ON = "  "


class LineReader:
    """Reads whole lines and listens to signals meanwhile."""

    def __init__(self, mailbox: Mailbox, source: TextIO, out: TextIO) -> None:
        self._mailbox = mailbox
        self._descriptor = source.fileno()
        self._out = out
        self._typed = b""
        self._is_moot: Callable[[], bool] = lambda: False

    def read(self, default: str = "") -> str:
        """A message; a backslash at the end of a line goes on in the next. Raises Leaving."""
        lines = [default] if default else []
        prompt = f"{default}\n{GOES_ON}" if default else PROMPT
        while True:
            line = self._line(prompt if not lines or default else GOES_ON)
            lines.append(line.removesuffix("\\"))
            if not line.endswith("\\"):
                return "\n".join(lines)
            default = ""

    def ask(self, prompt: str, is_moot: Callable[[], bool]) -> str | None:
        """A short answer, or None when it became moot; what was typed before does not count."""
        termios.tcflush(self._descriptor, termios.TCIFLUSH)
        self._typed = b""
        self._is_moot = is_moot
        try:
            return self._line(prompt)
        except _Moot:
            self._out.write("\n")
            return None
        finally:
            self._is_moot = lambda: False

    def early_keys(self) -> str:
        """The terminal itself keeps what is typed early."""
        return ""

    def hear(self, signalled: Signalled) -> None:
        """Signals are found in the mailbox."""

    def wake(self) -> None:
        """Look again whether the answer is still needed."""
        self._mailbox.wake()

    def _line(self, prompt: str) -> str:
        self._out.write(prompt)
        self._out.flush()
        while b"\n" not in self._typed:
            if self._is_moot():
                raise _Moot
            if self._mailbox.wait(None, self._descriptor):
                self._take_in()
            self._hear_signals()
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r")

    def _take_in(self) -> None:
        try:
            typed = os.read(self._descriptor, 4096)
        except OSError:
            raise Leaving(EXIT_HANGUP) from None
        if not typed:
            raise Leaving(EXIT_HANGUP if is_hung_up(self._descriptor) else 0)
        self._typed += typed

    def _hear_signals(self) -> None:
        while (signalled := self._mailbox.take_signal()) is not None:
            signalled.check()
            if signalled.number == signal.SIGINT:
                self._out.write("\n")
                raise KeyboardInterrupt


class _Moot(Exception):
    """Nobody needs the answer any more."""
