"""A terminal in memory: enough of one to see what a person would see."""

import io
import os
import re

_PIECE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\n|\r|[^\x1b\n\r]")


class Terminal(io.StringIO):
    """Takes what a program writes and keeps the picture it makes, what scrolled away included."""

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        super().__init__()
        self.size = os.terminal_size((columns, lines))
        self.rows: list[list[str]] = [[]]
        self.row = self.column = 0
        self.wrapped = 0
        """How often a line was longer than the terminal is wide."""
        self.lost = 0
        """How often the program wanted to go up further than the terminal reaches."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        end = 0
        for piece in _PIECE.finditer(text):
            assert piece.start() == end, f"cannot show {text[end : end + 8]!r}"
            end = piece.end()
            self._take(piece)
        assert end == len(text)
        return len(text)

    def _take(self, piece: re.Match[str]) -> None:
        match piece[0], piece[2]:
            case "\n", _:
                self._down()
                self.column = 0
            case "\r", _:
                self.column = 0
            case _, "A":
                self._up(int(piece[1] or 1))
            case _, "J":
                del self.rows[self.row + 1 :]
                del self.rows[self.row][self.column :]
            case _, "m":
                pass
            case character, None:
                self._put(character)
            case other, _:
                raise AssertionError(f"cannot show {other!r}")

    def _put(self, character: str) -> None:
        if self.column >= self.size.columns:
            self.wrapped += 1
            self._down()
            self.column = 0
        row = self.rows[self.row]
        row += " " * (self.column - len(row))
        row[self.column : self.column + 1] = [character]
        self.column += 1

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append([])

    def _up(self, number: int) -> None:
        top = max(len(self.rows) - self.size.lines, 0)
        self.lost += self.row - number < top
        self.row = max(self.row - number, top)

    @property
    def picture(self) -> str:
        """All lines, without blanks at their ends."""
        return "\n".join("".join(row).rstrip() for row in self.rows).rstrip("\n")
