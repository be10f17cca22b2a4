"""Keys typed while nobody asks for them: not shown, not lost, offered at the next prompt."""

import contextlib
import os
import re
import select
import termios
from typing import Any

from hermes_core.text import visible

_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?<>=]*[ -/]*[@-~]|O.|.)?", re.DOTALL)
_ERASE_LINE = "\x15"
_BACKSPACES = "\x7f\x08"


class Keys:
    """A terminal that keeps quiet for the length of a block; Ctrl-C still stops."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._typed = bytearray()
        self._before: list[Any] | None = None

    def __enter__(self) -> "Keys":
        self._before = termios.tcgetattr(self.descriptor)
        self.quiet()
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            with contextlib.suppress(termios.error):  # the terminal may be gone
                termios.tcsetattr(self.descriptor, termios.TCSANOW, self._before)
            self._before = None

    def quiet(self) -> None:
        """Show nothing of what is typed; also after the shell had the terminal in between."""
        attributes = termios.tcgetattr(self.descriptor)
        attributes[3] &= ~(termios.ECHO | termios.ICANON)
        attributes[6][termios.VMIN], attributes[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self.descriptor, termios.TCSANOW, attributes)

    def read(self) -> bool:
        """Take in what was typed; False when the terminal is gone."""
        try:
            typed = os.read(self.descriptor, 4096)
        except OSError:
            return False
        self._typed += typed
        return bool(typed)

    def drain(self) -> None:
        """Take in what was typed so far, without waiting for more."""
        while select.select([self.descriptor], [], [], 0)[0] and self.read():
            pass

    def keep(self, text: str) -> None:
        """Add what somebody else has read."""
        self._typed += text.encode()

    def take(self) -> str:
        """What was typed since the last time, as a line editor would have it."""
        typed = self._typed.decode("utf-8", "ignore")
        self._typed.clear()
        text = ""
        for character in _SEQUENCE.sub("", typed).replace("\r", "\n"):
            if character in _BACKSPACES:
                text = text[:-1]
            elif character == _ERASE_LINE:
                text = text[: text.rfind("\n") + 1]
            else:
                text += visible(character)
        return text.strip("\n")
