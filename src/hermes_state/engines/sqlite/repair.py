"""Repair a damaged store: copy every readable row to a new store and report the lost ones.

The damaged file is read page by page (see `pages`). Its rows are inserted into an empty store of the
same schema version, which is then migrated and made consistent (see `row_repair`). Only when all of that
is on disk does it replace the damaged file, which is kept under another name; a crash before that
changes nothing.
"""

import errno
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import apsw

from hermes_core.errors import StoreFullError, StoreIOError, StoreVersionError
from hermes_state.engines.sqlite import connection, presence, row_repair, schema
from hermes_state.engines.sqlite.index import index_path
from hermes_state.engines.sqlite.pages import Pages, Record, Walk

_SCHEMA_ROOT = 1
_SEQUENCE = "sqlite_sequence"
_COMPANIONS = ("-wal", "-shm", "-journal")
_MAX_RANGES = 8


class Repair(NamedTuple):
    """The result of a repair."""

    damaged_file: Path
    """The damaged file, as it was."""
    recovered: dict[str, int]
    """Rows saved, by table."""
    lost: list[str]
    """Descriptions of the rows that could not be read."""


def repair(path: Path) -> Repair:
    """Replace a damaged store by one with every readable row, and keep the damaged file.

    Raises StoreBusyError, without changes, while another process has the store open.
    """
    path = path.resolve()  # keep a symbolic link
    with _errors_of(path), presence.alone_with(path), _locked(path) as file:
        stamp = f"{time.strftime('%Y%m%d_%H%M%S')}-{os.urandom(2).hex()}"
        damaged_file = path.with_name(f"{path.name}.damaged-{stamp}")
        fresh = path.with_name(f"{path.name}.repaired-{stamp}")
        _remove_unfinished(path)
        log = path.with_name(path.name + "-wal")
        pages = Pages(file.xRead, file.xFileSize(), log.read_bytes() if log.exists() else b"")
        try:
            connection.create_file(fresh)
            recovered, lost = _fill(fresh, pages, path)
            _apply_log(file, pages)
            _swap(path, damaged_file, fresh)
        finally:
            for suffix in ("", *_COMPANIONS):
                fresh.with_name(fresh.name + suffix).unlink(missing_ok=True)
    return Repair(damaged_file, recovered, lost)


def _remove_unfinished(path: Path) -> None:
    """Remove the unfinished stores of killed repairs; each is as large as a store."""
    for other in path.parent.iterdir():
        if other.name.startswith(f"{path.name}.repaired-"):
            other.unlink(missing_ok=True)


@contextmanager
def _errors_of(path: Path) -> Generator[None]:
    try:
        with connection.translated(path):
            yield
    except OSError as error:
        fix = "Nothing was changed; the damaged file is as it was."
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFullError(f"There is no space left to repair {path}.", fix=fix) from error
        raise StoreIOError(f"{path} cannot be repaired ({error}).", fix=fix) from error


@contextmanager
def _locked(path: Path) -> Generator[apsw.VFSFile]:
    """Open the damaged file with the exclusive lock of SQLite, which other programs respect too."""
    file = connection.open_file(path, apsw.SQLITE_OPEN_READWRITE)
    try:
        try:
            file.xLock(apsw.SQLITE_LOCK_SHARED)
            file.xLock(apsw.SQLITE_LOCK_EXCLUSIVE)
        except apsw.BusyError as error:
            raise presence.in_use(path) from error
        yield file
    finally:
        file.xUnlock(apsw.SQLITE_LOCK_NONE)
        file.xClose()


def _apply_log(file: apsw.VFSFile, pages: Pages) -> None:
    """Write the pages of the log into the old file, since the log must not stay beside the new one."""
    for number in pages.in_log:
        file.xWrite(pages.page(number) or b"", (number - 1) * pages.page_bytes)
    if pages.in_log:
        file.xSync(apsw.SQLITE_SYNC_FULL)


