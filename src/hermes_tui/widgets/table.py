"""A table of a reply: aligned columns that fit the width, without a rule between every two rows."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, cast

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownBlock

from hermes_tui.widgets.fitted import Fitted

Align = Literal["left", "right", "center"]

_GAP = " │ "
_MIN_COLUMNS = 6
"""Of a column that is wrapped; with less the rows become lists."""


class Cells(NamedTuple):
    """The rows of a table, first the headers, and the alignment of each column."""

    rows: list[list[Content]]
    aligns: list[Align]


class TableView(Fitted):
    """The cells of a table."""

    DEFAULT_CSS = """
    TableView {
        height: auto;
    }
    """

    def __init__(self, cells: Cells) -> None:
        super().__init__()
        self._cells = cells

    def show(self, cells: Cells) -> None:
        """Show other cells."""
        self._cells = cells
        self.renew()

    async def action_link(self, href: str) -> None:
        """Tell the reply that a link in a cell was clicked."""
        self.post_message(Markdown.LinkClicked(self.query_ancestor(Markdown), href))

    def lay_out(self, columns: int) -> Content:
        headers, *rows = self._cells.rows
        widths = fitted_widths(self._cells.rows, columns - len(_GAP) * (len(headers) - 1))
        if widths is None:
            return Content("\n").join(self._as_lists(columns))
        lines = [[line.stylize("bold") for line in self._line_up(headers, widths)]]
        lines += [self._line_up(row, widths) for row in rows]
        is_wrapped = any(len(row) > 1 for row in lines[1:])
        rule = Content.styled("─┼─".join("─" * width for width in widths), "dim")
        text = [*lines[0], rule]
        for number, row in enumerate(lines[1:]):
            text += [rule] if number and is_wrapped else []
            text += row
        return Content("\n").join(text)

    def _line_up(self, row: Sequence[Content], widths: Sequence[int]) -> list[Content]:
        """Lay out a row: as many lines as its highest cell."""
        cells = [cell.wrap(width) for cell, width in zip(row, widths, strict=False)]
        height = max((len(cell) for cell in cells), default=1)
        lines: list[Content] = []
        for number in range(height):
            parts = (cell[number] if number < len(cell) else Content() for cell in cells)
            fitted = map(_aligned, parts, widths, self._cells.aligns)
            lines.append(Content.styled(_GAP, "dim").join(fitted))
        return lines

    def _as_lists(self, columns: int) -> Iterable[Content]:
        """Lay out each row below the other, for a screen that has no room for columns."""
        headers, *rows = self._cells.rows
        for row in rows:
            for header, cell in zip(headers, row, strict=False):
                line = Content.assemble(header.stylize("bold"), (": ", "dim"), cell)
                yield from line.wrap(columns)
            yield Content()


def fitted_widths(rows: Sequence[Sequence[Content]], room: int) -> list[int] | None:
    """Return the widths of columns that fit into the room; None when there are too many columns."""
    count = len(rows[0])
    natural = [
        max((row[place].cell_length for row in rows if place < len(row)), default=0)
        for place in range(count)
    ]
    open_places: list[int] = list(range(count))
    free, widths = room, list(natural)
    while open_places:
        share = free // len(open_places)
        small = [place for place in open_places if natural[place] <= share]
        if not small:
            if share < _MIN_COLUMNS:
                return None
            for place in open_places:
                widths[place] = share
            break
        free -= sum(natural[place] for place in small)
        open_places = [place for place in open_places if place not in small]
    return widths


def _aligned(cell: Content, width: int, align: Align) -> Content:
    room = max(0, width - cell.cell_length)
    before = {"left": 0, "right": room, "center": room // 2}[align]
    return cell.pad_left(before).pad_right(room - before)


class TableBlock(MarkdownBlock):
    """A table of a reply, which may still grow."""

    DEFAULT_CSS = """
    TableBlock {
        height: auto;
        margin: 0 0 1 0;
    }
    """

    def compose(self) -> ComposeResult:
        yield TableView(self._read())

    def _read(self) -> Cells:
        """Take the cells out of the rows that the parser made."""
        rows = [row._blocks for row in self._below() if row._token.type == "tr_open"]
        aligns: list[Align] = [
            _align_of(str(cell._token.attrs.get("style", ""))) for cell in rows[0]
        ]
        return Cells([[cell._content for cell in row] for row in rows], aligns)

    def _below(self) -> list[MarkdownBlock]:
        """List the blocks of the head and of the body."""
        return [row for part in self._blocks for row in part._blocks]

    async def _update_from_block(self, block: MarkdownBlock) -> None:
        if isinstance(block, TableBlock):
            for view in self.query(TableView):
                view.show(block._read())
        else:
            await super()._update_from_block(block)


def _align_of(style: str) -> Align:
    align = style.removeprefix("text-align:")
    return cast("Align", align) if align in ("right", "center") else "left"
