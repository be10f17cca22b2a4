"""Text tables that fit the terminal."""

import os
import sys
from collections.abc import Iterable, Sequence

from hermes_core import text

_GAP = "  "
_MIN_WIDTH = 8
"""Minimum width of the last column."""


def render(
    headers: Sequence[str], rows: Iterable[Sequence[object]], *, width: int | None = None
) -> str:
    """Format rows under their headers; the last column is truncated to fit into `width`.

    The default width is that of the terminal, or unlimited elsewhere. None becomes an empty cell, and
    numbers are aligned right.
    """
    values = [list(row) for row in rows]
    cells = [list(headers), *([_cell(value) for value in row] for row in values)]
    sizes = [max(map(text.width, column)) for column in zip(*cells, strict=True)]
    limit = _terminal_width() if width is None else width
    if limit is not None:
        room = limit - sum(size + len(_GAP) for size in sizes[:-1])
        sizes[-1] = min(sizes[-1], max(room, _MIN_WIDTH))
    right = [
        bool(column) and all(_is_number(value) for value in column)
        for column in (list(zip(*values, strict=True)) or [()] * len(headers))
    ]
    return "\n".join(_line(line, sizes, right) for line in cells)


def _line(cells: Sequence[str], sizes: Sequence[int], right: Sequence[bool]) -> str:
    placed = (
        " " * max(size - text.width(cell), 0) + cell if to_the_right else text.fit(cell, size)
        for cell, size, to_the_right in zip(cells, sizes, right, strict=True)
    )
    return _GAP.join(placed).rstrip()


def _cell(value: object) -> str:
    return "" if value is None else text.visible(text.one_line(str(value)))


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _terminal_width() -> int | None:
    return os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else None