def _swap(path: Path, damaged_file: Path, fresh: Path) -> None:
    index = index_path(path)  # it may contain lost messages, and is rebuilt
    for suffix in ("", *_COMPANIONS):
        index.with_name(index.name + suffix).unlink(missing_ok=True)
    for suffix in ("-wal", "-journal"):
        if (log := path.with_name(path.name + suffix)).exists():
            log.rename(damaged_file.with_name(damaged_file.name + suffix))
    path.with_name(path.name + "-shm").unlink(missing_ok=True)
    _link_or_copy(path, damaged_file)
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _link_or_copy(path: Path, damaged_file: Path) -> None:
    try:
        damaged_file.hardlink_to(path)
    except OSError:  # a file system without links
        import shutil  # noqa: PLC0415 -- slow to load, and few need it

        shutil.copy2(path, damaged_file)


def _fill(fresh: Path, pages: Pages, path: Path) -> tuple[dict[str, int], list[str]]:
    version = _version(pages, path)
    conn = connection.connect(fresh)
    try:
        conn.pragma("journal_mode", "memory")  # a crash loses only the unfinished store
        conn.pragma("synchronous", "full")
        schema.migrate(conn, version)
        with _without_triggers(conn):
            salvage = _Salvage(conn, pages)
            salvage.run()
        schema.migrate(conn)
        with _without_triggers(conn):
            lost = salvage.lost + row_repair.restore_consistency(conn)
        return salvage.saved_by_table(), lost
    finally:
        conn.close()


def _version(pages: Pages, path: Path) -> int:
    if pages.version > schema.SCHEMA_VERSION:
        raise StoreVersionError(
            f"{path} was written by a newer Hermes (schema {pages.version}).",
            fix="Nothing was changed. Repair it with the newer Hermes.",
        )
    return pages.version or schema.SCHEMA_VERSION


@contextmanager
def _without_triggers(conn: apsw.Connection) -> Generator[None]:
    """Run a transaction without triggers, as rows are restored in their final state."""
    conn.execute("BEGIN IMMEDIATE")
    triggers = conn.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        conn.execute(f"DROP TRIGGER {name}")
    yield
    for _, sql in triggers:
        conn.execute(sql)
    conn.execute("COMMIT")


class _Column(NamedTuple):
    name: str
    type: str
    is_needed: bool
    may_be_missing: bool
    """Whether older rows may lack the column, as it was added later."""
    is_number: bool
    """Whether the column is an alias of the row id and stored as NULL."""


class _Table:
    """Recognizes the rows of a table and inserts them into the new store."""

    def __init__(self, conn: apsw.Connection, name: str) -> None:
        self.name = name
        sql = conn.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (name,)).get
        self.is_index = "WITHOUT ROWID" in sql
        info = conn.execute(f"PRAGMA table_info({name})").fetchall()
        if self.is_index:  # the key comes first
            info = sorted(info, key=lambda row: row[5] or len(info) + 1)
        self.columns = [
            _Column(
                column,
                type_,
                is_needed=bool(needed or (key and self.is_index)),
                may_be_missing=not needed or default is not None,
                is_number=bool(key and type_ == "INTEGER" and not self.is_index),
            )
            for _, column, type_, needed, default, key in info
        ]
        self._has_hidden_number = not self.is_index and not any(c.is_number for c in self.columns)
        self.saved: set[int] = set()
        self.count = 0
        self.rejected: list[tuple[int | None, str]] = []
        self.walk = Walk()
        self.root: int | None = None

    @property
    def is_broken(self) -> bool:
        return self.root is None or not self.walk.is_whole

    def fits(self, record: Record) -> bool:
        """Return whether these values can be a row of this table."""
        values = record.values
        return (
            (record.number is None) == self.is_index
            and 0 < len(values) <= len(self.columns)
            and all(c.may_be_missing for c in self.columns[len(values) :])
            and all(
                _can_hold(column, value)
                for column, value in zip(self.columns, values, strict=False)
            )
        )

    def insert(self, conn: apsw.Connection, record: Record) -> None:
        """Insert a row into the new store; raise ConstraintError if it violates the schema."""
        columns = self.columns[: len(record.values)]
        names = [column.name for column in columns]
        values = [
            record.number if column.is_number else value
            for column, value in zip(columns, record.values, strict=True)
        ]
        if self._has_hidden_number:
            names.append("rowid")
            values.append(record.number)
        verb = "REPLACE" if self.name == "meta" else "INSERT"
        conn.execute(
            f"{verb} INTO {self.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",
            values,
        )
        self.count += 1
        if record.number is not None:
            self.saved.add(record.number)


