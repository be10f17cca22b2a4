"""Maintain the search index: the words and trigrams of every message, in a file of its own.

The index is derived data. It follows the store by a watermark, never inside a caller's commit; it can be
deleted and is rebuilt; its failures never fail a write.
Failure cases: a missing, damaged or foreign index file, or one that is ahead of the store (the store
was restored from a backup), is discarded and rebuilt. A file that was removed or replaced while it was
open is closed, and the file at its path now is opened. Readers of the old file get correct answers until
a message is stored that it lacks.
"""

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar, cast

import apsw
import msgspec

from hermes_core.errors import ForeignStoreError, StoreCorruptError, StorePermissionError
from hermes_core.paths import touch_private
from hermes_state.engines.sqlite.connection import beside, connect, in_memory, make_writable
from hermes_state.engines.sqlite.database import Database
from hermes_state.engines.sqlite.presence import identity
from hermes_state.engines.sqlite.readers import Readers
from hermes_state.ledger.records import decode, texts

logger = logging.getLogger(__name__)

T = TypeVar("T")

VERSION = 3
"""The version of the contents; an index of another version is rebuilt."""

_Texts = tuple[int, str | None, str | None, str | None, str | None]
"""The id of a message and the arguments of `searchable`."""

_BATCH = 100
_PAUSE_S = 1.0
_PAUSE_RATIO = 24
"""Ratio of the pause after a batch to the time of the batch, while messages are written."""
_MAX_OTHERS = 8
"""Maximum number of processes that are assumed to index too; one that searches indexes faster."""
_TIMEOUT_MS = 5_000

_UNWRITABLE = (apsw.CantOpenError, apsw.FullError, apsw.IOError, apsw.ReadOnlyError)
"""Errors that mean that the index file cannot be written; it can still be read."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS state (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5 (
    text, content='', contentless_delete=1, tokenize='unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE IF NOT EXISTS trigrams USING fts5 (
    text, content='', contentless_delete=1, detail=none, tokenize='trigram remove_diacritics 1');
"""

_UNSPACED = (
    "[\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003ffff]+"
)
"""Scripts without spaces between words: Han, kana, Hangul. Compiled on first use."""

_BLOB = re.compile(r"[A-Za-z0-9+/=_-]{200,}")
"""Encoded images and keys, which contain no words."""


def split_unspaced(text: str) -> str:
    """Split runs of unspaced script into overlapping pairs, so that a word index finds any part."""
    return text if text.isascii() else re.sub(_UNSPACED, _pairs, text)


def _pairs(match: re.Match[str]) -> str:
    run = match[0]
    return " " + " ".join(run[i : i + 2] for i in range(len(run))) + " "


def searchable(
    content: str | None, parts: str | None, calls: str | None, tool_name: str | None
) -> str:
    """Return the searchable text of a message; invalid JSON has none."""
    pieces = [tool_name or "", content or ""]
    try:
        if parts is not None:
            pieces += texts(decode(parts))
        if calls is not None:
            pieces += [f"{name} {arguments}" for name, arguments in _calls(decode(calls))]
    except (msgspec.DecodeError, RecursionError):
        pass  # an invalid message, as imports may have, must not block the others
    text = " ".join(piece for piece in pieces if piece)
    return _BLOB.sub(" ", text) if len(text) >= 200 else text


def _calls(value: Any) -> Iterable[tuple[Any, Any]]:  # noqa: ANN401 -- whatever JSON a provider sent
    for call in cast("list[Any]", value) if isinstance(value, list) else []:
        if isinstance(call, dict):
            named = cast("dict[str, Any]", call)
            function = named.get("function", named)
            if isinstance(function, dict):
                named = cast("dict[str, Any]", function)
                yield named.get("name", ""), named.get("arguments", "")


