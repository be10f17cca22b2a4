"""The outline of a Markdown text, for cutting it: what is open at a place and how to open it anew.

Blocks are read by `hermes_core.markdown`. The prefixes of quotes and lists, and the places of links and
emphasis within paragraphs, which markdown-it does not tell, are found here.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from hermes_core import markdown
from hermes_core.markdown import Block

Kind = Literal["blank", "text", "heading", "fence", "code", "end", "head", "row"]
"""`fence` and `end` are the lines around code; `head` are the first two lines of a table."""

_LINE_KINDS: Mapping[markdown.Kind, tuple[Kind, Kind]] = {
    "paragraph": ("text", "text"),
    "heading": ("heading", "heading"),
    "fence": ("fence", "code"),
    "code_block": ("code", "code"),
    "table": ("head", "row"),
    "hr": ("text", "text"),
}
"""The kind of the first line of each block, and of the others."""

_PREFIX = re.compile(
    r"(?P<quote>(?:[ \t]*>)*)(?P<indent>[ \t]*)(?P<marker>(?:[-*+]|\d{1,9}[.)])(?=\s))?"
)
_REST = re.compile(r"\s*(?:\[[ xX]\]\s+|#{1,6}\s+)?")
_LINE_FEED = re.compile(r"\n")
_LANGUAGE = re.compile(r"\s*([^\s`]{1,32})(?=\s|$)")
_CODE_INDENT = 4
"""From this indentation on, the beginning of a message is taken for code."""

_MAX_OPEN_RUNS = 64
"""How many beginnings of emphasis are remembered."""

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
    """Something that is open at a place, with the text that opens it anew and the one that closes it."""

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
        for span in sorted(found, key=lambda span: (span.start, -span.end)):
            around = len(self._all) - 1
            while around >= 0 and self._all[around].end <= span.start:
                around = self._around[around]
            if around < 0 or span.end <= self._all[around].outside:
                self._all.append(span)
                self._around.append(around)
        self._starts = [span.start for span in self._all]

    def around(self, place: int) -> list[Span]:
        """Return the spans that a place is within, the outermost first."""
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
        self._starts = _starts(text)
        blocks = markdown.blocks(text)
        lines = _with_parents(text, _lines(text, self._starts, blocks))
        self.lines = _with_spans(text, _with_items(text, lines), blocks)

    def number(self, place: int) -> int:
        """Return the number of the line that a place is in."""
        return bisect_right(self._starts, place) - 1

    def line(self, place: int) -> Line:
        return self.lines[self.number(place)]

    def is_code(self, place: int) -> bool:
        """Return whether a place is in code, where blanks count too."""
        return self.line(place).kind in ("code", "end")

    def open_at(self, place: int) -> list[Construct]:
        """Return what is open between the characters around a place, the outermost first."""
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
        spans = [span.construct for span in around if span.inside <= place <= span.outside]
        return [construct for construct in (*found, *spans) if construct]


def closed(text: str) -> str:
    """Close the code that a text leaves open, so that text below it is not code."""
    blocks = markdown.blocks(text.rstrip())
    if not blocks or not blocks[-1].is_open:
        return text
    return text.rstrip() + _fence(text, blocks[-1], _starts(text)[blocks[-1].start]).closing


def _starts(text: str) -> list[int]:
    return [0, *(found.end() for found in _LINE_FEED.finditer(text))]


def _lines(text: str, starts: Sequence[int], blocks: Iterable[Block]) -> list[Line]:
    ends = [*(start - 1 for start in starts[1:]), len(text)]
    lines = [_plain(text, start, end) for start, end in zip(starts, ends, strict=True)]
    for block in blocks:
        first, *others = lines[block.start : block.end]
        begins, continues = _LINE_KINDS[block.kind]
        kinds = [begins, *(continues for _ in others)]
        fence = head = None
        if block.kind == "fence":
            fence = _fence(text, block, first.start)
            kinds[-1] = kinds[-1] if block.is_open else "end"
        elif block.kind == "table":
            rule = others[0]
            head = Construct(
                f"{text[first.start : first.end].rstrip()}\n{text[rule.start : rule.end].rstrip()}\n"
            )
            kinds[1] = "head"
        for number, kind in enumerate(kinds, block.start):
            lines[number] = replace(lines[number], kind=kind, fence=fence, head=head)
    return lines


def _plain(text: str, start: int, end: int) -> Line:
    found = _PREFIX.match(text, start, end)
    assert found  # every part of it may be empty
    rest = _REST.match(text, found.end(), end)
    quote = found["quote"] + (" " if found["quote"] else "")
    indent = len(found["indent"].expandtabs(4))
    content = rest.end() if rest else found.end()
    kind: Kind = "text" if text[start:end].strip(" \t\r>") else "blank"
    return Line(start, end, kind, quote, indent, content)


def _fence(text: str, block: Block, start: int) -> Construct:
    """Return how a block of code at `start` is opened and closed where it stands."""
    prefix = _PREFIX.match(text, start)
    assert prefix  # every part of it may be empty
    # Behind the mark of a list only its width counts from here on.
    margin = prefix["quote"] + prefix["indent"] + " " * len(prefix["marker"] or "")
    if prefix["marker"]:
        margin += " "
    language = _LANGUAGE.match(block.info)
    opening = f"{margin}{block.marks}{language[1] if language else ''}\n"
    return Construct(opening, f"\n{margin}{block.marks}")


def _with_parents(text: str, lines: Iterable[Line]) -> list[Line]:
    """Note what each deeply indented line is nested in."""
    items: list[tuple[int, str]] = []
    noted: list[Line] = []
    for line in lines:
        if line.fence and line.kind != "fence":
            noted.append(replace(line, parents=noted[-1].parents))
            continue
        if line.kind != "blank":
            while items and items[-1][0] >= line.indent:
                items.pop()
        nested = "".join(f"{' ' * indent}{mark}\n" for indent, mark in items)
        is_deep = bool(items) and line.indent >= _CODE_INDENT
        noted.append(replace(line, parents=Construct(nested) if is_deep else None))
        prefix = _PREFIX.match(text, line.start, line.end)
        if prefix and prefix["marker"] and not line.quote and line.kind in ("text", "fence"):
            items.append((line.indent, prefix["marker"]))
    return noted


def _with_items(text: str, lines: Sequence[Line]) -> list[Line]:
    """Note what has to be opened again when a line of a list is cut."""
    noted: list[Line] = []
    following: Line | None = None
    for line in reversed(lines):
        noted.append(replace(line, item=_item(text, line, following)))
        following = line if line.kind != "blank" else following
    return noted[::-1]


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


def _with_spans(text: str, lines: list[Line], blocks: Iterable[Block]) -> list[Line]:
    """Note the spans of each paragraph, heading and row at its lines."""
    noted = list(lines)
    for block in blocks:
        numbers = range(block.start, block.end)
        if block.kind in ("paragraph", "heading"):
            spans = _spans(text, lines[block.start].content, lines[block.end - 1].end)
            for number in numbers:
                noted[number] = replace(lines[number], spans=spans)
        elif block.kind == "table":
            for number in numbers[2:]:
                line = lines[number]
                noted[number] = replace(line, spans=_spans(text, line.content, line.end))
    return noted


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
    """Note a span of code; return the place to continue at."""
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
    same = next((run for run in reversed(runs) if run["run"] == match["run"]), None)
    is_word = match["run"][0] == "_"
    if same and not before.isspace() and not (is_word and after.isalnum()):
        found.append(_span(same.start(), same.end(), match.start(), match.end(), text))
        del runs[runs.index(same) :]
    elif not after.isspace() and not (is_word and before.isalnum()):
        runs.append(match)
        del runs[:-_MAX_OPEN_RUNS]
