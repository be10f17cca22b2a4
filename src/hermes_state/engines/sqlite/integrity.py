"""Check a store, and fix problems in place while others use it.

Damaged pages and missing rows need `repair`, which requires exclusive access.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import apsw

from hermes_state.engines.sqlite import schema, triggers
from hermes_state.engines.sqlite.database import Database

_MAX_SHOWN = 20


def check(database: Database) -> list[str]:
    """Describe the problems of the file and of its rows; an empty list means none."""

    def look(conn: apsw.Connection) -> list[str]:
        found = [text for (text,) in conn.execute("PRAGMA integrity_check(20)") if text != "ok"]
        found += [
            f"row {rowid} of {table} refers to a missing row of {parent}"
            for table, rowid, parent, _ in conn.execute("PRAGMA foreign_key_check")
        ]
        found += [difference.text for difference in _differences(conn)]
        found += [bad.text for bad in _invalid_texts(conn, _MAX_SHOWN)]
        return found + [text for text, sql in _INVARIANTS for _ in conn.execute(sql)]

    return database.run_on_snapshot(look)


def fix(database: Database) -> list[str]:
    """Complete the schema and replace invalid bytes in texts; describe what was fixed."""
    return database.run_on_writer(lambda c: _fix_schema(c) + _fix_texts(c))


_INVARIANTS = (
    (
        "a conversation has no tip",
        "SELECT conversation_id FROM sessions GROUP BY conversation_id HAVING sum(is_tip) <> 1",
    ),
    (
        "a session counts its messages wrongly",
        "SELECT sessions.id FROM sessions LEFT JOIN messages ON messages.session_id = sessions.id"
        " AND messages.active = 1 GROUP BY sessions.id"
        " HAVING count(messages.id) <> sessions.message_count",
    ),
    (
        "a conversation was compacted, but its continuation is missing",
        "SELECT id FROM sessions WHERE is_tip = 0 AND relation IS NOT 'undone' AND NOT EXISTS"
        " (SELECT 1 FROM sessions AS child WHERE child.parent_session_id = sessions.id"
        "  AND child.relation = 'continuation')",
    ),
    (
        "a turn has ended without its last message",
        "SELECT id FROM turns WHERE final_message_id IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM messages WHERE messages.id = final_message_id)",
    ),
)
"""Invariants between rows that cannot be constraints of a table."""


# -- the schema --------------------------------------------------------------------------------


class _Object(NamedTuple):
    """A table, an index or a trigger."""

    kind: str
    name: str
    table: str
    sql: str


class _Column(NamedTuple):
    name: str
    type: str
    is_needed: int
    default: str | None
    key_position: int


class _Difference(NamedTuple):
    """A difference from the expected schema, with the statements that fix it."""

    text: str
    statements: tuple[str, ...]


class _Schema(NamedTuple):
    objects: dict[str, _Object]
    columns: dict[str, dict[str, _Column]]
    """By table and name."""


@cache
def _expected() -> _Schema:
    conn = apsw.Connection(":memory:")
    schema.migrate(conn)
    return _schema(conn)


def _schema(conn: apsw.Connection) -> _Schema:
    objects = {
        row[1]: _Object(*row)
        for row in conn.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_schema"
            " WHERE name NOT LIKE 'sqlite_%' ORDER BY rowid"
        )
    }
    columns = {
        expected_object.name: {
            row[1]: _Column(*row[1:])
            for row in conn.execute(f"PRAGMA table_info({expected_object.name})")
        }
        for expected_object in objects.values()
        if expected_object.kind == "table" and expected_object.name.isidentifier()
    }
    return _Schema(objects, columns)


def _differences(conn: apsw.Connection) -> Iterator[_Difference]:
    """Compare tables, columns, indexes and triggers with what the migrations make of an empty file."""
    found, expected = _schema(conn), _expected()
    for expected_object in expected.objects.values():
        present = found.objects.get(expected_object.name)
        if present is None:
            yield _Difference(
                f"the {expected_object.kind} {expected_object.name} is missing",
                (expected_object.sql,),
            )
        elif expected_object.kind == "table":
            yield from _column_differences(expected_object.name, found, expected)
        elif triggers.normalized(present.sql) != triggers.normalized(expected_object.sql):
            drop = f"DROP {present.kind} {expected_object.name}"
            text = f"the {expected_object.kind} {expected_object.name} is not as it should be"
            yield _Difference(text, (drop, expected_object.sql))


def _column_differences(table: str, found: _Schema, expected: _Schema) -> Iterator[_Difference]:
    for column in expected.columns[table].values():
        present = found.columns[table].get(column.name)
        if present is None:
            add = f"ALTER TABLE {table} ADD COLUMN {column.name} {column.type}"
            add += " NOT NULL" * column.is_needed
            add += "" if column.default is None else f" DEFAULT {column.default}"
            can_add = not column.key_position and (column.default or not column.is_needed)
            text = f"the column {column.name} of {table} is missing"
            yield _Difference(text, (add,) if can_add else ())
        elif present != column:
            yield _Difference(f"the column {column.name} of {table} is not as it should be", ())


def _fix_schema(conn: apsw.Connection) -> list[str]:
    fixed: list[str] = []
    for difference in list(_differences(conn)):
        try:
            with conn:
                for statement in difference.statements:
                    conn.execute(statement)
        except (apsw.ConstraintError, apsw.SQLError):
            continue  # the rows violate it; `repair` handles that
        if difference.statements:
            fixed.append(difference.text)
    return fixed


# -- texts -------------------------------------------------------------------------------------


class _InvalidText(NamedTuple):
    """A row with text that is not valid UTF-8."""

    table: str
    key: tuple[str, ...]
    """The columns that identify the row."""
    values: tuple[object, ...]
    columns: tuple[str, ...]

    @property
    def text(self) -> str:
        """Describe the row for a person."""
        selected = [
            value.decode(errors="replace") if isinstance(value, bytes) else value
            for value in self.values
        ]
        which = ", ".join(map(str, selected))
        columns = ", ".join(self.columns)
        return f"row {which} of {self.table} has text that is not valid UTF-8 ({columns})"


def _invalid_texts(conn: apsw.Connection, limit: int) -> Iterator[_InvalidText]:
    conn.create_scalar_function("is_utf8", _is_utf8, 1, deterministic=True)
    for table, columns in _schema(conn).columns.items():
        texts = [column.name for column in columns.values() if column.type == "TEXT"]
        if not texts:
            continue
        keys = [c.name for c in sorted(columns.values(), key=lambda c: c.key_position)]
        key = tuple(keys[len(keys) - sum(c.key_position > 0 for c in columns.values()) :])
        # Concatenation keeps invalid bytes invalid, so one check of all texts of a row is enough.
        all_texts = " || ' ' || ".join(f"coalesce({name}, '')" for name in texts)
        selected = ", ".join(map(_bytes_of, (*key, *texts)))
        for row in conn.execute(
            f"SELECT {selected} FROM {table} WHERE NOT is_utf8(CAST({all_texts} AS BLOB)) LIMIT {limit}"
        ).fetchall():
            values = row[len(key) :]
            bad = (n for n, value in zip(texts, values, strict=True) if not _is_utf8(value))
            yield _InvalidText(table, key, row[: len(key)], tuple(bad))


def _bytes_of(column: str) -> str:
    return f"CASE typeof({column}) WHEN 'text' THEN CAST({column} AS BLOB) ELSE {column} END"


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _fix_texts(conn: apsw.Connection) -> list[str]:
    """Replace the invalid bytes of every text, unless that would violate a constraint."""
    # A trigger makes messages immutable; this stores what every reader gets already.
    conn.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    try:
        return [bad.text for bad in list(_invalid_texts(conn, -1)) if _replace(conn, bad)]
    finally:
        conn.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 1)


def _replace(conn: apsw.Connection, bad: _InvalidText) -> bool:
    where = " AND ".join(f"{_bytes_of(name)} = ?" for name in bad.key)
    try:
        with conn:
            for column in bad.columns:
                sql = f"SELECT CAST({column} AS BLOB) FROM {bad.table} WHERE {where}"
                stored: bytes = conn.execute(sql, bad.values).get  # type: ignore[arg-type]
                conn.execute(
                    f"UPDATE {bad.table} SET {column} = ? WHERE {where}",
                    (stored.decode(errors="replace"), *bad.values),  # type: ignore[arg-type]
                )
    except apsw.ConstraintError:
        return False  # a key that others refer to; `repair` links them again
    return True
