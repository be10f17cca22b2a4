"""Implement transactions on SQLite."""

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
        """Return the time of the transaction: the clock at its first use."""
        if self._now is None:
            self._now = clock.now()
        return self._now

    def value(self, sql: str, *values: Any) -> Any:  # noqa: ANN401 -- any column
        """Return the first column of the first row, or None."""
        found = self._conn.execute(sql, values).fetchall()
        return found[0][0] if found else None

    def row(self, sql: str, *values: Any) -> Row | None:  # noqa: ANN401 -- any column
        """Return the first row as a dictionary, or None."""
        found = self.rows(sql, *values)
        return found[0] if found else None

    def rows(self, sql: str, *values: Any) -> list[Row]:  # noqa: ANN401 -- any column
        """Return all rows as dictionaries."""
        return rows_of(self._conn.execute(sql, values))

    def tuples(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401 -- any column
        """Return all rows as tuples."""
        return self._conn.execute(sql, values).fetchall()

    def run(self, sql: str, *values: Any) -> int:  # noqa: ANN401 -- any column
        """Run a statement and return how many rows it changed."""
        self._conn.execute(sql, values)
        return self._conn.changes()

    def among(self, column: str, mark: str = "?") -> str:
        """Return the condition that a column is one of the values bound by `many`."""
        return f"{column} IN (SELECT value FROM json_each({mark}))"

    def many(self, values: Iterable[str | int]) -> str:
        """Return several values as one parameter."""
        return encode(list(values))

    def lock(self, *_keys: str) -> None:
        """Do nothing, as SQLite has one writer."""

    def savepoint(self) -> AbstractContextManager[object]:
        """Return a context manager that rolls back its block alone when it raises."""
        return self._conn


def rows_of(cursor: apsw.Cursor) -> list[Row]:
    """Return all rows of a query as dictionaries."""
    for row in cursor:
        names = [column[0] for column in cursor.get_description()]
        first = dict(zip(names, row, strict=True))
        return [first, *(dict(zip(names, other, strict=True)) for other in cursor)]
    return []
