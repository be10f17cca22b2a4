"""Markdown that arrives in pieces, cut into blocks that can be shown for good."""

import re
from typing import Literal, NamedTuple

Kind = Literal["text", "item", "code"]

_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})\s*([^`]*)$")
_HEADING = re.compile(r" {0,3}#{1,6}(\s|$)")
_RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_ITEM = re.compile(r" ?(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
_QUOTE = re.compile(r" {0,3}>")
_INDENTED = re.compile(r"(?: {2}|\t)")


class Block(NamedTuple):
    """A part of a text that nothing after it can change."""

    kind: Kind
    text: str
    """Of code, only what is between the fences."""
    source: str
    """As it was written."""
    language: str = ""
    goes_on: bool = False
    """Whether it continues the block before it: the next lines of code, the next item of a list."""


class Blocks:
    """Takes a text in pieces and gives back the blocks that are complete."""

    def __init__(self) -> None:
        self._tail = ""
        """The line that has no end yet."""
        self._lines: list[str] = []
        """The lines of the block that has no end yet."""
        self._kind: Kind | None = None
        self._fence = ("", "", "")
        """Of open code: the indentation, the marks that opened it, and its language."""
        self._is_spilled = False
        self._after_item = False
        """Whether the last thing was an item with no blank line after it."""
        self._done: list[Block] = []

    @property
    def rest(self) -> str:
        """What is not part of a complete block yet, as it was written."""
        return "".join(f"{line}\n" for line in self._lines) + self._tail

    @property
    def is_code(self) -> bool:
        """Whether code has begun and not ended."""
        return self._kind == "code"

    @property
    def goes_on(self) -> bool:
        """Whether what is not complete continues the block before it."""
        return self._is_spilled or (self._kind == "item" and self._after_item)

    def feed(self, text: str) -> list[Block]:
        """Take in the next piece; returns what it completed."""
        *lines, self._tail = (self._tail + text).split("\n")
        for line in lines:
            self._take(line)
        return self._give()

    def end(self) -> list[Block]:
        """Nothing follows: all that is left is complete."""
        if self._tail:
            self._take(self._tail)
            self._tail = ""
        self._close()
        return self._give()

    def spill(self) -> list[Block]:
        """The whole lines of code that has not ended, as a block of their own."""
        if self.is_code and len(self._lines) > (not self._is_spilled):
            self._put_code(self._lines)
            self._lines, self._is_spilled = [], True
        return self._give()

    def _give(self) -> list[Block]:
        done, self._done = self._done, []
        return done

    def _take(self, line: str) -> None:
        match self._kind:
            case "code":
                self._take_code(line)
            case "item":
                self._take_in_item(line)
            case "text":
                self._take_in_text(line)
            case None:
                if line.strip():
                    self._begin(line)
                else:
                    self._after_item = False

    def _take_code(self, line: str) -> None:
        self._lines.append(line)
        bare = line.strip()
        marks = self._fence[1]
        if bare and set(bare) == {marks[0]} and len(bare) >= len(marks):
            self._lines.pop()
            self._close()

    def _take_in_item(self, line: str) -> None:
        after_blank = bool(self._lines) and not self._lines[-1].strip()
        if not line.strip() or _INDENTED.match(line):
            self._lines.append(line)
        elif after_blank or _begins_something(line):
            self._close()
            self._after_item = not after_blank
            self._begin(line)
        else:
            self._lines.append(line)

    def _take_in_text(self, line: str) -> None:
        if not line.strip():
            self._close()
        elif _begins_something(line) and not self._goes_with(line):
            self._close()
            self._begin(line)
        else:
            self._lines.append(line)

    def _goes_with(self, line: str) -> bool:
        """Whether the line belongs to the text above it: a quote goes on, a rule makes a heading."""
        if _QUOTE.match(line):
            return bool(_QUOTE.match(self._lines[0]))
        return bool(_RULE.match(line)) and set(line.strip()) == {"-"}

    def _begin(self, line: str) -> None:
        self._lines = [line]
        if fence := _FENCE.match(line):
            self._kind, self._is_spilled = "code", False
            self._fence = (fence[1], fence[2], fence[3].strip())
        elif _RULE.match(line) or _HEADING.match(line):
            self._kind = "text"
            self._close()
        else:
            self._kind = "item" if _ITEM.match(line) else "text"

    def _close(self) -> None:
        if self._kind == "code":
            self._put_code(self._lines)
        elif self._kind is not None and self._lines:
            text = "\n".join(self._lines).rstrip()
            goes_on = self._kind == "item" and self._after_item
            self._done.append(Block(self._kind, text, text, goes_on=goes_on))
        self._after_item = False
        self._lines, self._kind, self._is_spilled = [], None, False

    def _put_code(self, lines: list[str]) -> None:
        indentation, _, language = self._fence
        code = lines if self._is_spilled else lines[1:]
        text = "\n".join(line.removeprefix(indentation) for line in code)
        if code or not self._is_spilled:
            name = language.partition(" ")[0]
            source = "\n".join(lines)
            self._done.append(Block("code", text, source, name, goes_on=self._is_spilled))


def _begins_something(line: str) -> bool:
    patterns = (_FENCE, _HEADING, _RULE, _ITEM, _QUOTE)
    return any(pattern.match(line) for pattern in patterns)
