"""Tables that fit the terminal: they wrap long cells, and leave out less important columns."""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import click

from hermes_cli.commands import style
from hermes_cli.commands.app import App
from hermes_core import text

_GAP = "  "
_MIN_WIDTH = 12
"""Width down to which a column is wrapped before another column is left out."""
_MAX_LINES = 3
"""Lines of a cell, unless the whole table is asked for."""

_COLORS = {
    "ok": "green", "on": "green", "connected": "green", "running": "green",
    "warning": "yellow", "missing": "yellow", "off": "",
    "problem": "red", "failed": "red", "shadowed": "yellow",
}  # fmt: skip
"""The color of a state, in columns named STATE."""


class Column(NamedTuple):
    """A column: its title and what happens to it on a narrow terminal."""

    title: str
    rank: int = 0
    """The column with the highest rank is left out first; 0 always stays."""
    right: bool = False
    """Whether to align it right, as a column of numbers is."""
    wraps: bool = False
    """Whether its cells may take several lines; the last column always may."""


class _Cell(NamedTuple):
    text: str
    matches: tuple[style.Span, ...] = ()


class _Layout(NamedTuple):
    """The columns that fit, with their widths."""

    places: list[int]
    widths: list[int]


def full_option(command: Any) -> Any:  # noqa: ANN401 -- a decorator of whatever click accepts
    """Add --full."""
    return click.option(
        "--full",
        is_flag=True,
        help="Show all columns and whole texts, however narrow the terminal is.",
    )(command)


def show(
    app: App,
    columns: Sequence[str | Column],
    rows: Iterable[Sequence[object]],
    *,
    full: bool = True,
    marked: bool = False,
) -> None:
    """Print a table in the style of the terminal; nothing with --json."""
    if not app.as_json:
        click.echo(render(columns, rows, full=full, marked=marked, styled=True))


def render(
    columns: Sequence[str | Column],
    rows: Iterable[Sequence[object]],
    *,
    width: int | None = None,
    indent: int = 0,
    full: bool = True,
    marked: bool = False,
    styled: bool = False,
) -> str:
    """Format rows under their headings.

    The default width is that of the terminal, or unlimited elsewhere. None becomes an empty cell, and
    numbers are aligned right. A table that is too wide wraps its cells; without `full`, cells end
    after some lines and less important columns are left out. If that is not enough, each row becomes
    a list of lines. `marked`: the marks of a search become a style; `styled`: with the styles of the
    terminal.
    """
    heads = [Column(column) if isinstance(column, str) else column for column in columns]
    heads = [head._replace(title=head.title.upper()) for head in heads]
    heads[-1] = heads[-1]._replace(wraps=True)
    values = [list(row) for row in rows]
    cells = [[_cell(value, marked) for value in row] for row in values]
    limit = _terminal_width() if width is None else width
    room = None if limit is None else limit - indent
    sizes = [
        max(map(text.width, (head.title, *(row[place].text for row in cells))))
        for place, head in enumerate(heads)
    ]
    painter = _Painter(heads, values, styled, None if full else _MAX_LINES)
    layout = _layout(heads, sizes, room, full)
    lines = painter.table(cells, layout) if layout else painter.records(cells, room or 0)
    return "\n".join(" " * indent + line if line else "" for line in lines)


def _cell(value: object, marked: bool) -> _Cell:
    plain = "" if value is None else text.visible(text.one_line(str(value)))
    return _with_matches(plain) if marked else _Cell(plain)


def _with_matches(marked: str) -> _Cell:
    plain, spans = "", list[style.Span]()
    for number, part in enumerate(text.split_matches(marked)):
        if number % 2:
            spans.append((len(plain), len(plain) + len(part)))
        plain += part
    return _Cell(plain, tuple(spans))


def _layout(heads: list[Column], sizes: list[int], room: int | None, full: bool) -> _Layout | None:
    """Choose columns and widths, or return None if they do not fit."""
    places = list(range(len(heads)))
    while room is not None:
        rest = room - len(_GAP) * (len(places) - 1)
        if (
            widths := _widths([heads[i] for i in places], [sizes[i] for i in places], rest)
        ) is not None:
            return _Layout(places, widths)
        least = max(places, key=lambda place: (heads[place].rank, place))
        if full or heads[least].rank == 0:
            return None
        places.remove(least)
    return _Layout(places, sizes)


