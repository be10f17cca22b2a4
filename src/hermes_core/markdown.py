"""Block structure of Markdown: which lines of a text are paragraphs, code, tables and headings.

markdown-it parses it, as it does for the display, so all code agrees about the end of a code block. It
is imported with the first text.
"""

import re
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

MAX_NESTING = 120
"""Levels of lists and quotes that are read; an item is two."""

Kind = Literal["paragraph", "heading", "fence", "code_block", "table", "hr"]
"""As markdown-it names them; `code_block` is code by its indentation."""

_KINDS = frozenset(Kind.__args__)
_BACKTICKS = re.compile(r"`+")


class Block(NamedTuple):
    """A block of a text that contains no other block."""

    kind: Kind
    start: int
    """The number of its first line."""
    end: int
    """The number of the line behind its last one."""
    marks: str = ""
    """What opens and closes a fence."""
    info: str = ""
    """What stands behind the marks that open a fence: the language."""
    is_open: bool = False
    """Whether it is a fence without the marks that close it."""


def blocks(text: str) -> list[Block]:
    """Return the blocks of a text in their order; its lines are those between line feeds."""
    # Elsewhere a lone carriage return ends a line too.
    tokens = _parser().parse(text.replace("\r", " ") + "\n")
    found: list[Block] = []
    for token in tokens:
        kind = token.type.removesuffix("_open")
        if token.map is None or kind not in _KINDS:
            continue
        start, end = token.map
        is_open = kind == "fence" and token.content.count("\n") == end - start - 1
        marks = token.markup if kind == "fence" else ""
        found.append(Block(cast("Kind", kind), start, end, marks, token.info, is_open))
    return found


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # noqa: PLC0415 -- slow to load

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_NESTING})
    parser.enable("table").disable("reference").core.ruler.enableOnly(["block"])
    return parser


def code_lines(text: str) -> frozenset[int]:
    """Return the numbers of the lines that are code or the marks around it."""
    code = (block for block in blocks(text) if block.kind in ("fence", "code_block"))
    return frozenset(number for block in code for number in range(block.start, block.end))


def breaks(text: str) -> list[int]:
    """Return the offsets behind the blank lines outside of code: a text may be parted there."""
    code = code_lines(text)
    offsets: list[int] = []
    place = 0
    for number, line in enumerate(text.split("\n")[:-1]):
        place += len(line) + 1
        if number not in code and not line.strip():
            offsets.append(place)
    return offsets


def fenced(text: str) -> str:
    """Return a text as a block of code that nothing in it can end."""
    marks = "`" * max(3, *(len(run) + 1 for run in ("", *_BACKTICKS.findall(text))))
    return f"{marks}\n{text}\n{marks}"
