"""Open SQLite connections, check store files and translate errors of SQLite."""

import errno
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import apsw

from hermes_core.errors import (
    ForeignStoreError,
    IllegalTransitionError,
    SessionNotFoundError,
    StoreBusyError,
    StoreCorruptError,
    StoreError,
    StoreFilesError,
    StoreFullError,
    StoreGoneError,
    StoreIOError,
    StoreMemoryError,
    StorePermissionError,
    StoreReadOnlyError,
    StoreVersionError,
)
from hermes_core.paths import touch_private
from hermes_core.text import shell_quoted, truncate
from hermes_state.engines.sqlite.schema import APPLICATION_ID

OLDEST_SQLITE = (3, 51, 3)
"""Older versions can corrupt a WAL database that several processes share."""

MEMORY = Path(":memory:")

_HEADER_BYTES = 100
_SCHEMA_BYTES = 1_000_000
_MAGIC = b"SQLite format 3\x00"
_VERSION_AT = slice(60, 64)
_APPLICATION_ID_AT = slice(68, 72)
_OWN_TRIGGER = b"CREATE TRIGGER messages_counted"
_PAGES_BEFORE_CHECKPOINT = 1000
_ROOM_TO_OPEN = 64 * 1024
_FILES_TO_OPEN = 8
"""The file descriptors that a connection may need at once, with some to spare."""
_WAL_BYTES_KEPT = 16 * 1024 * 1024


def sqlite_version() -> str:
    """Return the version of the SQLite library."""
    return apsw.sqlite_lib_version()


def check_library(found: str) -> None:
    """Raise StoreVersionError for a SQLite version that can corrupt shared databases."""
    if tuple(int(part) for part in found.split(".")[:3]) < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise StoreVersionError(
            f"SQLite {found} can corrupt a database that several processes share; "
            f"Hermes needs {needed} or newer.",
            fix="Run: pip install --upgrade apsw",
        )


def check_file(path: Path) -> bool:
    """Return whether there is a store at `path`; raise ForeignStoreError for other files, unchanged."""
    try:
        if path.is_dir():
            raise ForeignStoreError(
                f"{path} is a folder, not a database.", fix="Move it away, or set HERMES_HOME."
            )
        if not path.exists():
            return False
        header = _beginning(path, _HEADER_BYTES)
    except (PermissionError, apsw.CantOpenError) as error:
        raise _not_opened(path) from error
    if not header:
        return False
    if not header.strip(b"\0") and path.with_name(path.name + "-journal").exists():
        return False  # a crash while the file was created; its journal rolls that back
    if _is_damaged(path, header):
        raise _damaged(path, "its first page")
    if not header.startswith(_MAGIC):
        raise ForeignStoreError(
            f"{path} is not a database.",
            fix="Nothing was changed. Move the file away, or set HERMES_HOME to another folder.",
        )
    if is_head(header):
        return True
    if _is_hermes_agent(path):
        # The routes of its chats may lie beside the database, so its whole home is named.
        home = path.parent if path.name == "state.db" else path
        raise ForeignStoreError(
            f"{path} was written by hermes-agent.",
            fix="Nothing was changed. Set HERMES_HOME to a new folder, then run: "
            f"hermes sessions import --from-hermes-agent {shell_quoted(home)}",
        )
    raise ForeignStoreError(
        f"{path} is a database of another program.",
        fix="Nothing was changed. Move the file away, or set HERMES_HOME to another folder.",
    )


def is_head(beginning: bytes) -> bool:
    """Return whether a file header has the magic and the application id of our stores."""
    is_ours = int.from_bytes(beginning[_APPLICATION_ID_AT], "big") == APPLICATION_ID
    return beginning.startswith(_MAGIC) and is_ours


def _is_damaged(path: Path, header: bytes) -> bool:
    """Return whether the header of one of our stores is damaged, judging by its schema."""
    version = int.from_bytes(header[_VERSION_AT], "big", signed=True)
    has_version = version > 0 or _size(path.with_name(path.name + "-wal"))  # the log may have it
    if is_head(header) and has_version:
        return False
    return _OWN_TRIGGER in _beginning(path, _SCHEMA_BYTES)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _beginning(path: Path, size: int) -> bytes:
    """Read the start of a file through SQLite; closing it otherwise drops the locks of this process."""
    file = open_file(path, apsw.SQLITE_OPEN_READONLY)
    try:
        return file.xRead(size, 0)
    finally:
        file.xClose()


def open_file(path: Path, access: int) -> apsw.VFSFile:
    """Open a database file for reading its bytes and for locking, whatever it contains."""
    return apsw.VFSFile("", str(path.resolve()), [access | apsw.SQLITE_OPEN_MAIN_DB, 0])


def _is_hermes_agent(path: Path) -> bool:
    """Return whether a file or its log contains the table names of hermes-agent."""
    found = b""
    for name in (path, path.with_name(path.name + "-wal")):
        if name.exists():
            with name.open("rb") as file:
                found += file.read(_SCHEMA_BYTES)
    return all(table in found for table in (b"sessions", b"messages", b"schema_version"))


