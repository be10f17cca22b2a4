"""Read text that is not valid UTF-8, as a flipped bit leaves it: the bad bytes become U+FFFD.

SQLite stores whatever bytes it is given as text; apsw refuses to decode them, and with one row the whole
query fails. `Cursor` asks for the bytes of every text instead and decodes them itself. That costs more,
so readers and the writer use it only to repeat a function that has failed for this reason.

It relies on the schema: no column of ours holds bytes.
"""

from contextlib import suppress
from typing import Any

import apsw

_RETURNING = " RETURNING "


class Cursor(apsw.Cursor):
    """A cursor whose rows have no invalid text; statements that return no rows run unchanged."""

    def execute(
        self, statements: str, bindings: "apsw.Bindings" = None, *, can_cache: bool = True
    ) -> apsw.Cursor:
        """Run a statement, with every text of its rows fetched as bytes."""
        wrapped = _wrapped(self.connection, statements, bindings)
        self.row_trace = None if wrapped is None else _decoded
        return super().execute(wrapped or statements, bindings, can_cache=can_cache)

    @property
    def get(self) -> Any:  # noqa: ANN401 -- as in apsw, which does not trace the rows of it
        """Return the remaining rows: a value, a row, or a list of them."""
        found = [row[0] if len(row) == 1 else row for row in self.fetchall()]
        return found[0] if len(found) == 1 else found or None


def _decoded(_cursor: apsw.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        value.decode(errors="replace") if isinstance(value, bytes) else value for value in row
    )


def _wrapped(conn: apsw.Connection, statement: str, bindings: "apsw.Bindings") -> str | None:
    """Return the statement with texts fetched as bytes, or None when it returns no stored rows."""
    head = statement.lstrip().upper()
    if _RETURNING in statement:
        changed, _, names = statement.rpartition(_RETURNING)
        return changed + _RETURNING + ", ".join(map(_bytes_of, names.split(", ")))
    if not head.startswith(("SELECT", "WITH")):
        return None
    names = _names(conn, statement, bindings)
    columns = [f"c{number}" for number in range(len(names))]
    selected = (f"{_bytes_of(c, name)}" for c, name in zip(columns, names, strict=True))
    # The order of a single sub-query is the order of the result.
    return f"WITH q ({', '.join(columns)}) AS ({statement}) SELECT {', '.join(selected)} FROM q"


def _bytes_of(column: str, name: str = "") -> str:
    label = '"' + (name or column).replace('"', '""') + '"'
    return f"CASE typeof({column}) WHEN 'text' THEN CAST({column} AS BLOB) ELSE {column} END AS {label}"


def _names(conn: apsw.Connection, statement: str, bindings: "apsw.Bindings") -> list[str]:
    """Return the column names of a statement without running it."""
    found: list[str] = []

    def look(cursor: apsw.Cursor, _statement: str, _bindings: object) -> bool:
        found.extend(column[0] for column in cursor.get_description())
        return False

    probe = apsw.Cursor(conn)
    probe.exec_trace = look
    with suppress(apsw.ExecTraceAbort):
        probe.execute(statement, bindings)
    return found
