"""Open and read a hermes-agent home without changing a byte in it.

SQLite would create a -shm file beside a WAL database even for a reader. So a database with a log is read
with its shared memory read-only; one without a log is read as immutable and watched for changes; one
that needs recovery is copied and recovered elsewhere.
"""

import logging
import shutil
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import apsw

from hermes_core.errors import (
    ForeignStoreError,
    StoreBusyError,
    StoreCorruptError,
    StoreError,
    StorePermissionError,
    UsageError,
)
from hermes_core.temp_folders import TempFolder
from hermes_state.engines.sqlite.connection import translate
from hermes_state.engines.sqlite.schema import APPLICATION_ID
from hermes_state.engines.sqlite.tx import rows_of
from hermes_state.values import Row

logger = logging.getLogger(__name__)

NEWEST_SCHEMA = 22

_MAGIC = b"SQLite format 3\x00"
_WAL_VERSION = 2
_NEEDED = {
    "schema_version": ("version",),
    "sessions": ("id", "source", "started_at"),
    "messages": ("id", "session_id", "role", "content", "timestamp"),
}
_SESSION_COLUMNS = """
id source user_id session_key chat_id chat_type thread_id display_name origin_json expiry_finalized model
model_config system_prompt parent_session_id started_at ended_at end_reason message_count tool_call_count
input_tokens output_tokens cache_read_tokens cache_write_tokens reasoning_tokens cwd git_branch
git_repo_root billing_provider billing_base_url billing_mode estimated_cost_usd actual_cost_usd
cost_status cost_source pricing_version title api_call_count handoff_state handoff_platform handoff_error
compression_failure_cooldown_until compression_failure_error compression_fallback_streak profile_name
rewind_count archived
"""
_MESSAGE_COLUMNS = """
id session_id role content tool_call_id tool_calls tool_name effect_disposition timestamp token_count
finish_reason reasoning reasoning_content reasoning_details codex_reasoning_items codex_message_items
platform_message_id observed active compacted api_content
"""
_KNOWN_COLUMNS = {
    "sessions": set(_SESSION_COLUMNS.split()),
    "messages": set(_MESSAGE_COLUMNS.split()),
}
"""The columns of the newest known schema, including those without a column here."""
_ROUTE = ("session_key", "entry_json", "updated_at")
_BUSY_MS = 10_000

_DIFFERENT = "Give the path of a hermes-agent home, or of the state.db in it."


class Place(NamedTuple):
    """The files of a home; at least one of them exists."""

    database: Path | None
    routes: Path | None


def locate(path: Path) -> Place:
    """Find the database and the routes file in a home, or accept the path of a database."""
    if path.is_dir():
        database, routes = path / "state.db", path / "sessions" / "sessions.json"
        found = Place(
            database if database.is_file() else None, routes if routes.is_file() else None
        )
        if found == (None, None):
            raise UsageError(
                f"{path} has neither state.db nor sessions/sessions.json.", fix=_DIFFERENT
            )
        return found
    if path.is_file():
        return Place(path, None)
    raise UsageError(f"There is no file and no folder {path}.", fix=_DIFFERENT)


class Head(NamedTuple):
    """The fields of a session that determine how it is linked."""

    id: str
    parent: str | None
    source: str
    started_at: Any
    ended_at: Any
    end_reason: str | None
    model_config: Any
    archived: Any
    last_message_id: int
    messages: int
    active: int
    active_at: Any


class Heads(NamedTuple):
    """The sessions of a file."""

    by_id: dict[str, Head]
    """In the order of their start."""
    without_id: list[tuple[str, int]]
    """Sessions whose id is not text: a printable form, and their message counts."""


