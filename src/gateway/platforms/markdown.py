"""Parses Markdown for platforms that render it, without losing text.

markdown-it leaves out what is nested too deeply, what a row of a table has beyond the columns of its
head, and definitions of links that nothing leads to. Here what is too deep is shown as the text that it
is, and so is what only looks like the definition of a link; the last cell takes what is left of its row.
"""

from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.table import escapedSplit, getLine, table
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from gateway import references
from hermes_core.markdown import MAX_NESTING

_MAX_NESTING = MAX_NESTING // 2
"""Levels of lists and quotes that are read; a list is two. Each takes some of Python's stack."""
_MAX_STYLES = 20
"""The same for emphasis within emphasis."""


def reader(**options: Any) -> MarkdownIt:  # noqa: ANN401 -- options of markdown-it
    """Make a parser and renderer with tables and strikethrough; HTML is text."""
    settings = {"html": False, "maxNesting": MAX_NESTING, **options}
    parser = MarkdownIt("commonmark", settings)
    parser.enable(["table", "strikethrough"]).disable("reference")
    parser.core.ruler.before("block", "resolve_references", _resolve_references)
    parser.core.ruler.after("inline", "flatten_emphasis", _flatten_emphasis)
    parser.block.ruler.before("table", "rest_as_text", _rest_as_text)
    parser.block.ruler.at("table", _table, {"alt": ["paragraph"]})
    return parser


def _resolve_references(state: StateCore) -> None:
    state.src = references.resolved(state.src)


def _rest_as_text(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Turn what is nested too deeply into a paragraph."""
    if silent or state.level < _MAX_NESTING:
        return False
    after = start + 1
    for line in range(start + 1, end):
        if not state.isEmpty(line):
            if state.sCount[line] < state.blkIndent:
                break
            after = line + 1
    state.push("paragraph_open", "p", 1).map = [start, after]
    text = state.push("inline", "", 0)
    text.content = state.getLines(start, after, state.blkIndent, keepLastLF=False).strip()
    text.map, text.children = [start, after], []
    state.push("paragraph_close", "p", -1)
    state.line = after
    return True


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a table whose rows keep all their cells."""
    first = len(state.tokens)
    if not table(state, start, end, silent):
        return False
    row: list[Token] = []
    for token in state.tokens[first:]:
        if token.type == "tr_open":
            row = []
        elif token.type == "inline":
            row.append(token)
        elif token.type == "tr_close" and row[-1].map:
            cells = escapedSplit(getLine(state, row[-1].map[0]).strip().removeprefix("|"))
            row[-1].content = " | ".join(map(str.strip, cells[len(row) - 1 :])).removesuffix(" | ")
    return True


def _flatten_emphasis(state: StateCore) -> None:
    """Remove styles that are nested too deeply."""
    for token in state.tokens:
        if token.children:
            token.children = _flat(token.children)


def _flat(tokens: list[Token]) -> list[Token]:
    flat: list[Token] = []
    depth = 0
    for token in tokens:
        depth += token.nesting == 1
        if not token.nesting or depth <= _MAX_STYLES:
            flat.append(token)
        depth -= token.nesting == -1
    return flat
