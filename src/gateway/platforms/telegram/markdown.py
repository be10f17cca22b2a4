"""Markdown as models write it, turned into a text and the entities that Telegram draws on it.

Entities instead of one of Telegram's markup languages: nothing needs escaping, so nothing can be refused
and nothing grows. Offsets count UTF-16 units, as Telegram does. Telegram's rules are kept here: code
lies in nothing but a quotation, and a quotation in no other.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from gateway.platforms.markdown import reader
from hermes_core.text import width, without_surrogates

_RULE = "———"
_STYLES = {"strong": "bold", "em": "italic", "s": "strikethrough"}
_CODE = ("code", "pre")
_LANGUAGE_LIMIT = 30


class Entity(NamedTuple):
    """A stretch of the text with a style or a link."""

    type: str
    offset: int
    length: int
    url: str | None = None
    language: str | None = None

    @property
    def end(self) -> int:
        return self.offset + self.length

    def is_in(self, other: "Entity") -> bool:
        return other.offset <= self.offset and self.end <= other.end


class Formatted(NamedTuple):
    """A text and its entities, as Telegram gets them."""

    text: str
    entities: tuple[Entity, ...]


def utf16(text: str) -> int:
    """Return the length as Telegram counts it."""
    return len(text) + sum(char > "\uffff" for char in text)


def render(markdown: str) -> Formatted:
    """Render Markdown as a text with its entities, outer ones first."""
    page = _Page()
    page.blocks(SyntaxTreeNode(_parser().parse(without_surrogates(markdown))))
    text = "".join(page.parts).rstrip()
    cut = (_within(entity, utf16(text)) for entity in _untangled(page.entities))
    entities = [entity for entity in cut if entity.length > 0]
    return Formatted(text, tuple(sorted(entities, key=lambda e: (e.offset, -e.length))))


@cache
def _parser() -> MarkdownIt:
    return reader()


class _Page:
    """The text as it grows.

    Where nothing can be drawn, as in the cells of a table, it shows the addresses of links itself.
    """

    def __init__(self, *, shows_addresses: bool = False) -> None:
        self._shows_addresses = shows_addresses
        self.parts: list[str] = []
        self.entities: list[Entity] = []
        self._length = 0
        self._gap = 0
        self._indent = ""
        self._open: set[str] = set()

    def blocks(self, parent: SyntaxTreeNode) -> None:
        for node in parent.children:
            draw: dict[str, Callable[[SyntaxTreeNode], None]] = {
                "paragraph": self._paragraph,
                "heading": self._heading,
                "blockquote": self._quotation,
                "bullet_list": self._list,
                "ordered_list": self._list,
                "fence": self._code_block,
                "code_block": self._code_block,
                "table": self._table,
                "hr": self._rule,
            }
            draw.get(node.type, self._other)(node)

    def _paragraph(self, node: SyntaxTreeNode) -> None:
        self.inline(node)
        self._leave(1 if node.hidden else 2)

    def _heading(self, node: SyntaxTreeNode) -> None:
        with self._styled("bold"):
            self.inline(node)
        self._leave(2)

    def _quotation(self, node: SyntaxTreeNode) -> None:
        with self._styled("blockquote"):
            self.blocks(node)
        self._leave(2)

    def _list(self, node: SyntaxTreeNode) -> None:
        first = int(node.attrs.get("start", 1))
        for number, item in enumerate(node.children, first):
            marker = "• " if node.type == "bullet_list" else f"{number}. "
            self._write(marker)
            outer, self._indent = self._indent, self._indent + " " * len(marker)
            self.blocks(item)
            self._indent = outer
            self._leave(1)
        self._leave(1 if self._indent else 2)

    def _code_block(self, node: SyntaxTreeNode) -> None:
        language = node.info.split()[0] if node.info.split() else ""
        self._block_of_code(node.content.rstrip("\n"), language[:_LANGUAGE_LIMIT])

    def _table(self, node: SyntaxTreeNode) -> None:
        rows = [
            [_plain(cell, shows_addresses=True) for cell in row.children]
            for part in node.children
            for row in part.children
        ]
        widths = [max(width(cell) for cell in column) for column in zip(*rows, strict=True)]
        lines = [
            " │ ".join(
                cell + " " * (size - width(cell)) for cell, size in zip(row, widths, strict=True)
            )
            for row in rows
        ]
        lines.insert(1, "─┼─".join("─" * size for size in widths))
        self._block_of_code("\n".join(line.rstrip() for line in lines), "")

    def _rule(self, _node: SyntaxTreeNode) -> None:
        self._write(_RULE)
        self._leave(2)

    def _other(self, node: SyntaxTreeNode) -> None:
        self._write(node.content.rstrip("\n"))
        self._leave(2)

    def _block_of_code(self, code: str, language: str) -> None:
        self._leave(1)
        indent, self._indent = self._indent, ""
        with self._styled("pre", language=language or None):
            self._write(code)
        self._indent = indent
        self._leave(2)

    def inline(self, node: SyntaxTreeNode) -> None:
        for child in node.children:
            if child.type in _STYLES:
                with self._styled(_STYLES[child.type]):
                    self.inline(child)
            elif child.type == "link":
                self._link(child, str(child.attrs.get("href", "")))
            elif child.type == "image":
                self._link(child, str(child.attrs.get("src", "")))
            elif child.type == "code_inline":
                with self._styled("code"):
                    self._write(child.content)
            elif child.type in ("softbreak", "hardbreak"):
                self._write("\n")
            elif child.type == "inline":
                self.inline(child)
            else:
                self._write(child.content)

    def _link(self, node: SyntaxTreeNode, url: str) -> None:
        """Write a link; when Telegram cannot follow it, the address stands beside its label."""
        if _can_follow(url) and not self._shows_addresses:
            with self._styled("text_link", url=url):
                self._label(node, url)
            return
        start = len(self.parts)
        self._label(node, url)
        if url and url not in ("".join(self.parts[start:]), _plain(node)):
            self._write(f" ({url})")

    def _label(self, node: SyntaxTreeNode, url: str) -> None:
        if node.type == "image" or not _plain(node).strip():
            self._write(node.content if node.type == "image" and node.content else url)
        else:
            self.inline(node)

    @contextmanager
    def _styled(
        self, kind: str, url: str | None = None, language: str | None = None
    ) -> Generator[None]:
        """Make an entity of the text written meanwhile, unless it is in one of the same kind."""
        if kind in self._open:
            yield
            return
        self._flush()
        start = self._length
        self._open.add(kind)
        yield
        self._open.discard(kind)
        if self._length > start:
            self.entities.append(Entity(kind, start, self._length - start, url, language))

    def _leave(self, lines: int) -> None:
        """Begin what follows after so many line breaks."""
        self._gap = max(self._gap, lines)

    def _write(self, text: str) -> None:
        self._flush()
        self._add(text.replace("\n", "\n" + self._indent))

    def _flush(self) -> None:
        gap, self._gap = self._gap, 0
        if gap and self._length:
            self._add("\n" * gap + self._indent)

    def _add(self, text: str) -> None:
        self.parts.append(text)
        self._length += utf16(text)


def _untangled(entities: list[Entity]) -> Iterator[Entity]:
    """Yield the entities with nothing but quotations around code; code in a link is a link."""
    links = [entity for entity in entities if entity.type == "text_link"]
    codes = [code for code in entities if code.type in _CODE and not any(map(code.is_in, links))]
    for entity in entities:
        if entity.type in ("blockquote", "text_link"):
            yield entity
        elif entity.type not in _CODE:
            yield from _around(entity, [code for code in codes if code.is_in(entity)])
    yield from codes


def _around(entity: Entity, codes: list[Entity]) -> Iterator[Entity]:
    start = entity.offset
    for code in codes:
        yield entity._replace(offset=start, length=code.offset - start)
        start = code.end
    yield entity._replace(offset=start, length=entity.end - start)


def _within(entity: Entity, length: int) -> Entity:
    return entity._replace(length=min(entity.end, length) - entity.offset)


def _plain(node: SyntaxTreeNode, *, shows_addresses: bool = False) -> str:
    page = _Page(shows_addresses=shows_addresses)
    page.inline(node)
    return " ".join("".join(page.parts).split())


def _can_follow(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https", "tg") and bool(parts.netloc)
