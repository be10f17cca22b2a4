"""What is where in a Markdown text: fences, tables, quotes, lists, and spans within paragraphs.

Markdown is read as models write it, and only as far as it matters to somebody who cuts it.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

Kind = Literal["blank", "text", "heading", "fence", "code", "end", "head", "row"]
"""`fence` and `end` are the lines around code; `head` are the first two lines of a table."""

_PREFIX = re.compile(
    r"(?P<quote>(?:[ \t]*>)*)(?P<indent>[ \t]*)(?P<marker>(?:[-*+]|\d{1,9}[.)])(?=\s))?"
)
_REST = re.compile(r"\s*(?:\[[ xX]\]\s+|#{1,6}\s+)?")
_FENCE = re.compile(r"[ \t]*(?P<marks>`{3,}|~{3,})(?P<info>[^`\n]*)$")
_RULE = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*\r?$")
_HEADING = re.compile(r"#{1,6}\s")
_LANGUAGE = re.compile(r"\s*([^\s`]{1,32})(?=\s|$)")
_DEEP = 4
"""From this indentation on, what begins a message is taken for code."""

_NESTING = 64
"""So many beginnings of emphasis are remembered."""

_SPAN = re.compile(
    r"""\\.
    | (?P<code>`+)
    | (?P<auto><https?://[^\s<>]*>)
    | (?P<open>!?\[)(?=(?P<text>(?:[^\[\]\\]|\\.|\[[^\[\]]{0,200}\]){0,1000})
        (?P<close>\]\((?:[^()\s]|\([^()\s]{0,200}\)){0,2000}(?:\s+"[^"\n]{0,300}")?\)))
    | (?P<address>https?://[^\s<>)\]]+)
    | (?P<run>\*{1,3}|_{1,3}|~~)
    """,
    re.VERBOSE | re.DOTALL,
)


class Construct(NamedTuple):
    """Something that is open at a place: how it is closed there, and opened anew behind it."""

    opening: str
    closing: str = ""


class Span(NamedTuple):
    """A stretch of a paragraph that belongs together."""

    start: int
    inside: int
    outside: int
    end: int
    construct: Construct | None
    """None: it cannot be opened anew."""


class Spans:
    """The spans of a paragraph, found by place."""

    def __init__(self, found: Iterable[Span] = ()) -> None:
        self._all: list[Span] = []
        self._around: list[int] = []
        """For each span the number of the one that it is in, or -1."""
        for span in sorted(found, key=lambda one: (one.start, -one.end)):
            around = len(self._all) - 1
            while around >= 0 and self._all[around].end <= span.start:
                around = self._around[around]
            if around < 0 or span.end <= self._all[around].outside:
                self._all.append(span)
                self._around.append(around)
        self._starts = [span.start for span in self._all]

    def around(self, place: int) -> list[Span]:
        """The spans that a place is within, the outermost first."""
        found: list[Span] = []
        number = bisect_left(self._starts, place) - 1
        while number >= 0:
            if self._all[number].end > place:
                found.append(self._all[number])
            number = self._around[number]
        return found[::-1]


@dataclass(frozen=True)
class Line:
    """A line, and what it stands in."""

    start: int
    end: int
    kind: Kind
    quote: str
    indent: int
    content: int
    """Where its text begins, behind the marks of lists and quotes."""
    fence: Construct | None = None
    head: Construct | None = None
    """The table's first two lines, when this is a row."""
    parents: Construct | None = None
    """The items that it is nested in, when it could not stand alone."""
    item: Construct | None = None
    """The same for what is left of it after a cut within."""
    spans: Spans = field(default_factory=Spans)


class Outline:
    """A text, and what is open at each place of it."""

    def __init__(self, text: str) -> None:
        self.text = text
        nested = _with_items(text, _with_parents(text, list(_lines(text))))
        self.lines = _with_spans(text, nested)
        self._starts = [line.start for line in self.lines]

    def number(self, place: int) -> int:
        """The number of the line that a place is in."""
        return bisect_right(self._starts, place) - 1

    def line(self, place: int) -> Line:
        return self.lines[self.number(place)]

    def is_code(self, place: int) -> bool:
        """Whether everything counts at a place, blanks too."""
        return self.line(place).kind in ("code", "end")

    def open_at(self, place: int) -> list[Construct]:
        """What is open between the characters before and after a place, the outermost first."""
        line = self.line(place)
        is_within = place > line.start
        is_code = line.kind in ("code", "end")
        found = [
            line.parents if is_code or not is_within else line.item,
            line.fence if is_code else None,
            line.head if line.kind == "row" and not is_within else None,
            Construct(line.quote) if is_within and line.quote else None,
        ]
        around = line.spans.around(place)
        spans = [one.construct for one in around if one.inside <= place <= one.outside]
        return [one for one in (*found, *spans) if one]


def closed(text: str) -> str:
    """The text with the code closed that it leaves open, so that what is put below it is no code."""
    last = Outline(f"{text.rstrip()}\n").lines[-1]
    if last.kind != "code" or last.fence is None:
        return text
    return text.rstrip() + last.fence.closing


class _Fence(NamedTuple):
    marks: str
    quote: str
    construct: Construct


def _lines(text: str) -> Iterator[Line]:
    fence: _Fence | None = None
    head: Construct | None = None
    start = 0
    while start <= len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        plain = _plain(text, start, end)
        if fence and fence.quote and not plain.quote:
            fence = None  # the quote that it stood in is over
        if fence:
            is_end = _closes(text[start:end], fence)
            yield replace(plain, kind="end" if is_end else "code", fence=fence.construct)
            fence = None if is_end else fence
        elif fence := _opens(text, plain):
            yield replace(plain, kind="fence")
        else:
            head = _table(text, plain, head)
            yield replace(plain, kind=_kind(text, plain, head), head=head)
        head = None if fence else head
        start = end + 1


def _plain(text: str, start: int, end: int) -> Line:
    found = _PREFIX.match(text, start, end)
    assert found  # every part of it may be empty
    rest = _REST.match(text, found.end(), end)
    quote = found["quote"] + (" " if found["quote"] else "")
    indent = len(found["indent"].expandtabs(4))
    content = rest.end() if rest else found.end()
    return Line(start, end, "text", quote, indent, content)


def _opens(text: str, line: Line) -> _Fence | None:
    prefix = _PREFIX.match(text, line.start, line.end)
    found = prefix and _FENCE.match(text, prefix.end(), line.end)
    if not prefix or not found:
        return None
    # Behind the mark of a list only its width counts from here on.
    margin = prefix["quote"] + prefix["indent"] + " " * len(prefix["marker"] or "")
    if prefix["marker"]:
        margin += " "
    marks, language = found["marks"], _LANGUAGE.match(found["info"])
    opening = f"{margin}{marks}{language[1] if language else ''}\n"
    return _Fence(marks, prefix["quote"], Construct(opening, f"\n{margin}{marks}"))


def _closes(line: str, fence: _Fence) -> bool:
    marks = line.strip(" \t>\r") if fence.quote else line.strip()
    return len(marks) >= len(fence.marks) and not marks.strip(fence.marks[0])


def _table(text: str, line: Line, head: Construct | None) -> Construct | None:
    """The head of the table that a line belongs to."""
    said = text[line.start : line.end]
    if "|" not in said or line.quote:
        return None
    if head:
        return head
    end = text.find("\n", line.end + 1)
    following = text[line.end + 1 : end if end >= 0 else len(text)]
    is_head = "|" in following and _RULE.match(following)
    return Construct(f"{said.rstrip()}\n{following.rstrip()}\n") if is_head else None


def _kind(text: str, line: Line, head: Construct | None) -> Kind:
    said = text[line.start : line.end]
    if not said.strip(" \t\r>"):
        return "blank"
    if head:
        return "head" if said.rstrip() in head.opening.split("\n") else "row"
    return "heading" if _HEADING.match(said) else "text"


def _with_parents(text: str, lines: list[Line]) -> list[Line]:
    """Note what each deeply indented line is nested in."""
    items: list[tuple[int, str]] = []
    made: list[Line] = []
    for line in lines:
        if line.kind in ("code", "end"):
            made.append(replace(line, parents=made[-1].parents))
            continue
        if line.kind != "blank":
            while items and items[-1][0] >= line.indent:
                items.pop()
        nested = "".join(f"{' ' * indent}{mark}\n" for indent, mark in items)
        is_deep = bool(items) and line.indent >= _DEEP
        made.append(replace(line, parents=Construct(nested) if is_deep else None))
        prefix = _PREFIX.match(text, line.start, line.end)
        if prefix and prefix["marker"] and not line.quote and line.kind in ("text", "fence"):
            items.append((line.indent, prefix["marker"]))
    return made


def _with_items(text: str, lines: list[Line]) -> list[Line]:
    """Note what has to be opened again when a line of a list is cut."""
    made: list[Line] = []
    following: Line | None = None
    for line in reversed(lines):
        made.append(replace(line, item=_item(text, line, following)))
        following = line if line.kind != "blank" else following
    return made[::-1]


def _item(text: str, line: Line, following: Line | None) -> Construct | None:
    if line.quote or line.kind != "text":
        return None
    opening, margin = (line.parents.opening, line.indent) if line.parents else ("", 0)
    prefix = _PREFIX.match(text, line.start, line.end)
    marker = prefix["marker"] if prefix else None
    if marker and following and following.parents and following.indent > line.indent:
        # What is nested in this item would hang in the air.
        opening += f"{' ' * line.indent}{marker}\n"
        margin = line.indent + len(marker) + 1
    return Construct(opening + " " * margin) if opening else None


def _with_spans(text: str, lines: list[Line]) -> list[Line]:
    """Note the spans of each paragraph at its lines."""
    made: list[Line] = []
    for number, line in enumerate(lines):
        if line.kind not in ("text", "heading", "row"):
            made.append(line)
        elif number and _goes_on(text, lines[number - 1], line):
            made.append(replace(line, spans=made[-1].spans))
        else:
            end = _paragraph_end(text, lines, number)
            made.append(replace(line, spans=_spans(text, line.content, end)))
    return made


def _goes_on(text: str, before: Line, line: Line) -> bool:
    """Whether a line belongs to the paragraph of the one before it."""
    prefix = _PREFIX.match(text, line.start, line.end)
    begins = prefix and prefix["marker"]
    return before.kind == line.kind == "text" and before.quote == line.quote and not begins


def _paragraph_end(text: str, lines: list[Line], number: int) -> int:
    while number + 1 < len(lines) and _goes_on(text, lines[number], lines[number + 1]):
        number += 1
    return lines[number].end


def _spans(text: str, start: int, end: int) -> Spans:
    """Code, links, addresses and emphasis of a paragraph."""
    found: list[Span] = []
    runs: list[re.Match[str]] = []
    place = start
    while match := _SPAN.search(text, place, end):
        place = match.end()
        if match["code"]:
            place = _code(text, match, end, found)
        elif match["open"]:
            found.append(_link(text, match))
        elif match["run"]:
            _run(text, match, runs, found)
        elif match["auto"] or match["address"]:
            found.append(Span(match.start(), match.start(), match.start(), match.end(), None))
    return Spans(found)


def _span(start: int, inside: int, outside: int, end: int, text: str) -> Span:
    return Span(start, inside, outside, end, Construct(text[start:inside], text[outside:end]))


def _link(text: str, match: re.Match[str]) -> Span:
    start, end = match.start(), match.end("close")
    if match["open"] == "![":
        return Span(start, start, start, end, None)  # opened anew, it would be seen twice
    return _span(start, match.end(), match.end("text"), end, text)


def _code(text: str, match: re.Match[str], end: int, found: list[Span]) -> int:
    """Note a span of code; returns where to look on."""
    marks = match["code"]
    close = re.compile(rf"(?<!`){marks}(?!`)").search(text, match.end(), end)
    if close is None:
        return match.end()
    found.append(_span(match.start(), match.end(), close.start(), close.end(), text))
    return close.end()


def _run(text: str, match: re.Match[str], runs: list[re.Match[str]], found: list[Span]) -> None:
    """Note emphasis that ends here, or that some may begin."""
    before = text[match.start() - 1 : match.start()] or " "
    after = text[match.end() : match.end() + 1] or " "
    same = next((one for one in reversed(runs) if one["run"] == match["run"]), None)
    is_word = match["run"][0] == "_"
    if same and not before.isspace() and not (is_word and after.isalnum()):
        found.append(_span(same.start(), same.end(), match.start(), match.end(), text))
        del runs[runs.index(same) :]
    elif not after.isspace() and not (is_word and before.isalnum()):
        runs.append(match)
        del runs[:-_NESTING]