def _widths(heads: list[Column], sizes: list[int], room: int) -> list[int] | None:
    """Share the room fairly among the columns that wrap; None if that is too little."""
    widths = list(sizes)
    room -= sum(size for head, size in zip(heads, sizes, strict=True) if not head.wraps)
    wrapping = sorted((size, place) for place, size in enumerate(sizes) if heads[place].wraps)
    for number, (size, place) in enumerate(wrapping):
        share = room // (len(wrapping) - number)
        if share < min(size, _MIN_WIDTH):
            return None
        widths[place] = min(size, share)
        room -= widths[place]
    return widths if room >= 0 else None


class _Painter:
    """Turns cells into lines."""

    def __init__(
        self, heads: list[Column], values: list[list[object]], styled: bool, most: int | None
    ) -> None:
        self._heads = heads
        self._is_right = [
            head.right or (bool(values) and all(_is_number(row[place]) for row in values))
            for place, head in enumerate(heads)
        ]
        self._styled = styled
        self._most = most

    def table(self, cells: list[list[_Cell]], layout: _Layout) -> list[str]:
        """Return a heading, the rows, and which columns are left out."""
        titles = (
            self._placed(self._heads[place].title, self._heads[place].title, width, place)
            for place, width in zip(layout.places, layout.widths, strict=True)
        )
        lines = [self._styling(style.heading)(_GAP.join(titles).rstrip())]
        for row in cells:
            lines += self._row([row[place] for place in layout.places], layout)
        hidden = [h.title for place, h in enumerate(self._heads) if place not in layout.places]
        if hidden:
            note = f"Not shown: {', '.join(hidden)}. See them with --full."
            width = sum(layout.widths) + len(_GAP) * (len(layout.widths) - 1)
            lines += ["", *map(self._styling(style.dim), text.wrap(note, width))]
        return lines

    def _row(self, row: list[_Cell], layout: _Layout) -> list[str]:
        columns = [self._wrapped(cell, w) for cell, w in zip(row, layout.widths, strict=True)]
        height = max(map(len, columns))
        lines: list[str] = []
        for number in range(height):
            parts = [
                self._painted(column[number], width, place) if number < len(column) else " " * width
                for column, width, place in zip(columns, layout.widths, layout.places, strict=True)
            ]
            lines.append(_GAP.join(parts).rstrip())
        return lines

    def records(self, cells: list[list[_Cell]], room: int) -> list[str]:
        """Return each row as lines of titles and values."""
        lines: list[str] = []
        for row in cells:
            for place, cell in enumerate(row):
                title = self._heads[place].title
                start = f"{title}: " if title else ""
                if not cell.text:
                    continue
                width = max(room - text.width(start), _MIN_WIDTH // 2)
                for number, part in enumerate(self._wrapped(cell, width)):
                    value = self._painted(part, 0, place)
                    lines.append(
                        self._styling(style.heading)(start) + value
                        if not number
                        else " " * text.width(start) + value
                    )
            lines.append("")
        return lines[:-1]

    def _wrapped(self, cell: _Cell, width: int) -> list[_Cell]:
        """Break a cell into lines, with the matches of each."""
        found = text.wrap(cell.text, max(width, 1))
        lines: list[_Cell] = []
        start = 0
        for line in found[: self._most]:
            start = cell.text.index(line, start)
            end = start + len(line)
            spans = ((max(a, start) - start, min(b, end) - start) for a, b in cell.matches)
            lines.append(_Cell(line, tuple((a, b) for a, b in spans if a < b)))
            start = end
        if self._most is not None and len(found) > self._most:
            last = text.fit(f"{lines[-1].text}…", width).rstrip()
            spans = tuple((a, min(b, len(last) - 1)) for a, b in lines[-1].matches)
            lines[-1] = _Cell(last, spans)
        return lines

    def _painted(self, cell: _Cell, width: int, place: int) -> str:
        painted = cell.text
        if self._styled and cell.matches:
            painted = style.highlighted(cell.text, cell.matches)
        elif self._styled and self._heads[place].title == "STATE":
            painted = style.colored(cell.text, _COLORS.get(cell.text, ""))
        return self._placed(painted, cell.text, width, place)

    def _placed(self, painted: str, plain: str, width: int, place: int) -> str:
        blanks = " " * (width - text.width(plain))
        return blanks + painted if self._is_right[place] else painted + blanks

    def _styling(self, paint: Callable[[str], str]) -> Callable[[str], str]:
        return paint if self._styled else str


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _terminal_width() -> int | None:
    return (
        os.get_terminal_size(sys.stdout.fileno()).columns or None if sys.stdout.isatty() else None
    )