class SearchIndex:
    """Updates the index in the background and runs queries on it."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._place: Path | str = _memory_uri() if database.in_memory else index_path(database.path)
        self._lock = threading.Lock()
        """Held while the index is changed; queries do not need it."""
        self._conn: apsw.Connection | None = None
        self._file: tuple[int, int] | None = None
        """The identity of the file that the connection has open."""
        self._askers = Readers(self._open_asker, database.path)
        self._frozen = False
        """Whether the index is read-only; messages that it lacks are not found."""
        self._stirred = threading.Event()
        self._closed = threading.Event()
        self._thread: Thread | None = None
        self._beginning = threading.Lock()

    # -- following the store -------------------------------------------------------------------

    def stir(self) -> None:
        """Wake the indexing thread after a commit; never wait."""
        if not self._stirred.is_set():
            self._stirred.set()
            if self._thread is None:
                self._begin()

    def _begin(self) -> None:
        with self._beginning:
            if self._thread is not None:
                return
            thread = Thread(target=self._follow, name="hermes-search", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # too many threads; the write must not fail
                logger.warning(
                    "Could not start the search index thread; the next search catches up: %s", error
                )
                self._stirred.clear()  # the next write tries again
            else:
                self._thread = thread

    def _follow(self) -> None:
        while not self._closed.is_set():
            self._stirred.wait()
            self._closed.wait(_PAUSE_S)  # collects a burst of messages into one batch
            self._stirred.clear()  # before checking _closed again: close() sets both
            try:
                self._catch_up_slowly()
            except Exception:
                logger.exception("Search index update failed; it is tried again")

    def _catch_up_slowly(self) -> None:
        """Index all messages with pauses, to leave processor and disk to writers.

        A search catches up at once. Every process that writes runs this: the batches that others index
        during a pause make the next pause longer, so that all together cost no more than one.
        """
        began, newest, indexers = time.monotonic(), 0, 1
        while self._catch_up_once():
            took, reached = time.monotonic() - began, self.ask(_watermark)
            before, newest = newest, self._db.run_on_reader(_newest)
            rest = _PAUSE_RATIO * indexers if newest != before else 1
            self._closed.wait(rest * took)
            others = (self.ask(_watermark) - reached) // _BATCH
            began, indexers = time.monotonic(), 1 + min(max(others, 0), _MAX_OTHERS)

    def catch_up(self) -> int:
        """Index all stored messages; return how many were added or removed."""
        total = 0
        while self.ask(_is_behind) and (done := self._catch_up_once()):
            total += done
        return total

    def _catch_up_once(self) -> int:
        """Index one batch; return how many messages were added or removed."""
        with self._lock:
            if self._closed.is_set():
                return 0
            try:
                return self._advance(self._opened())
            except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError):
                logger.warning("Search index %s is unusable and is rebuilt", self._place)
                self._discard()
                return self._advance(self._opened())
            except apsw.BusyError:
                return 0  # another process is at it
            except _UNWRITABLE as error:
                logger.warning("Search index %s cannot be written: %s", self._place, error)
                return 0

    def _advance(self, conn: apsw.Connection) -> int:
        if self._frozen:
            return 0
        conn.execute("BEGIN IMMEDIATE")
        try:
            watermark = _state(conn, "watermark")
            batch, forgotten, mark = self._db.run_on_snapshot(lambda c: _changes(c, watermark))
            _add(conn, batch)
            conn.executemany("DELETE FROM words WHERE rowid = ?", [(id_,) for id_ in forgotten])
            conn.executemany("DELETE FROM trigrams WHERE rowid = ?", [(id_,) for id_ in forgotten])
            if batch:
                conn.execute("UPDATE state SET value = ? WHERE key = 'watermark'", (batch[-1][0],))
                conn.execute("UPDATE state SET value = ? WHERE key = 'mark'", (mark,))
            conn.execute("COMMIT")
        except BaseException:
            if conn.in_transaction:  # a full disk ends the transaction
                conn.execute("ROLLBACK")
            raise
        if self._db.read_only:
            return len(batch)
        if forgotten:
            self._db.run_on_writer(
                lambda c: c.executemany(
                    "DELETE FROM forgotten WHERE message_id = ?", [(id_,) for id_ in forgotten]
                )
            )
        return len(batch) + len(forgotten)

    # -- asking --------------------------------------------------------------------------------

    def ask(self, fn: Callable[[apsw.Connection], T]) -> T:
        """Run a query on the store (`main`) and the index (`search`); rebuild a broken index first."""
        self._db.refuse_fork()
        try:
            return self._askers.lend(fn)
        except (StoreCorruptError, ForeignStoreError):
            self._renew()
        except StorePermissionError:
            if self._is_at_its_place():
                raise
        return self._askers.lend(fn)

    def ask_up_to_date(self, fn: Callable[[apsw.Connection], T]) -> T:
        """Run a query after indexing all stored messages."""
        behind = object()
        answer = self.ask(lambda c: behind if _is_behind(c) else fn(c))
        if answer is behind:
            self.catch_up()
            return self.ask(fn)
        return cast("T", answer)

    def rebuild(self) -> int:
        """Discard the index and rebuild it; return the number of messages."""
        with self._lock:
            self._discard()
        return self.catch_up()

    def _renew(self) -> None:
        """Replace an unusable index by the one at its path now, or rebuild it."""
        with self._lock:
            if self._is_at_its_place():
                self._discard()
        self.catch_up()

    def optimize(self) -> None:
        """Merge the segments of the index and vacuum its file, which takes long."""
        with self._lock:
            conn = self._opened()
            for table in ("words", "trigrams"):
                conn.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
            conn.execute("VACUUM")

    def lag(self) -> int:
        """Return how many stored messages are not indexed yet."""
        return self.ask(
            lambda c: c.execute(f"SELECT count(*) FROM main.messages WHERE id > {_WATERMARK}").get
        )

    def close(self) -> None:
        """Stop indexing; missing messages are added the next time."""
        if self._db.is_forked:
            return
        self._closed.set()
        self._stirred.set()
        if self._thread is not None:
            self._thread.join()
        self._askers.close()
        with self._lock:
            self._close_index()

    # -- the file ------------------------------------------------------------------------------

    def _open_asker(self) -> apsw.Connection:
        with self._lock:
            self._opened()
            conn = self._db.open_reader()
            conn.execute("ATTACH ? AS search", (str(self._place),))
        conn.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # see _close_replaced
        return conn

    def _opened(self) -> apsw.Connection:
        replaced = self._conn is not None and not self._is_at_its_place()
        if self._conn is not None and replaced:
            self._close_replaced(self._conn)
        if self._conn is None:
            self._conn = self._open_frozen() if self._db.read_only else self._open_to_write()
            if self._is_foreign(self._conn):
                if replaced and _state(self._conn, "version") > VERSION:
                    self._close_index()  # a newer Hermes runs too: do not replace its index
                    self._place = _memory_uri()
                else:
                    self._discard()
                self._conn = self._open_to_write()
        return self._conn

    def _is_at_its_place(self) -> bool:
        try:
            return isinstance(self._place, str) or identity(self._place) == self._file
        except OSError:
            return True  # unknown: a folder without permission

    def _close_replaced(self, conn: apsw.Connection) -> None:
        """Close an index whose file was replaced, without removing the log of the new file."""
        logger.warning("Search index %s was removed or replaced and is reopened", self._place)
        conn.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._close_index()

    def _open_frozen(self) -> apsw.Connection:
        """Open the index of a read-only store as it is, else one in memory."""
        if isinstance(self._place, Path):
            try:
                self._file = identity(self._place)
                conn = connect(self._place, apsw.SQLITE_OPEN_READONLY)
                self._frozen = not self._is_foreign(conn)
                if self._frozen:
                    return conn
                conn.close()
            except apsw.Error:
                pass  # missing or unreadable
            self._place = _memory_uri()
        return self._open()

    def _open_to_write(self) -> apsw.Connection:
        """Open the index file for writing, or an index in memory where it cannot be written."""
        if isinstance(self._place, Path):
            try:
                self._place.parent.stat()  # do not recreate a home that was moved
                make_writable(self._place, *beside(self._place))
                touch_private(self._place)
                self._file = identity(self._place)
                return self._open()
            except (OSError, *_UNWRITABLE) as error:
                logger.warning("Search index %s cannot be written: %s", self._place, error)
                self._place = _memory_uri()
        return self._open()

    def _open(self) -> apsw.Connection:
        conn = connect(self._place)
        conn.set_busy_timeout(_TIMEOUT_MS)
        conn.pragma("journal_mode", "wal")
        conn.pragma("synchronous", "normal")  # messages lost in a power cut are indexed again
        conn.execute("BEGIN IMMEDIATE")
        conn.execute(_SCHEMA)
        conn.execute(
            "INSERT OR IGNORE INTO state VALUES"
            " ('watermark', 0), ('mark', NULL), ('version', ?), ('store', ?)",
            (VERSION, self._store_id()),
        )
        conn.execute("COMMIT")
        return conn

    def _store_id(self) -> str:
        return self._db.run_on_snapshot(
            lambda c: c.execute("SELECT value FROM meta WHERE key = 'store_id'").get
        )

    def _is_foreign(self, conn: apsw.Connection) -> bool:
        """Return whether the index belongs to another store, version, or a later state of this store."""
        watermark, mark = _state(conn, "watermark"), _state(conn, "mark")
        newest, timestamp = self._db.run_on_snapshot(
            lambda c: (
                c.execute("SELECT seq FROM sqlite_sequence WHERE name = 'messages'").get or 0,
                c.execute("SELECT timestamp FROM messages WHERE id = ?", (watermark,)).get,
            )
        )
        return (
            _state(conn, "version") != VERSION
            or _state(conn, "store") != self._store_id()
            or watermark > newest
            or (timestamp is not None and timestamp != mark)
        )

    def _close_index(self) -> None:
        self._askers.renew()
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def _discard(self) -> None:
        self._close_index()
        if isinstance(self._place, Path) and not self._db.read_only:
            try:
                for file in (self._place, *beside(self._place)):
                    file.unlink(missing_ok=True)
            except OSError as error:
                logger.warning("Search index %s cannot be removed: %s", self._place, error)
                self._place = _memory_uri()


def _memory_uri() -> str:
    return in_memory(f"hermes-{os.urandom(8).hex()}")


def index_path(database: Path) -> Path:
    """Return the path of the index of a store: state-search.db beside state.db."""
    return database.with_name(f"{database.stem}-search{database.suffix}")


def _state(conn: apsw.Connection, key: str) -> Any:  # noqa: ANN401 -- a number or a text
    return conn.execute("SELECT value FROM state WHERE key = ?", (key,)).get


_WATERMARK = "(SELECT value FROM search.state WHERE key = 'watermark')"

IS_BEHIND = (
    f"(EXISTS (SELECT 1 FROM main.messages WHERE id > {_WATERMARK})"
    " OR EXISTS (SELECT 1 FROM main.forgotten))"
)
"""SQL for `SearchIndex.query`: whether there are messages to add or remove."""


def _is_behind(conn: apsw.Connection) -> bool:
    return bool(conn.execute(f"SELECT {IS_BEHIND}").get)


def _watermark(conn: apsw.Connection) -> int:
    """Return the id of the last indexed message."""
    return conn.execute(f"SELECT {_WATERMARK}").get


def _newest(store: apsw.Connection) -> int:
    """Return the id of the last stored message."""
    return store.execute("SELECT coalesce(max(id), 0) FROM messages").get


def _changes(conn: apsw.Connection, watermark: int) -> tuple[list[_Texts], list[int], float | None]:
    """Return the messages to add, the ids to remove, and the time of the last new message."""
    batch = conn.execute(
        "SELECT id, content, parts, tool_calls, tool_name FROM messages WHERE id > ?"
        " ORDER BY id LIMIT ?",
        (watermark, _BATCH),
    ).fetchall()
    forgotten = conn.execute(
        "SELECT message_id FROM forgotten ORDER BY message_id LIMIT ?", (_BATCH,)
    ).fetchall()
    last = batch[-1][0] if batch else watermark
    mark = conn.execute("SELECT timestamp FROM messages WHERE id = ?", (last,)).get
    return batch, [id_ for (id_,) in forgotten], mark


def _add(conn: apsw.Connection, batch: list[_Texts]) -> None:
    texts_by_id = [(id_, text) for id_, *columns in batch if (text := searchable(*columns))]
    conn.executemany("INSERT INTO trigrams (rowid, text) VALUES (?, ?)", texts_by_id)
    conn.executemany(
        "INSERT INTO words (rowid, text) VALUES (?, ?)",
        [(id_, split_unspaced(text)) for id_, text in texts_by_id],
    )
