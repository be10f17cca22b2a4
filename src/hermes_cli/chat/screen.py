"""The end of a terminal: what stands there for good, and below it the few lines that still change.

Everything that belongs together goes out in one write, and lines that stay the same are not touched, so
nothing flickers. The changing lines are wrapped here, never by the terminal, so that their number is
known and they can be replaced.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple, TextIO

from hermes_core.text import fit, one_line, width

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_ERASE_BELOW = "\x1b[J"
_USUAL = os.terminal_size((80, 24))


class Line(NamedTuple):
    """A line that may change; it fits into the width of the terminal."""

    text: str
    is_dim: bool = False

    def __str__(self) -> str:
        return f"{_DIM}{self.text}{_PLAIN}" if self.is_dim and self.text else self.text


class Screen:
    """A terminal that understands how to go up a line and erase what is below."""

    def __init__(self, out: TextIO, size: os.terminal_size | None = None) -> None:
        """The size is asked of the terminal each time, unless one is given."""
        self._out = out
        self._size = size
        self._live: list[Line] = []
        self._columns = 0
        """The width that the changing lines were written for."""

    @property
    def size(self) -> os.terminal_size:
        if self._size is not None:
            return self._size
        try:
            size = os.get_terminal_size(self._out.fileno())
        except (OSError, ValueError):  # gone, or no terminal at all
            return _USUAL
        return size if size.columns and size.lines else _USUAL

    @property
    def columns(self) -> int:
        """Columns that a line may fill; the last one is left free, because terminals differ there."""
        return max(self.size.columns - 1, 20)

    @property
    def room(self) -> int:
        """Changing lines that can be replaced: what has scrolled out of sight cannot."""
        return max(self.size.lines - 2, 3)

    def put(self, text: str, live: Sequence[Line] = ()) -> None:
        """Write lines for good, and after them those that may change. `text` ends with a line end."""
        self._write(self._up_to(0) + text + _joined(live))
        self._remember(live)

    def show(self, live: Sequence[Line]) -> None:
        """Replace the lines that may change."""
        same = _common(self._live, live)
        if same == len(self._live) == len(live):
            return
        if 0 < same == len(live):
            same -= 1  # the cursor must stand behind the last line: it is written anew
        is_resized = self._columns != self.size.columns
        if not is_resized and same == len(self._live) - 1 and self._grew(live[same:]):
            addition = live[same].text[len(self._live[same].text) :]
            later = "".join(f"\n{line}" for line in live[same + 1 :])
            self._write(str(Line(addition, live[same].is_dim)) + later)
        else:
            self._write(self._up_to(same) + _joined(live[same:]))
        self._remember(live)

    def keep(self, number: int) -> None:
        """Let the first of the changing lines stand as they are."""
        self._live = self._live[number:]

    def clear(self) -> None:
        """Take the changing lines away, so that somebody else may write."""
        self.show([])

    def _remember(self, live: Sequence[Line]) -> None:
        self._live = list(live)
        self._columns = self.size.columns

    def _grew(self, changed: Sequence[Line]) -> bool:
        """Whether the last line only became longer."""
        before = self._live[-1]
        return (
            bool(changed)
            and changed[0].is_dim == before.is_dim
            and changed[0].text.startswith(before.text)
        )

    def _up_to(self, number: int) -> str:
        """Go to the beginning of a changing line and erase from there."""
        if not self._live:
            return ""
        if number == len(self._live):
            return "\n"
        if self._columns != self.size.columns:
            # The terminal has wrapped the lines anew, nobody knows how: they stay.
            return "\n" + _joined(self._live[:number]) + ("\n" if number else "")
        up = len(self._live) - 1 - number
        return (f"\x1b[{up}A" if up else "") + "\r" + _ERASE_BELOW

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _joined(lines: Sequence[Line]) -> str:
    return "\n".join(map(str, lines))


def _common(before: Sequence[Line], after: Sequence[Line]) -> int:
    """How many lines both begin with."""
    same = 0
    for old, new in zip(before, after, strict=False):
        if old != new:
            break
        same += 1
    return same


def wrap(text: str, columns: int) -> list[str]:
    """A text as lines that fit, broken between words where there are any."""
    lines: list[str] = []
    for line in text.split("\n"):
        lines += _wrap_line(line, columns)
    return lines


def _wrap_line(line: str, columns: int) -> list[str]:
    lines: list[str] = []
    while width(line) > columns:
        cut = _fitting(line, columns)
        blank = line.rfind(" ", 1, cut + 1)
        if blank > 0 and line[:blank].strip():
            lines.append(line[:blank])
            line = line[blank + 1 :]
        else:
            lines.append(line[:cut])
            line = line[cut:]
    return [*lines, line]


def clip(text: str, columns: int) -> str:
    """A text on one line, shortened to fit."""
    return fit(one_line(text), columns).rstrip()


def _fitting(line: str, columns: int) -> int:
    """How many characters fit, at least one."""
    used = 0
    for position, character in enumerate(line):
        used += width(character)
        if used > columns:
            return max(position, 1)
    return len(line)