def create_file(path: Path) -> None:
    """Create an empty store file with mode 0600 and our application id."""
    try:
        touch_private(path)
    except PermissionError as error:
        raise _no_permission(path) from error
    conn = apsw.Connection(str(path))
    conn.set_busy_timeout(10_000)
    # In the rollback journal, so that the mark is in the file itself and not only in a WAL.
    conn.pragma("application_id", APPLICATION_ID)
    conn.close()


def make_writable(*files: Path) -> None:
    """Make read-only files writable again.

    SQLite creates the files beside a database with its current mode, so the log of a store that was once
    read-only would stay read-only.
    """
    for file in files:
        if file.exists() and not os.access(file, os.W_OK):
            with suppress(OSError):  # owned by another user; SQLite reports what fails
                file.chmod(0o600)


def beside(path: Path) -> tuple[Path, Path]:
    """Return the paths of the log of a database and of its shared-memory file."""
    real = path.resolve()
    return real.with_name(real.name + "-wal"), real.with_name(real.name + "-shm")


def in_memory(name: str) -> str:
    """Return the URI of a named database in memory, shared by the connections of this process."""
    return f"file:/{name}?vfs=memdb"


def connect(place: Path | str, flags: int = 0, vfs: str | None = None) -> apsw.Connection:
    """Open a file, or the URI that `in_memory` returned."""
    access = flags or apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    name = str(place.absolute()) if isinstance(place, Path) else place
    return apsw.Connection(name, flags=access | apsw.SQLITE_OPEN_URI, vfs=vfs)


def open_writer(
    place: Path | str, busy_timeout_s: float, vfs: str | None = None
) -> apsw.Connection:
    """Open the connection that writes: WAL, an fsync before every acknowledgement, foreign keys."""
    conn = connect(place, vfs=vfs)
    with _closed_on_failure(conn):
        _set_up(conn, busy_timeout_s)
        if isinstance(place, Path):
            # A crash in `create_file` may leave a journal that takes the mark back when we open.
            if conn.pragma("application_id") != APPLICATION_ID:
                conn.pragma("application_id", APPLICATION_ID)
            _switch_to_wal(conn, busy_timeout_s)
        conn.pragma("synchronous", "full")
        conn.pragma("foreign_keys", "on")
        conn.pragma("wal_autocheckpoint", _PAGES_BEFORE_CHECKPOINT)
        conn.pragma("journal_size_limit", _WAL_BYTES_KEPT)
    return conn


@contextmanager
def _closed_on_failure(conn: apsw.Connection) -> Generator[None]:
    """Close a connection when the block fails, as the traceback would keep it open."""
    try:
        yield
    except BaseException:
        conn.close()
        raise


def _switch_to_wal(conn: apsw.Connection, timeout_s: float) -> None:
    """Switch to WAL mode, waiting for the lock, which SQLite does not do here."""
    wait = _patience(timeout_s)
    for times in count():
        try:
            conn.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if not wait(times):
                raise
        else:
            return


def open_reader(
    place: Path | str, busy_timeout_s: float, vfs: str | None = None
) -> apsw.Connection:
    """Open a read-only connection."""
    writable = isinstance(place, str) or os.access(place, os.W_OK)
    flags = apsw.SQLITE_OPEN_READWRITE if writable else apsw.SQLITE_OPEN_READONLY
    conn = connect(place, flags, vfs)
    with _closed_on_failure(conn):
        _set_up(conn, busy_timeout_s)
        conn.pragma("query_only", "on")
    return conn


def open_frozen(path: Path, busy_timeout_s: float) -> apsw.Connection:
    """Open a store that must not be written, also on read-only media."""
    try:
        conn = connect(path, apsw.SQLITE_OPEN_READONLY)
        with _closed_on_failure(conn):
            _set_up(conn, busy_timeout_s)
            conn.execute("SELECT 1 FROM sqlite_schema").fetchall()
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        # A WAL database needs a -shm file; where none can be created, nobody else writes either.
        if _size(path.with_name(path.name + "-wal")):
            raise StoreReadOnlyError(
                f"{path} has unmerged changes in its log, which can be read only in a writable folder.",
                fix="Copy the folder to a writable place and set HERMES_HOME to it.",
            ) from None
        conn = connect(f"{path.absolute().as_uri()}?immutable=1", apsw.SQLITE_OPEN_READONLY)
        _set_up(conn, busy_timeout_s)
    except apsw.IOError:
        if not _has_no_space(path):
            raise
        conn = _open_without_shared_memory(path, busy_timeout_s)
    conn.pragma("query_only", "on")
    return conn


def _open_without_shared_memory(path: Path, busy_timeout_s: float) -> apsw.Connection:
    """Open a store exclusively, on a disk without room for the shared-memory file."""
    conn = connect(path, apsw.SQLITE_OPEN_READWRITE)
    with _closed_on_failure(conn):
        _set_up(conn, busy_timeout_s)
        conn.pragma("locking_mode", "exclusive")  # alone, SQLite keeps the log's index in memory
        conn.execute("SELECT 1 FROM sqlite_schema").fetchall()
    return conn