class Source:
    """Reads one snapshot of a hermes-agent database."""

    def __init__(self, path: Path, conn: apsw.Connection, unchanged: Callable[[], None]) -> None:
        self.path = path
        self._conn = conn
        self._unchanged = unchanged
        self._columns: dict[str, list[str]] = {}
        self.warnings: list[str] = []
        self.repaired: dict[str, None] = {}
        """Sessions with invalid text that was replaced, in the order of discovery."""
        with self._reading():
            conn.execute("BEGIN")
            for (name,) in conn.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'"
            ).fetchall():
                info = conn.execute(f"PRAGMA table_info({_quoted(name)})")
                self._columns[name] = [row[1] for row in info]
        self.version = self._check()

    def _check(self) -> int:
        """Return the schema version; raise for foreign or damaged files."""
        if self._conn.pragma("application_id") == APPLICATION_ID:
            raise ForeignStoreError(
                f"{self.path} is a store of this Hermes, not of hermes-agent.",
                fix="Nothing was changed. Use `hermes sessions export` there and"
                " `hermes sessions import` here.",
            )
        for table, columns in _NEEDED.items():
            if not set(columns) <= set(self._columns.get(table, ())):
                raise ForeignStoreError(
                    f"{self.path} is not a database of hermes-agent.",
                    fix=f"Nothing was changed. {_DIFFERENT}",
                )
        version = self._ask("SELECT max(version) AS version FROM schema_version")[0]["version"]
        if not isinstance(version, int):
            raise ForeignStoreError(
                f"{self.path} has no schema version.",
                fix="Nothing was changed. Open it with hermes-agent once, then try again.",
            )
        if version > NEWEST_SCHEMA:
            self.warnings = self._warnings(version)
            for text in self.warnings:
                logger.warning("%s", text)
        for table in ("sessions", "messages"):
            problems = self._ask(f"PRAGMA quick_check({table})")
            if problems and "ok" not in problems[0].values():
                raise self._damaged("; ".join(str(v) for v in problems[0].values()))
        return version

    def _warnings(self, version: int) -> list[str]:
        """Describe a newer schema and its unknown columns."""
        unknown = [
            f"{table}.{name}"
            for table, columns in _KNOWN_COLUMNS.items()
            for name in self._columns[table]
            if name not in columns
        ]
        note = f" Kept as extra data: {', '.join(unknown)}." if unknown else ""
        return [
            f"{self.path} has schema {version} of hermes-agent; this Hermes knows {NEWEST_SCHEMA}"
            f" and imports what it understands.{note}"
        ]

    def heads(self) -> Heads:
        """Return every session, in the order of start."""
        optional = ("parent_session_id", "ended_at", "end_reason", "model_config", "archived")
        parent, ended, reason, config, archived = (self._or_null(name) for name in optional)
        active = "coalesce(active, 1)" if "active" in self._columns["messages"] else "1"
        columns = {
            "id": "sessions.id",
            "parent": parent,
            "source": "sessions.source",
            "started_at": "sessions.started_at",
            "ended_at": ended,
            "end_reason": reason,
            "model_config": config,
            "archived": archived,
            "last_message_id": "coalesce(said.last_message_id, 0)",
            "messages": "coalesce(said.messages, 0)",
            "active": "coalesce(said.active, 0)",
            "active_at": "coalesce(said.active_at, sessions.started_at)",
        }
        found = self._read(
            columns,
            "FROM sessions LEFT JOIN (SELECT session_id, max(id) AS last_message_id,"
            f" count(*) AS messages, sum({active}) AS active, max(timestamp) AS active_at"
            " FROM messages GROUP BY session_id) AS said ON said.session_id = sessions.id"
            " ORDER BY sessions.started_at, sessions.id",
        )
        heads = Heads({}, [])
        for row, replaced in found:
            if isinstance(row["id"], str) and "id" not in replaced:
                heads.by_id[row["id"]] = Head(**row)
            else:
                heads.without_id.append((str(row["id"]), row["messages"]))
        return heads

    def _or_null(self, column: str) -> str:
        return f"sessions.{column}" if column in self._columns["sessions"] else "NULL"

    def session(self, session_id: str) -> Row:
        """Return all columns of a session."""
        return self._all_of("sessions", session_id, "WHERE id = ?")[0]

    def messages(self, session_id: str) -> list[Row]:
        """Return the messages of a session in the order of writing."""
        return self._all_of("messages", session_id, "WHERE session_id = ? ORDER BY messages.id")

    def messages_until(self, session_id: str, last: int) -> int:
        """Count the messages of a session up to an id."""
        found = self._ask(
            "SELECT count(*) AS n FROM messages WHERE session_id = ? AND id <= ?", session_id, last
        )
        return found[0]["n"]

    def usage(self, session_id: str) -> list[Row]:
        """Return the usage of a session, one row per model, provider and task."""
        if "session_model_usage" not in self._columns:
            return []
        return self._all_of("session_model_usage", session_id, "WHERE session_id = ?")

    def routes(self) -> list[Row]:
        """Return the routes, most recently used first."""
        if "gateway_routing" not in self._columns:
            return []
        columns = {name: f"gateway_routing.{name}" for name in _ROUTE}
        order = "FROM gateway_routing ORDER BY gateway_routing.updated_at DESC, scope"
        return [row for row, _ in self._read(columns, order)]

    def tables(self) -> list[str]:
        """Return the tables, without those of SQLite and of search indexes."""
        machinery = ("sqlite_", "messages_fts")
        return [name for name in self._columns if not name.startswith(machinery)]

    def count(self, table: str, where: str = "1") -> int:
        """Count the rows of a table."""
        return self._ask(f"SELECT count(*) AS n FROM {_quoted(table)} WHERE {where}")[0]["n"]

    def check_unchanged(self) -> None:
        """Raise StoreBusyError when the file was written while it was read."""
        self._unchanged()

    def _all_of(self, table: str, session_id: str, rest: str) -> list[Row]:
        """Return all columns of the rows of a session; record replaced text."""
        columns = {name: f"{table}.{_quoted(name)}" for name in self._columns[table]}
        found = self._read(columns, f"FROM {table} {rest}", session_id)
        if any(replaced for _, replaced in found):
            self.repaired[session_id] = None
        return [row for row, _ in found]

    def _read(
        self, columns: Mapping[str, str], rest: str, *bindings: object
    ) -> list[tuple[Row, list[str]]]:
        """Return rows, each with the names of the columns with replaced text."""
        chosen = ", ".join(f"{what} AS {_quoted(name)}" for name, what in columns.items())
        with self._reading():
            try:
                found = rows_of(self._conn.execute(f"SELECT {chosen} {rest}", bindings))
            except UnicodeDecodeError:
                return self._read_as_bytes(columns, rest, *bindings)
        return [(row, []) for row in found]

    def _read_as_bytes(
        self, columns: Mapping[str, str], rest: str, *bindings: object
    ) -> list[tuple[Row, list[str]]]:
        """Read rows with invalid text, as SQLite stores any bytes as text."""
        chosen = ", ".join(
            f"typeof({what}), iif(typeof({what}) = 'text', CAST({what} AS BLOB), {what})"
            for what in columns.values()
        )
        found: list[tuple[Row, list[str]]] = []
        for values in self._conn.execute(f"SELECT {chosen} {rest}", bindings):
            row: Row = {}
            replaced: list[str] = []
            for name, type_, value in zip(columns, values[::2], values[1::2], strict=True):
                row[name] = value
                if type_ == "text":
                    row[name] = value.decode("utf-8", "replace")
                    if row[name].encode() != value:
                        replaced.append(name)
            found.append((row, replaced))
        return found

    def _ask(self, sql: str, *bindings: object) -> list[Row]:
        with self._reading():
            return rows_of(self._conn.execute(sql, bindings))

    @contextmanager
    def _reading(self) -> Generator[None]:
        with reading(self.path):
            yield

    def _damaged(self, text: str) -> StoreCorruptError:
        return _damaged(self.path, text)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _damaged(path: Path, text: str) -> StoreCorruptError:
    return StoreCorruptError(
        f"{path} is damaged ({text}).",
        fix="The file was not touched. Open it with hermes-agent once, which repairs what it can, or"
        " take a backup of it; then try again.",
    )


