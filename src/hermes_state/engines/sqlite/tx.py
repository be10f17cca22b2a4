"""A transaction on a connection to SQLite."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import apsw

from hermes_core import clock
from hermes_state.ledger.records import encode
from hermes_state.values import Row


class SqliteTx:
    """Runs statements on the connection whose transaction is open; see `hermes_state.store.Tx`."""

    __slots__ = ("_conn", "_now")

    rejections: tuple[type[Exception], ...] = (
        apsw.ConstraintError,
        apsw.SQLError,
        UnicodeEncodeError,
        OverflowError,
    )

    def __init__(self, conn: apsw.Connection) -> None:
        self._conn = conn
        self._now: float | None = None

    @property
    def now(self) -> float:
        """The time at which the transaction first asked for it."""
        if self._now is None:
            self._now = clock.now()
        return self._now

    def value(self, sql: str, *values: Any) -> Any:  # noqa: ANN401 -- any column
        """The first column of the first row; None when there is no row."""
        found = self._conn.execute(sql, values).fetchall()
        return found[0][0] if found else None

    def row(self, sql: str, *values: Any) -> Row | None:  # noqa: ANN401 -- any column
        """The first row by the names of its columns; None when there is none."""
        found = self.rows(sql, *values)
        return found[0] if found else None

    def rows(self, sql: str, *values: Any) -> list[Row]:  # noqa: ANN401 -- any column
        """All rows by the names of their columns."""
        return rows_of(self._conn.execute(sql, values))

    def tuples(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401 -- any column
        """All rows as tuples."""
        return self._conn.execute(sql, values).fetchall()

    def run(self, sql: str, *values: Any) -> int:  # noqa: ANN401 -- any column
        """Run a statement and return how many rows it changed."""
        self._conn.execute(sql, values)
        return self._conn.changes()

    def among(self, column: str, mark: str = "?") -> str:
        """The condition that a column is one of the values that `many` gives for `mark`."""
        return f"{column} IN (SELECT value FROM json_each({mark}))"

    def many(self, values: Iterable[str | int]) -> str:
        """Several values as one parameter."""
        return encode(list(values))

    def lock(self, *_keys: str) -> None:
        """Nothing to do: there is one writer."""

    def savepoint(self) -> AbstractContextManager[object]:
        """A part of the transaction that is undone alone when it raises."""
        return self._conn


def rows_of(cursor: apsw.Cursor) -> list[Row]:
    """All rows of a query as dictionaries."""
    for row in cursor:
        names = [column[0] for column in cursor.get_description()]
        first = dict(zip(names, row, strict=True))
        return [first, *(dict(zip(names, other, strict=True)) for other in cursor)]
    return []