def _set_up(conn: apsw.Connection, busy_timeout_s: float) -> None:
    conn.set_busy_handler(_patience(busy_timeout_s))
    conn.pragma("temp_store", "memory")
    # With this option, query plans do not depend on bound values. Without it, SQLite checks whether
    # the values match a partial index, and parses such a statement again for every new value.
    conn.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    # SQLite's lower() handles ASCII only. It takes bytes, because text may be invalid.
    conn.create_scalar_function("casefold", _casefold, 1, deterministic=True)


def _casefold(text: bytes) -> str:
    return text.decode(errors="replace").casefold()


def _patience(timeout_s: float) -> Callable[[int], bool]:
    """Return a busy handler with short, uneven pauses; SQLite's backoff starves the longest waiter."""
    began = 0.0

    def wait(times: int) -> bool:
        nonlocal began
        now = time.monotonic()
        if times == 0:
            began = now
        if now - began > timeout_s:
            return False
        shortest = 0.00005 if times < 200 else 0.001
        time.sleep(shortest * (1 + time.monotonic_ns() % 4))
        return True

    return wait


@contextmanager
def translated(path: Path) -> Generator[None]:
    """Raise errors of SQLite as StoreError, with their cause."""
    try:
        yield
    except apsw.Error as error:
        raise translate(error, path) from error
    except MemoryError as error:
        raise no_memory(path) from error


def store_gone(path: Path) -> StoreGoneError:
    """Return the error for a file that is not the one that was opened."""
    return StoreGoneError(
        f"{path} was removed or replaced while it was in use.",
        fix="Restart Hermes to use the file that is there now, and check whether your last "
        "change is in it before you repeat it.",
    )


def no_memory(path: Path) -> StoreMemoryError:
    """Return the error for a process that has no memory left."""
    return StoreMemoryError(
        f"There is not enough memory to use {path}.",
        fix="Nothing was written. Try again, or give this process more memory.",
    )


def _not_opened(path: Path) -> StoreError:
    if _has_free_files():
        return _no_permission(path)
    return StoreFilesError(
        f"{path} cannot be opened: this process has too many files open.",
        fix="Nothing was written. Try again, or raise the limit (ulimit -n).",
    )


def _has_free_files() -> bool:
    """Try to open as many files as a connection needs: SQLite does not say why it failed."""
    opened: list[int] = []
    try:
        while len(opened) < _FILES_TO_OPEN:
            opened.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in (errno.EMFILE, errno.ENFILE)
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return True


def _damaged(path: Path, what: str) -> StoreCorruptError:
    return StoreCorruptError(
        f"{path} has a damaged page ({what}).",
        fix="Run: hermes doctor --fix. It keeps a copy of the damaged file and saves every "
        "row that can be read into a new one.",
    )


def _full(path: Path) -> StoreFullError:
    return StoreFullError(
        f"There is no space left for {path}.",
        fix="Nothing acknowledged is lost. Free some space and repeat the last action.",
    )


def _has_no_space(path: Path) -> bool:
    """Return whether the disk has less space than opening a store needs."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _ROOM_TO_OPEN


def translate(error: apsw.Error, path: Path) -> StoreError:
    """Return the StoreError for an error of SQLite."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusyError(
                f"{path} is locked by another process.",
                fix="Nothing was written. Wait for it, or run: hermes doctor",
            )
        case apsw.FullError():
            return _full(path)
        case apsw.ReadOnlyError():
            return StoreReadOnlyError(
                f"{path} cannot be written.",
                fix="Make the file, those that begin with its name, and their folder writable.",
            )
        case apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            return _not_opened(path)
        case apsw.CorruptError():
            return _damaged(path, str(error))
        case apsw.NotADBError():
            return ForeignStoreError(f"{path} is not a database.", fix="Move the file away.")
        case apsw.IOError() if _has_no_space(path):  # for its shared memory, which SQLite tells so
            return _full(path)
        case apsw.IOError():
            return StoreIOError(
                f"The disk failed while accessing {path} ({error}).",
                fix="Nothing acknowledged is lost. Check the disk, then run: hermes doctor",
            )
        case apsw.ConstraintError():
            return _constraint(error)
        case _:
            is_memory = isinstance(error, apsw.NoMemError)
            return no_memory(path) if is_memory else StoreError(f"{path}: {error}.")


def no_text(error: UnicodeEncodeError) -> StoreError:
    """Return the error for a text with lone surrogates, which cannot be stored."""
    return StoreError(
        f"{truncate(repr(error.object), 80)} cannot be stored: it is not valid Unicode.",
        fix="Use valid UTF-8 text.",
    )


def _constraint(error: apsw.ConstraintError) -> StoreError:
    text = str(error)
    if "illegal transition" in text or "CHECK constraint" in text or "does not change" in text:
        return IllegalTransitionError(f"The store refused the change ({text}).")
    if "FOREIGN KEY" in text:
        return SessionNotFoundError("The session does not exist in the store.")
    return StoreError(f"The store refused the change ({text}).")


def _no_permission(path: Path) -> StorePermissionError:
    return StorePermissionError(
        f"{path} may not be opened.",
        fix="Make the file and its folder readable and writable for you (0600 and 0700).",
    )