@contextmanager
def reading(path: Path) -> Generator[None]:
    """Raise errors that name the foreign file instead of our store."""
    try:
        yield
    except (apsw.CorruptError, apsw.IOError) as error:
        raise _damaged(path, str(error)) from error
    except apsw.NotADBError as error:
        raise _no_database(path) from error
    except apsw.SQLError as error:
        if "malformed" in str(error):
            raise _damaged(path, str(error)) from error
        raise StoreError(f"{path} cannot be read: {error}.", fix=_DIFFERENT) from error
    except apsw.Error as error:
        raise translate(error, path) from error
    except PermissionError as error:
        raise StorePermissionError(
            f"{path} may not be read.", fix="Make the file and its folder readable for you."
        ) from error


def _no_database(path: Path) -> ForeignStoreError:
    return ForeignStoreError(f"{path} is not a database.", fix=f"Nothing was changed. {_DIFFERENT}")


@contextmanager
def opened(path: Path) -> Generator[Source]:
    """Open a hermes-agent database for reading without changing its folder."""
    with reading(path):
        with path.open("rb") as file:
            header = file.read(20)
        if not header.startswith(_MAGIC):
            raise _no_database(path)
    wal = _beside(path, "-wal")
    if header[18] != _WAL_VERSION:
        yield from _opened_or_copied(path, "mode=ro")
    elif wal.exists() and wal.stat().st_size:
        yield from _opened_or_copied(path, "mode=ro&readonly_shm=1")
    else:
        # Nobody has it open. "immutable" takes no lock, so the file is watched.
        yield from _sourced(path, path, "immutable=1", _watch(path))