def _can_hold(column: _Column, value: object) -> bool:
    if value is None:
        return column.is_number or not column.is_needed
    match column.type:
        case "INTEGER":
            return isinstance(value, int) and not column.is_number
        case "REAL":
            return isinstance(value, int | float)
        case "TEXT":
            return isinstance(value, str)
        case _:
            return True


class _Salvage:
    """Moves the rows of a damaged file into a new store."""

    def __init__(self, conn: apsw.Connection, pages: Pages) -> None:
        self._conn = conn
        self._pages = pages
        self.lost: list[str] = []
        self.tables = [_Table(conn, name) for name in tables_of(conn)]
        self._indexed_ids: dict[str, set[int]] = {}
        """The row ids found in indexes, by table."""
        self._indexed: set[str] = set()
        """Tables with a readable index of every row."""
        self._undecided = 0

    def saved_by_table(self) -> dict[str, int]:
        return {table.name: table.count for table in self.tables}

    def run(self) -> None:
        roots = self._roots()
        for table in self.tables:
            table.root = roots.get(table.name)
            if table.root is not None:
                found = self._pages.walk(
                    table.root, table.walk, table.fits, of_index=table.is_index
                )
                self._insert_all(table, found)
        highest = _highest_numbers(self._pages, roots.get(_SEQUENCE))
        for table in self.tables:
            if not table.is_index:
                self._read_indexes(table, roots)
        self._pages.leave_out_free_pages()
        self._recover_strays()
        for name, number in highest.items():
            _raise_sequence(self._conn, name, number)
        self.lost = [text for table in self.tables for text in self._missing(table)]
        if self._undecided:
            self.lost.append(f"{_rows(self._undecided)} that could belong to more than one table")

    def _roots(self) -> dict[str, int]:
        """Return the root page of each table and index, as far as the schema can be read."""
        walk = Walk()
        found = list(self._pages.walk(_SCHEMA_ROOT, walk, _is_schema, of_index=False))
        if not walk.is_whole:  # rows in the tree are newer than those on other pages
            strays = (r for rs, _ in self._pages.strays(of_index=False) for r in rs)
            found = [*filter(_is_schema, strays), *found]
        return {
            str(record.values[1]): root
            for record in filter(_is_schema, found)
            if isinstance(root := record.values[3], int) and root > 1
        }

    def _insert_all(self, table: _Table, records: Iterable[Record]) -> None:
        for record in records:
            if not table.fits(record):
                table.walk.lost_cells += 1
            elif not _is_other_step(table, record, self._conn):
                try:
                    table.insert(self._conn, record)
                except apsw.ConstraintError as error:
                    table.rejected.append((record.number, str(error)))

    def _read_indexes(self, table: _Table, roots: dict[str, int]) -> None:
        """Collect the row ids in the indexes of a table, to name missing rows."""
        row_ids = self._indexed_ids.setdefault(table.name, set())
        for _, name, _, _, is_partial in self._conn.execute(f"PRAGMA index_list({table.name})"):
            if name not in roots:
                continue
            walk = Walk()
            for record in self._pages.walk(roots[name], walk, _is_entry, of_index=True):
                if isinstance(number := record.values[-1], int) and number > 0:
                    row_ids.add(number)
            if walk.is_whole and not is_partial:
                self._indexed.add(table.name)

    def _recover_strays(self) -> None:
        """Recover rows on unreachable pages if their table is unambiguous."""
        for of_index in (False, True):
            broken = [t for t in self.tables if t.is_broken and t.is_index == of_index]
            shapes = self._index_shapes() if of_index else []
            for records, walk in self._pages.strays(of_index=of_index) if broken else ():
                fitting = {t.name: sum(map(t.fits, records)) for t in broken}
                most = max(fitting.values())
                owners = [t for t in broken if fitting[t.name] == most > 0]
                if len(owners) == 1 and all(sum(map(fits, records)) < most for fits in shapes):
                    owners[0].walk.add(walk)
                    self._insert_all(
                        owners[0], (r for r in records if r.number not in owners[0].saved)
                    )
                elif owners:
                    self._undecided += len(records)

    def _index_shapes(self) -> list[Callable[[Record], bool]]:
        """Return tests for index entries, which share a page type with some tables."""
        shapes: list[Callable[[Record], bool]] = []
        for table in self.tables:
            types = {column.name: column.type for column in table.columns}
            for _, name, *_ in self._conn.execute(f"PRAGMA index_list({table.name})").fetchall():
                info = self._conn.execute(f"PRAGMA index_xinfo({name})").fetchall()
                if not (table.is_index and name.startswith("sqlite_autoindex")):
                    shapes.append(_shape([types.get(row[2] or "", "INTEGER") for row in info]))
        return shapes

    def _missing(self, table: _Table) -> Iterator[str]:
        """Describe the rows of a table that were lost."""
        missing = self._indexed_ids.get(table.name, set()) - table.saved
        missing -= {number for number, _ in table.rejected if number is not None}
        if missing:
            yield f"{_rows(len(missing))} of {table.name} ({_ranges(missing)})"
        if table.name not in self._indexed:
            if (more := table.walk.lost_cells - len(missing)) > 0:
                yield f"{_rows(more)}{' more' * bool(missing)} of {table.name}"
            if table.root is None:
                yield f"an unknown number of rows of {table.name}, as its root page is lost"
            elif table.walk.lost_pages:
                yield f"an unknown number of rows of {table.name}, on {table.walk.lost_pages} pages"
        for number, reason in table.rejected:
            which = "a row" if number is None else f"row {number}"
            yield f"{which} of {table.name}, which violates a constraint ({reason})"
        if table.walk.garbled:
            yield f"some characters in {_rows(table.walk.garbled)} of {table.name}"


