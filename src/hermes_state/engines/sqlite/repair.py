"""Repair: every row that can still be read goes into a new store, and what cannot is told.

The damaged file is read page by page and never asked to make sense (see `pages`). Its rows are put into
an empty store of the same schema version, which is then brought up to date and made consistent (see
`mending`). Only when all of that is on disk does it take the place of the damaged file, which is kept; a
crash before that leaves everything as it was.
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
_MOST_RANGES = 8


class Repair(NamedTuple):
    """What a repair did."""

    kept: Path
    """The damaged file, as it was."""
    recovered: dict[str, int]
    """Rows saved, by table."""
    lost: list[str]
    """What could not be read, in words."""


def repair(path: Path) -> Repair:
    """Replace a damaged store by one that has every row that can be read, and keep the damaged file.

    Refused with StoreBusyError, and nothing is changed, while anybody else has the store open.
    """
    path = path.resolve()  # a link stays a link
    with _errors_of(path), presence.alone_with(path), _locked(path) as file:
        stamp = f"{time.strftime('%Y%m%d_%H%M%S')}-{os.urandom(2).hex()}"
        kept = path.with_name(f"{path.name}.damaged-{stamp}")
        fresh = path.with_name(f"{path.name}.repaired-{stamp}")
        _forget_drafts(path)
        log = path.with_name(path.name + "-wal")
        pages = Pages(file.xRead, file.xFileSize(), log.read_bytes() if log.exists() else b"")
        try:
            connection.create_file(fresh)
            recovered, lost = _fill(fresh, pages, path)
            _bring_in_log(file, pages)
            _swap(path, kept, fresh)
        finally:
            for suffix in ("", *_COMPANIONS):
                fresh.with_name(fresh.name + suffix).unlink(missing_ok=True)
    return Repair(kept, recovered, lost)


def _forget_drafts(path: Path) -> None:
    """Remove what repairs that were killed had begun: each is as large as a store."""
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
    """The damaged file with SQLite's own lock on it, which also programs that are not ours respect."""
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


def _bring_in_log(file: apsw.VFSFile, pages: Pages) -> None:
    """So that the old file is whole without its log, which may not lie beside the new one."""
    for number in pages.in_log:
        file.xWrite(pages.page(number) or b"", (number - 1) * pages.page_bytes)
    if pages.in_log:
        file.xSync(apsw.SQLITE_SYNC_FULL)


def _swap(path: Path, kept: Path, fresh: Path) -> None:
    index = index_path(path)  # it may know messages that are lost, and is built again
    for suffix in ("", *_COMPANIONS):
        index.with_name(index.name + suffix).unlink(missing_ok=True)
    for suffix in ("-wal", "-journal"):
        if (log := path.with_name(path.name + suffix)).exists():
            log.rename(kept.with_name(kept.name + suffix))
    path.with_name(path.name + "-shm").unlink(missing_ok=True)
    _keep(path, kept)
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _keep(path: Path, kept: Path) -> None:
    try:
        kept.hardlink_to(path)
    except OSError:  # a file system without links
        import shutil  # noqa: PLC0415 -- slow to load, and few need it

        shutil.copy2(path, kept)


def _fill(fresh: Path, pages: Pages, path: Path) -> tuple[dict[str, int], list[str]]:
    version = _version(pages, path)
    conn = connection.connect(fresh)
    try:
        conn.pragma("journal_mode", "memory")  # a crash costs a draft, nothing else
        conn.pragma("synchronous", "full")
        schema.migrate(conn, version)
        with _without_triggers(conn):
            salvage = _Salvage(conn, pages)
            salvage.run()
        schema.migrate(conn)
        with _without_triggers(conn):
            lost = salvage.lost + row_repair.mend(conn)
        return salvage.saved_by_table(), lost
    finally:
        conn.close()


def _version(pages: Pages, path: Path) -> int:
    if pages.version > schema.SCHEMA_VERSION:
        raise StoreVersionError(
            f"{path} was written by a newer Hermes (schema {pages.version}).",
            fix="Nothing was changed. Repair it with that one.",
        )
    return pages.version or schema.SCHEMA_VERSION


@contextmanager
def _without_triggers(conn: apsw.Connection) -> Generator[None]:
    """One transaction in which nothing judges changes: putting back is no change."""
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
    """Columns that were added later are missing in older rows."""
    is_number: bool
    """The column is another name of the row's number and empty in the row itself."""