def _opened_or_copied(path: Path, how: str) -> Generator[Source]:
    try:
        _connect(path, how).close()
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.IOError):
        with TempFolder("import") as folder:
            copy = Path(folder) / path.name
            unchanged = _watch(path)
            with reading(path):
                for suffix in ("", "-wal", "-journal"):
                    if (part := _beside(path, suffix)).exists():
                        shutil.copyfile(part, _beside(copy, suffix))
            unchanged()
            yield from _sourced(path, copy, "mode=rw", lambda: None)
    except apsw.Error as error:
        with reading(path):
            raise error from None
    else:
        yield from _sourced(path, path, how, lambda: None)


def _sourced(path: Path, file: Path, how: str, unchanged: Callable[[], None]) -> Generator[Source]:
    with reading(path):
        conn = _connect(file, how)
    try:
        yield Source(path, conn, unchanged)
    finally:
        conn.close()


def _connect(path: Path, how: str) -> apsw.Connection:
    conn = apsw.Connection(
        f"file:{quote(str(path.absolute()))}?{how}",
        flags=(apsw.SQLITE_OPEN_READWRITE if how == "mode=rw" else apsw.SQLITE_OPEN_READONLY)
        | apsw.SQLITE_OPEN_URI,
    )
    conn.set_busy_timeout(_BUSY_MS)
    try:
        conn.execute("SELECT 1 FROM sqlite_schema").fetchall()
    except BaseException:
        conn.close()
        raise
    return conn


def _watch(path: Path) -> Callable[[], None]:
    """Return a check that raises when the file changes."""

    def look() -> tuple[int, int]:
        status = path.stat()
        return status.st_mtime_ns, status.st_size

    before = look()

    def unchanged() -> None:
        if look() != before:
            raise StoreBusyError(
                f"{path} was written to while it was read.",
                fix="Stop hermes-agent and try again; nothing is imported twice.",
            )

    return unchanged


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
