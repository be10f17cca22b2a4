"""The search index: words and trigrams of every message, in a file of its own.

It is derived. It follows the store by a watermark, never inside a caller's commit; it can be deleted
and is built again; what goes wrong with it cannot make a write fail or harm a conversation.
Failure cases: a missing, damaged or foreign index file, or one that is ahead of the store (the store
was restored from a backup), is thrown away and built anew. One that another process or a person took
away or replaced while it was open is let go of, and what is at its place now is used. Whoever still asks
the old one gets right answers from it, until something is stored that it lacks.
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
"""Raised when the meaning of the index changes; an older file is then built anew."""

_Texts = tuple[int, str | None, str | None, str | None, str | None]
"""The id of a message, and what `searchable` is made of."""

_BATCH = 100
_PAUSE_S = 1.0
_LEISURE = 24
"""How many times as long as it works it rests, while others write."""
_MOST_OTHERS = 8
"""As many processes are taken to do the same; one that searches indexes more at once than they do."""
_TIMEOUT_MS = 5_000

_UNWRITABLE = (apsw.CantOpenError, apsw.FullError, apsw.IOError, apsw.ReadOnlyError)
"""The index cannot be written where it lies; what it has can be asked for all the same."""

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
"""Scripts that put no blanks between words: Han, kana, Hangul. Made into a pattern when it is needed."""

_BLOB = re.compile(r"[A-Za-z0-9+/=_-]{200,}")
"""Encoded images and keys: no words in them."""


def split_unspaced(text: str) -> str:
    """Write runs of unspaced script as overlapping pairs, so that a word index can find any part."""
    return text if text.isascii() else re.sub(_UNSPACED, _pairs, text)


def _pairs(match: re.Match[str]) -> str:
    run = match[0]
    return " " + " ".join(run[i : i + 2] for i in range(len(run))) + " "


def searchable(
    content: str | None, parts: str | None, calls: str | None, tool_name: str | None
) -> str:
    """The text of a message that a person may look for; what makes no sense has none."""
    pieces = [tool_name or "", content or ""]
    try:
        if parts is not None:
            pieces += texts(decode(parts))
        if calls is not None:
            pieces += [f"{name} {arguments}" for name, arguments in _calls(decode(calls))]
    except (msgspec.DecodeError, RecursionError):
        pass  # an imported file may hold anything; one odd message must not keep the others from us
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
    """Keeps the index behind the store, and answers queries on it."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._place: Path | str = _nameless() if database.in_memory else index_path(database.path)
        self._lock = threading.Lock()
        """Held by whoever changes the index; who asks does not need it."""
        self._conn: apsw.Connection | None = None
        self._file: tuple[int, int] | None = None
        """Which file that connection has open."""
        self._askers = Readers(self._open_asker, database.path)
        self._frozen = False
        """The file is only read; what it does not have yet is not found."""
        self._stirred = threading.Event()
        self._closed = threading.Event()
        self._thread: Thread | None = None
        self._beginning = threading.Lock()

    # -- following the store -------------------------------------------------------------------

    def stir(self) -> None:
        """There is something new; called after a commit, costs nothing, never waits."""
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
            except RuntimeError as error:  # too many; what was written is on disk, and that is told
                logger.warning("no thread for the search index; a search catches up: %s", error)
                self._stirred.clear()  # the next write tries again
            else:
                self._thread = thread

    def _follow(self) -> None:
        while not self._closed.is_set():
            self._stirred.wait()
            self._closed.wait(_PAUSE_S)  # lets a burst of messages become one batch
            self._stirred.clear()  # before we look at _closed again: close() sets both
            try:
                self._catch_up_at_leisure()
            except Exception:
                logger.exception("the search index fell behind; it will try again")

    def _catch_up_at_leisure(self) -> None:
        """Leave processor and disk to those who write; whoever searches catches up at once.

        Every process that writes does this: what the others index while one rests makes its next rest
        longer, so that all of them together take no more than one would.
        """
        began, newest, at_it = time.monotonic(), 0, 1
        while self._catch_up_once():
            took, reached = time.monotonic() - began, self.ask(_watermark)
            before, newest = newest, self._db.run_on_reader(_newest)
            rest = _LEISURE * at_it if newest != before else 1
            self._closed.wait(rest * took)
            others = (self.ask(_watermark) - reached) // _BATCH
            began, at_it = time.monotonic(), 1 + min(max(others, 0), _MOST_OTHERS)

    def catch_up(self) -> int:
        """Index everything that is stored by now; returns how many messages that were."""
        total = 0
        while self.ask(_is_behind) and (done := self._catch_up_once()):
            total += done
        return total

    def _catch_up_once(self) -> int:
        """Index one batch; returns how many messages were added or forgotten."""
        with self._lock:
            if self._closed.is_set():
                return 0
            try:
                return self._advance(self._opened())
            except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError):
                logger.warning("the search index %s is unusable and is built anew", self._place)
                self._discard()
                return self._advance(self._opened())
            except apsw.BusyError:
                return 0  # another process is at it
            except _UNWRITABLE as error:
                logger.warning("the search index %s cannot be written: %s", self._place, error)
                return 0

    def _advance(self, conn: apsw.Connection) -> int:
        if self._frozen:
            return 0
        conn.execute("BEGIN IMMEDIATE")
        try:
            watermark = _state(conn, "watermark")
            batch, forgotten, mark = self._db.run_on_snapshot(lambda c: _news(c, watermark))
            _add(conn, batch)
            conn.executemany("DELETE FROM words WHERE rowid = ?", [(id_,) for id_ in forgotten])
            conn.executemany("DELETE FROM trigrams WHERE rowid = ?", [(id_,) for id_ in forgotten])
            if batch:
                conn.execute("UPDATE state SET value = ? WHERE key = 'watermark'", (batch[-1][0],))
                conn.execute("UPDATE state SET value = ? WHERE key = 'mark'", (mark,))
            conn.execute("COMMIT")
        except BaseException:
            if conn.in_transaction:  # a full disk ends it by itself
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
        """Run a query: `main` is the store, `search` the index; a broken index is built anew first."""
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
        """The same, after everything that is stored by now has been indexed."""
        behind = object()
        answer = self.ask(lambda c: behind if _is_behind(c) else fn(c))
        if answer is behind:
            self.catch_up()
            return self.ask(fn)
        return cast("T", answer)

    def rebuild(self) -> int:
        """Throw the index away and build it from the messages."""
        with self._lock:
            self._discard()
        return self.catch_up()

    def _renew(self) -> None:
        """The index we have open is of no use: take what somebody else has put there, or build it."""
        with self._lock:
            if self._is_at_its_place():
                self._discard()
        self.catch_up()

    def optimize(self) -> None:
        """Merge what the index has written in pieces; smaller and faster, but a long write."""
        with self._lock:
            conn = self._opened()
            for table in ("words", "trigrams"):
                conn.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
            conn.execute("VACUUM")

    def lag(self) -> int:
        """How many messages are stored but not indexed yet."""
        return self.ask(
            lambda c: c.execute(f"SELECT count(*) FROM main.messages WHERE id > {_WATERMARK}").get
        )

    def close(self) -> None:
        """Stop following; what is missing is added the next time."""
        if self._db.is_forked:
            return
        self._closed.set()
        self._stirred.set()
        if self._thread is not None:
            self._thread.join()
        self._askers.close()
        with self._lock:
            self._let_go()

    # -- the file ------------------------------------------------------------------------------

    def _open_asker(self) -> apsw.Connection:
        with self._lock:
            self._opened()
            conn = self._db.open_reader()
            conn.execute("ATTACH ? AS search", (str(self._place),))
        conn.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # see _let_go_of_replaced
        return conn

    def _opened(self) -> apsw.Connection:
        replaced = self._conn is not None and not self._is_at_its_place()
        if self._conn is not None and replaced:
            self._let_go_of_replaced(self._conn)
        if self._conn is None:
            self._conn = self._open_frozen() if self._db.read_only else self._open_to_write()
            if self._is_foreign(self._conn):
                if replaced and _state(self._conn, "version") > VERSION:
                    self._let_go()  # a newer Hermes runs beside us: neither takes the other's away
                    self._place = _nameless()
                else:
                    self._discard()
                self._conn = self._open_to_write()
        return self._conn

    def _is_at_its_place(self) -> bool:
        try:
            return isinstance(self._place, str) or identity(self._place) == self._file
        except OSError:
            return True  # nothing is known: a folder one may not enter

    def _let_go_of_replaced(self, conn: apsw.Connection) -> None:
        """Whoever closes a file last removes its log by name, and that name is the new file's now."""
        logger.warning(
            "the search index %s was removed or replaced; it is opened anew", self._place
        )
        conn.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._let_go()

    def _open_frozen(self) -> apsw.Connection:
        """For a store that is not to be written: the index as it is, else one in memory."""
        if isinstance(self._place, Path):
            try:
                self._file = identity(self._place)
                conn = connect(self._place, apsw.SQLITE_OPEN_READONLY)
                self._frozen = not self._is_foreign(conn)
                if self._frozen:
                    return conn
                conn.close()
            except apsw.Error:
                pass  # there is none, or it cannot be read
            self._place = _nameless()
        return self._open()

    def _open_to_write(self) -> apsw.Connection:
        """In its file; where that cannot be written in memory, built for this process alone."""
        if isinstance(self._place, Path):
            try:
                self._place.parent.stat()  # a home that was moved away is not made again
                make_writable(self._place, *beside(self._place))
                touch_private(self._place)
                self._file = identity(self._place)
                return self._open()
            except (OSError, *_UNWRITABLE) as error:
                logger.warning("the search index %s cannot be written: %s", self._place, error)
                self._place = _nameless()
        return self._open()

    def _open(self) -> apsw.Connection:
        conn = connect(self._place)
        conn.set_busy_timeout(_TIMEOUT_MS)
        conn.pragma("journal_mode", "wal")
        conn.pragma("synchronous", "normal")  # what a power cut takes is indexed again
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
        """Whether the index belongs to another store, another version, or a later state of ours."""
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

    def _let_go(self) -> None:
        self._askers.renew()
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def _discard(self) -> None:
        self._let_go()
        if isinstance(self._place, Path) and not self._db.read_only:
            try:
                for file in (self._place, *beside(self._place)):
                    file.unlink(missing_ok=True)
            except OSError as error:
                logger.warning("the search index %s cannot be removed: %s", self._place, error)
                self._place = _nameless()