class _Table:
    """What a row of a table looks like in the file, and how it is put into the new store."""

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
        """Whether these values can be a row of this table."""
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
        """Put a row into the new store; raises ConstraintError if it breaks a rule of the schema."""
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
    """The rows of one damaged file on their way into a new store."""

    def __init__(self, conn: apsw.Connection, pages: Pages) -> None:
        self._conn = conn
        self._pages = pages
        self.lost: list[str] = []
        self.tables = [_Table(conn, name) for name in tables_of(conn)]
        self._known: dict[str, set[int]] = {}
        """The numbers of rows that an index has, by table."""
        self._indexed: set[str] = set()
        """Tables of which some index has every row and could be read."""
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
                self._take(table, found)
        highest = _highest_numbers(self._pages, roots.get(_SEQUENCE))
        for table in self.tables:
            if not table.is_index:
                self._read_indexes(table, roots)
        self._pages.leave_out_free_pages()
        self._take_strays()
        for name, number in highest.items():
            _raise_sequence(self._conn, name, number)
        self.lost = [text for table in self.tables for text in self._missing(table)]
        if self._undecided:
            self.lost.append(f"{_rows(self._undecided)} that could be of more than one table")

    def _roots(self) -> dict[str, int]:
        """Where each tree begins, as far as the pages that say so can be read."""
        walk = Walk()
        found = list(self._pages.walk(_SCHEMA_ROOT, walk, _is_schema, of_index=False))
        if not walk.is_whole:  # what the tree still leads to is newer than what lies about
            strays = (r for rs, _ in self._pages.strays(of_index=False) for r in rs)
            found = [*filter(_is_schema, strays), *found]
        return {
            str(record.values[1]): root
            for record in filter(_is_schema, found)
            if isinstance(root := record.values[3], int) and root > 1
        }

    def _take(self, table: _Table, records: Iterable[Record]) -> None:
        for record in records:
            if not table.fits(record):
                table.walk.lost_cells += 1
            elif not _is_other_step(table, record, self._conn):
                try:
                    table.insert(self._conn, record)
                except apsw.ConstraintError as error:
                    table.rejected.append((record.number, str(error)))

    def _read_indexes(self, table: _Table, roots: dict[str, int]) -> None:
        """An index has the number of every row: so it can be told which are missing."""
        known = self._known.setdefault(table.name, set())
        for _, name, _, _, is_partial in self._conn.execute(f"PRAGMA index_list({table.name})"):
            if name not in roots:
                continue
            walk = Walk()
            for record in self._pages.walk(roots[name], walk, _is_entry, of_index=True):
                if isinstance(number := record.values[-1], int) and number > 0:
                    known.add(number)
            if walk.is_whole and not is_partial:
                self._indexed.add(table.name)

    def _take_strays(self) -> None:
        """Rows on pages that nothing leads to any more, where it is clear whose they are."""
        for of_index in (False, True):
            broken = [t for t in self.tables if t.is_broken and t.is_index == of_index]
            shapes = self._index_shapes() if of_index else []
            for records, walk in self._pages.strays(of_index=of_index) if broken else ():
                fitting = {t.name: sum(map(t.fits, records)) for t in broken}
                most = max(fitting.values())
                owners = [t for t in broken if fitting[t.name] == most > 0]
                if len(owners) == 1 and all(sum(map(fits, records)) < most for fits in shapes):
                    owners[0].walk.add(walk)
                    self._take(owners[0], (r for r in records if r.number not in owners[0].saved))
                elif owners:
                    self._undecided += len(records)

    def _index_shapes(self) -> list[Callable[[Record], bool]]:
        """What entries of indexes look like, which lie on pages of the same kind as some tables."""
        shapes: list[Callable[[Record], bool]] = []
        for table in self.tables:
            types = {column.name: column.type for column in table.columns}
            for _, name, *_ in self._conn.execute(f"PRAGMA index_list({table.name})").fetchall():
                info = self._conn.execute(f"PRAGMA index_xinfo({name})").fetchall()
                if not (table.is_index and name.startswith("sqlite_autoindex")):
                    shapes.append(_shape([types.get(row[2] or "", "INTEGER") for row in info]))
        return shapes

    def _missing(self, table: _Table) -> Iterator[str]:
        """What of a table did not get into the new store, in words."""
        gone = self._known.get(table.name, set()) - table.saved
        gone -= {number for number, _ in table.rejected if number is not None}
        if gone:
            yield f"{_rows(len(gone))} of {table.name} ({_ranges(gone)})"
        if table.name not in self._indexed:
            if (more := table.walk.lost_cells - len(gone)) > 0:
                yield f"{_rows(more)}{' more' * bool(gone)} of {table.name}"
            if table.root is None:
                yield f"perhaps rows of {table.name}: where it began is lost"
            elif table.walk.lost_pages:
                yield f"an unknown number of rows of {table.name}, on {table.walk.lost_pages} pages"
        for number, reason in table.rejected:
            which = "a row" if number is None else f"row {number}"
            yield f"{which} of {table.name}, which breaks a rule ({reason})"
        if table.walk.garbled:
            yield f"some letters in {_rows(table.walk.garbled)} of {table.name}"


def tables_of(conn: apsw.Connection) -> list[str]:
    """The tables of a store, in the order in which the schema makes them."""
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
    """Whether this notes a step of the schema that the new store will note itself."""
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
    """The highest number ever given, by table: none is given twice."""
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
    """Numbers as a person would write them: 3-7, 12."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = [f"{a}-{b}" if a != b else str(a) for a, b in ranges[:_MOST_RANGES]]
    return ", ".join(texts) + (" and more" if len(ranges) > _MOST_RANGES else "")
