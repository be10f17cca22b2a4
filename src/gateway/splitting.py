"""Split a long Markdown text into pieces that a platform takes, each of them whole Markdown.

A cut is made where it hurts least: between paragraphs, lines, sentences, words, and only then within
what belongs together. What is open at a cut (code, emphasis, a link, a quote, a table) is closed before
it and opened anew behind it; blanks at a cut go, everything else stays, once. Links that name their
address elsewhere get it beside them first: the pieces would not have it.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from wcwidth import iter_graphemes

from gateway import references
from gateway.outline import Construct, Line, Outline

MIN_LIMIT = 16
"""The smallest limit that makes sense."""

_PARAGRAPH, _BLOCK, _LINE, _SENTENCE, _WORD, _INSIDE = 6, 5, 4, 3, 2, 1
_BLANK_LINES = re.compile(r"(?:[^\S\n]*\n)*")
_GAP = re.compile(r"\s+|(?<=[。！？])(?=\S)")
_SENTENCE_END = re.compile(r"(?:[.!?…][\"'”’)\]*_]*|[。！？])$")
_BLOCK_MARK = re.compile(r"(?:[-+*]|\d{1,9}[.)]|#{1,6})(?:\s|$)|>|```|~~~|\||    ")

Measure = Callable[[str], int]


class Piece(NamedTuple):
    """A part of a text, from `start` to `end`, and what was added to it."""

    opening: str
    start: int
    end: int
    closing: str

    def of(self, text: str) -> str:
        return f"{self.opening}{text[self.start : self.end]}{self.closing}"


class _Place(NamedTuple):
    """A possible beginning of the next piece."""

    at: int
    rank: int
    """The quality of the place; 0: unusable."""


def split(text: str, limit: int, measure: Measure = len) -> list[str]:
    """Return the pieces of a text, each of which measures no more than the limit."""
    if measure(text) > limit:
        text = references.resolved(text)
    return [piece.of(text) for piece in cut(text, limit, measure)]


def cut(text: str, limit: int, measure: Measure = len) -> list[Piece]:
    """Return the pieces as places of the text; raises ValueError for a limit that nothing fits into."""
    if limit < MIN_LIMIT:
        raise ValueError(f"Parts of {limit} are too small; the minimum is {MIN_LIMIT}.")
    return list(_Cutter(text, limit, measure).pieces())


class _Cutter:
    def __init__(self, text: str, limit: int, measure: Measure) -> None:
        self._text = text
        self._limit = limit
        self._measure = measure
        self._end = len(text.rstrip())

    @cached_property
    def _outline(self) -> Outline:
        """Read when something must be cut: most texts fit as they are."""
        return Outline(self._text)

    @cached_property
    def _first_of_code(self) -> set[int]:
        """The lines of code that only blank lines separate from the marks that open it."""
        found: set[int] = set()
        has_code = True
        for number, line in enumerate(self._outline.lines):
            if line.kind == "code" and not has_code:
                found.add(number)
            is_blank = not self._text[line.content : line.end].strip()
            has_code = line.kind != "fence" and (has_code or not is_blank)
        return found

    def pieces(self) -> Iterator[Piece]:
        leading = _BLANK_LINES.match(self._text)
        start = leading.end() if leading else 0
        whole = Piece("", start, self._end, "")
        if start < self._end and self._fits(whole):
            yield whole
            return
        while start < self._end:
            piece, start = self._next(start)
            yield piece

    def _next(self, start: int) -> tuple[Piece, int]:
        """Return the piece that begins at a place, and the beginning of the one after it."""
        opening = (
            "".join(construct.opening for construct in self._affordable(start)) if start else ""
        )
        rest = Piece(opening, start, self._end, "")
        if self._fits(rest):
            return rest, rest.end
        reach = self._reach(start, opening)
        for place in self._best(start, self._places(start, reach)):
            piece = self._until(opening, start, place.at)
            if self._fits(piece):
                return piece, place.at
        return self._forced(opening, start, reach)

    def _fits(self, piece: Piece) -> bool:
        return self._measure(piece.of(self._text)) <= self._limit

    def _until(self, opening: str, start: int, place: int) -> Piece:
        closing = "".join(construct.closing for construct in reversed(self._affordable(place)))
        end = place
        if not self._outline.is_code(place):
            end = start + len(self._text[start:place].rstrip())
        elif self._outline.line(place).start == place:
            end -= 1
        return Piece(opening, start, end, closing)

    def _affordable(self, place: int) -> Sequence[Construct]:
        """Return what is opened and closed at a cut; the outermost only, to save room."""
        constructs: list[Construct] = []
        for construct in self._outline.open_at(place):
            marks = "".join(each.opening + each.closing for each in (*constructs, construct))
            if self._measure(marks) > self._limit * 2 // 5:
                break
            constructs.append(construct)
        return constructs

    def _reach(self, start: int, opening: str) -> int:
        """Return the farthest end of a piece from here, if nothing must be closed there."""
        size = self._limit
        while start + size < len(self._text) and self._holds(opening, start, start + size):
            size *= 2
        ends = range(start, min(start + size, len(self._text)) + 1)
        beyond = bisect_right(ends, 0, key=lambda end: not self._holds(opening, start, end))
        return ends[max(0, beyond - 1)]

    def _holds(self, opening: str, start: int, end: int) -> bool:
        return self._measure(opening + self._text[start:end]) <= self._limit

    def _best(self, start: int, places: Sequence[_Place]) -> Iterator[_Place]:
        """Yield places in the order in which to try them: good ones that fill the piece first."""
        if not places:
            return
        size = places[-1].at - start
        for rank in (_PARAGRAPH, _BLOCK, _LINE, _SENTENCE, _WORD):
            first = start + (size // 3 if rank >= _LINE else size // 2)
            yield from (
                place for place in reversed(places) if place.rank >= rank and place.at >= first
            )
        yield from (place for place in reversed(places) if place.rank >= _WORD)
        yield from reversed(places)

    def _places(self, start: int, reach: int) -> list[_Place]:
        found: list[_Place] = []
        for gap in _GAP.finditer(self._text, start):
            if gap.start() > reach:
                break
            found += self._places_of(gap, start)
        return [place for place in found if place.rank and start < place.at < self._end]

    def _places_of(self, gap: re.Match[str], start: int) -> Iterable[_Place]:
        """Yield the places of a stretch of blanks: in code each line, elsewhere what follows it."""
        outline = self._outline
        first, last = outline.number(gap.start()), outline.number(gap.end())
        for number in range(first + 1, last + 1):
            line = outline.lines[number]
            if line.kind != "blank":
                yield _Place(line.start, self._rank_of_line(number))
        line = outline.lines[last]
        if first == last and gap.end() > line.content and gap.start() > start:
            yield _Place(gap.end(), self._rank_within(line, gap))

    def _rank_of_line(self, number: int) -> int:
        line, before = self._outline.lines[number], self._outline.lines[number - 1]
        if number in self._first_of_code:
            return 0  # marks without code would be a piece that says nothing
        if line.kind in ("code", "end"):
            return _INSIDE if line.kind == "end" else _LINE
        if before.kind == "head" and line.kind in ("head", "row"):
            return 0  # the same of a table without rows
        if line.kind == "row":
            return _LINE
        if line.spans.around(line.start):
            return self._rank_in_spans(line, line.start)
        if self._follows_heading(number):
            return _WORD
        if line.indent or line.quote:
            return _LINE
        return _PARAGRAPH if before.kind == "blank" else _BLOCK

    def _follows_heading(self, number: int) -> bool:
        number -= 1
        while number > 0 and self._outline.lines[number].kind == "blank":
            number -= 1
        return self._outline.lines[number].kind == "heading"

    def _rank_within(self, line: Line, gap: re.Match[str]) -> int:
        place = gap.end()
        if len(list(iter_graphemes(self._text[place - 1 : place + 1]))) < 2:
            return 0  # a blank with an accent on it
        if line.kind not in ("text", "heading"):
            return _INSIDE
        if line.spans.around(place):
            return self._rank_in_spans(line, place)
        if _BLOCK_MARK.match(self._text, place):
            return _INSIDE
        before = self._text[max(line.content, gap.start() - 8) : gap.start()]
        return _SENTENCE if _SENTENCE_END.search(before) else _WORD

    def _rank_in_spans(self, line: Line, place: int) -> int:
        """Spans can be cut where there is something of them on both sides."""
        for span in line.spans.around(place):
            before, after = self._text[span.inside : place], self._text[place : span.outside]
            if not (before.strip() and after.strip()):
                return 0
        return _INSIDE

    def _forced(self, opening: str, start: int, reach: int) -> tuple[Piece, int]:
        """Cut where no cut should be: between characters as people see them, if that is possible."""
        places = self._characters(start, reach)
        clean = [place for place in places if self._is_clean(place)]
        for place in (*reversed(clean), *reversed(places)):
            piece = self._until(opening, start, place)
            if start < piece.end and self._fits(piece):
                return piece, place
        bare = self._reach(start, "")
        if bare == start:
            raise ValueError(f"Nothing fits into parts of {self._limit}.")
        place = next(iter(reversed(self._characters(start, bare))), bare)
        return Piece("", start, place, ""), place

    def _characters(self, start: int, reach: int) -> list[int]:
        """Return the places between characters, up to the reach."""
        places: list[int] = []
        place = start
        for character in iter_graphemes(self._text[start : reach + 1]):
            place += len(character)
            if place > reach:
                break
            places.append(place)
        return places

    def _is_clean(self, place: int) -> bool:
        """Return whether a place is outside of marks, and not before anything that looks like one."""
        line = self._outline.line(place)
        if self._text[place - 1] == "\\" or place <= line.content:
            return False
        if line.spans.around(place):
            return bool(self._rank_in_spans(line, place))
        return not _BLOCK_MARK.match(self._text, place)