def _nameless() -> str:
    return in_memory(f"hermes-{os.urandom(8).hex()}")


def index_path(database: Path) -> Path:
    """The index lies beside its store: state.db and state-search.db."""
    return database.with_name(f"{database.stem}-search{database.suffix}")


def _state(conn: apsw.Connection, key: str) -> Any:  # noqa: ANN401 -- a number or a text
    return conn.execute("SELECT value FROM state WHERE key = ?", (key,)).get


_WATERMARK = "(SELECT value FROM search.state WHERE key = 'watermark')"

IS_BEHIND = (
    f"(EXISTS (SELECT 1 FROM main.messages WHERE id > {_WATERMARK})"
    " OR EXISTS (SELECT 1 FROM main.forgotten))"
)
"""In a query for `SearchIndex.ask`: whether there is anything to add or to forget."""


def _is_behind(conn: apsw.Connection) -> bool:
    return bool(conn.execute(f"SELECT {IS_BEHIND}").get)


def _watermark(conn: apsw.Connection) -> int:
    """The last message that is indexed."""
    return conn.execute(f"SELECT {_WATERMARK}").get


def _newest(store: apsw.Connection) -> int:
    """The last message that is stored."""
    return store.execute("SELECT coalesce(max(id), 0) FROM messages").get


def _news(conn: apsw.Connection, watermark: int) -> tuple[list[_Texts], list[int], float | None]:
    """What to add, what to forget, and when the last of the new messages was written."""
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
    said = [(id_, text) for id_, *columns in batch if (text := searchable(*columns))]
    conn.executemany("INSERT INTO trigrams (rowid, text) VALUES (?, ?)", said)
    conn.executemany(
        "INSERT INTO words (rowid, text) VALUES (?, ?)",
        [(id_, split_unspaced(text)) for id_, text in said],
    )
