"""Unified diffs: line numbers, colors of the language, and a background for what changes.

Every line of the text is shown: only the counts of a hunk's header tell its lines from headers.
"""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from textual.content import Content

from hermes_tui.widgets.fitted import Fitted
from hermes_tui.widgets.plain import TAB

Sign = Literal["+", "-", " ", ""]

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)")
_BACKGROUNDS: dict[Sign, str] = {"+": "on $success 14%", "-": "on $error 14%"}
_SIGNS: dict[Sign, str] = {"+": "bold $text-success", "-": "bold $text-error", " ": ""}
_PLAIN: dict[str, str] = {"+": "$text-success", "-": "$text-error", "@": "$text-accent"}
_MAX_HIGHLIGHTED = 40_000
"""Characters; the colors of a larger diff would be late."""


class Row(NamedTuple):
    """A line of a diff; a line without a sign is a header."""

    sign: Sign
    number: int | None
    """In the new file, or in the old one when it was removed."""
    text: Content
    hunk: int = 0
    language: str = ""


def is_diff(text: str) -> bool:
    """Return whether a text is a unified diff."""
    lines = text.split("\n", 2)
    return len(lines) > 2 and lines[0].startswith("--- ") and lines[1].startswith("+++ ")


class _Reader:
    """Reads a diff line by line."""

    def __init__(self, *, names_files: bool) -> None:
        self.rows: list[Row] = []
        self._names_files = names_files
        self._language = self._old_name = ""
        self._hunk = 0
        self._old = self._new = 0
        """The numbers of the next lines."""
        self._old_left = self._new_left = 0
        """How many lines the hunk still has."""

    def take(self, line: str) -> None:
        """Read the next line."""
        sign = line[:1] or " "
        is_old, is_new = sign in "- ", sign in "+ "
        if (is_old or is_new) and self._old_left >= is_old and self._new_left >= is_new:
            self._take_change(line, is_old=is_old, is_new=is_new)
        elif self._old_left or self._new_left:
            self._add_header(line, _PLAIN.get(line[:1], "dim"))
        elif found := _HUNK.match(line):
            self._begin(found)
        elif line.startswith("+++ "):
            self._begin_file(line[4:].strip())
        elif line.startswith("--- "):
            self._old_name = line[4:].strip()
        else:
            self._add_header(line, _PLAIN.get(line[:1], "dim"))

    def _take_change(self, line: str, *, is_old: bool, is_new: bool) -> None:
        sign: Sign = " " if is_old and is_new else "-" if is_old else "+"
        number = self._new if is_new else self._old
        text = Content(line[1:].expandtabs(TAB))
        self.rows.append(Row(sign, number, text, self._hunk, self._language))
        self._old, self._old_left = self._old + is_old, self._old_left - is_old
        self._new, self._new_left = self._new + is_new, self._new_left - is_new

    def _begin_file(self, name: str) -> None:
        self._language = _language_of(name)
        if self._names_files:
            before = {name: "", "/dev/null": " (new file)"}
            self._add_header(name + before.get(self._old_name, f" (was {self._old_name})"), "bold")

    def _begin(self, found: re.Match[str]) -> None:
        self._old, self._new = int(found[1]), int(found[3])
        self._old_left, self._new_left = int(found[2] or 1), int(found[4] or 1)
        self._hunk += 1
        if found[5] or (self.rows and self.rows[-1].sign):
            self._add_header(f"⋯ {found[5]}".rstrip())

    def _add_header(self, line: str, style: str = "dim") -> None:
        self.rows.append(Row("", None, Content.styled(line.expandtabs(TAB), style)))


def rows_of(text: str, *, names_file: bool = False) -> list[Row]:
    """Read the lines of a diff, without colors; `names_file` keeps the name of the only file."""
    lines = text.strip("\n").split("\n")
    reader = _Reader(names_files=names_file or sum(map(_names_a_file, lines)) > 1)
    for line in lines:
        reader.take(line)
    return reader.rows


def _names_a_file(line: str) -> bool:
    return line.startswith("+++ ")


def colored_rows(rows: list[Row]) -> list[Row]:
    """Color the lines of each hunk, its old and its new state each as a whole."""
    if sum(len(row.text) for row in rows) > _MAX_HIGHLIGHTED:
        return rows
    rows = list(rows)
    for hunk in {row.hunk for row in rows if row.sign and row.language}:
        for hidden in ("+", "-"):
            places = [
                place
                for place, row in enumerate(rows)
                if row.hunk == hunk and row.sign not in ("", hidden)
            ]
            code = [rows[place].text.plain for place in places]
            language = next((rows[place].language for place in places), "")
            for place, line in zip(places, _highlight(code, language), strict=True):
                rows[place] = rows[place]._replace(text=line)
    return rows


def _highlight(lines: Sequence[str], language: str) -> list[Content]:
    """Color the lines of a program; without colors where they would change them."""
    from textual.highlight import highlight  # noqa: PLC0415 -- with the first diff

    whole = highlight("\n".join(lines), language=language).split("\n", allow_blank=True)
    is_same = [line.plain for line in whole] == list(lines)
    return list(whole) if is_same else [Content(line) for line in lines]


def _language_of(path: str) -> str:
    from pygments.lexers import find_lexer_class_for_filename  # noqa: PLC0415 -- as above

    lexer = find_lexer_class_for_filename(path.rpartition("/")[2])
    return lexer.aliases[0] if lexer is not None and lexer.aliases else ""


def colored(text: str) -> Content:
    """Color a diff without numbers: what a model wrote, of which nothing is known to be whole."""
    lines = (Content.styled(line, _PLAIN.get(line[:1], "")) for line in text.split("\n"))
    return Content("\n").join(lines)


def counted(text: str) -> tuple[int, int]:
    """Count the lines that a diff adds and removes."""
    signs = [row.sign for row in rows_of(text)]
    return signs.count("+"), signs.count("-")


class DiffView(Fitted):
    """A diff, or so many lines of it."""

    def __init__(
        self, text: str = "", limit: int | None = None, *, names_file: bool = False
    ) -> None:
        super().__init__(classes="diff")
        self._limit, self._names_file = limit, names_file
        self._rows: list[Row] = []
        self._text = ""
        self.show(text)

    def show(self, text: str) -> None:
        """Show another diff."""
        if text != self._text:
            self._text = text
            self._rows = rows_of(text, names_file=self._names_file)
            self.renew()

    def lay_out(self, columns: int) -> Content:
        limit, rows = self._limit, self._rows
        visible = rows if limit is None or len(rows) <= limit + 1 else rows[:limit]
        digits = len(str(max((row.number or 0 for row in visible), default=0)))
        lines = [line for row in colored_rows(visible) for line in _lines_of(row, digits, columns)]
        if len(visible) < len(rows):
            lines.append(Content.styled(f"… {len(rows) - len(visible)} more lines", "dim italic"))
        return Content("\n").join(lines)


def _lines_of(row: Row, digits: int, columns: int) -> list[Content]:
    """Lay out one line of a diff: a long one continues below."""
    if not row.sign:
        return row.text.fold(columns)
    room = max(columns - digits - 3, 2)
    number, rest = f"{row.number:>{digits}} ", Content(" " * (digits + 3))
    first = Content.assemble((number, "dim"), (f"{row.sign} ", _SIGNS[row.sign]))
    lines: list[Content] = []
    for part in row.text.fold(room):
        line = ((rest if lines else first) + part).pad_right(max(0, room - part.cell_length))
        lines.append(line.stylize_before(_BACKGROUNDS[row.sign]) if row.sign != " " else line)
    return lines