def tables_of(conn: apsw.Connection) -> list[str]:
    """Return the tables of a store in the order of their creation."""
    found = conn.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        " ORDER BY rowid"
    )
    return [name for (name,) in found]


def _is_schema(record: Record) -> bool:
    return len(record.values) == 5 and record.values[0] in ("table", "index", "trigger", "view")


def _is_entry(record: Record) -> bool:
    return len(record.values) > 1


def _is_other_step(table: _Table, record: Record, conn: apsw.Connection) -> bool:
    """Return whether a row records a migration that the new store records itself."""
    key = record.values[0]
    if table.name != "meta" or not str(key).startswith("migration."):
        return False
    return not conn.execute("SELECT EXISTS (SELECT 1 FROM meta WHERE key = ?)", (str(key),)).get


def _shape(types: list[str]) -> Callable[[Record], bool]:
    columns = [
        _Column("", t, is_needed=False, may_be_missing=False, is_number=False) for t in types
    ]
    return lambda record: (
        len(record.values) == len(columns) and all(map(_can_hold, columns, record.values))
    )


def _highest_numbers(pages: Pages, root: int | None) -> dict[str, int]:
    """Return the highest row id ever used, by table, so that none is used twice."""
    found: dict[str, int] = {}
    if root is not None:
        for record in pages.walk(root, Walk(), lambda r: len(r.values) == 2, of_index=False):
            match record.values:
                case (str() as name, int() as number):
                    found[name] = number
                case _:
                    pass
    return found


def _raise_sequence(conn: apsw.Connection, table: str, number: int) -> None:
    conn.execute("UPDATE sqlite_sequence SET seq = max(seq, ?2) WHERE name = ?1", (table, number))
    if not conn.changes():
        conn.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, number))


def _rows(count: int) -> str:
    return f"{count} row{'s' * (count != 1)}"


def _ranges(numbers: set[int]) -> str:
    """Format numbers as ranges: 3-7, 12."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = [f"{a}-{b}" if a != b else str(a) for a, b in ranges[:_MAX_RANGES]]
    return ", ".join(texts) + (" and more" if len(ranges) > _MAX_RANGES else "")
