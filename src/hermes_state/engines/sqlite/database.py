"""Open a database and run functions of a transaction on its writer and readers."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import apsw

from hermes_core.errors import (
    SessionNotFoundError,
    StoreError,
    StoreReadOnlyError,
    StoreVersionError,
)
from hermes_state.engines.sqlite import connection, schema
from hermes_state.engines.sqlite.checkpoint import Checkpoints
from hermes_state.engines.sqlite.presence import Presence
from hermes_state.engines.sqlite.readers import Readers
from hermes_state.engines.sqlite.tx import SqliteTx
from hermes_state.engines.sqlite.write_fairness import WriteFairness
from hermes_state.engines.sqlite.writer import Writer
from hermes_state.store import Transactional, Tx, is_deferrable, is_one_statement

P = ParamSpec("P")
T = TypeVar("T")


class Database:
    """Opens, checks and migrates a store file and runs functions on it."""

    def __init__(
        self, path: Path, *, read_only: bool, busy_timeout_s: float, vfs: str | None = None
    ) -> None:
        self.path = path
        self.read_only = read_only
        self.in_memory = path == connection.MEMORY
        self.place = (
            connection.in_memory(f"hermes-{os.urandom(8).hex()}") if self.in_memory else path
        )
        self.on_commit: Callable[[], None] = lambda: None
        """Called after every commit, on the thread of its caller."""
        self._process = os.getpid()
        self._busy_timeout_s = busy_timeout_s
        self._vfs = vfs
        connection.check_library(connection.sqlite_version())
        self._writer: Writer | None = None
        self._presence: Presence | None = None
        try:
            with connection.translated(path):
                if read_only:
                    self._open_frozen()
                else:
                    self._open()
        except BaseException:
            self._leave()
            raise

    def _open(self) -> None:
        if not self.in_memory:
            exists = connection.check_file(self.path)
            self._presence = Presence(self.path, self._busy_timeout_s, read_only=False)
            if not exists:
                connection.create_file(self.path)
            if os.access(self.path, os.W_OK):
                connection.make_writable(*connection.beside(self.path))
        conn = connection.open_writer(self.place, self._busy_timeout_s, self._vfs)
        try:
            self._refuse_newer(conn)
            schema.migrate(conn)
        except BaseException:
            conn.close()
            raise
        fairness = checkpoints = None
        if not self.in_memory:
            fairness = WriteFairness(self.path, self._busy_timeout_s)
            checkpoints = Checkpoints(conn, fairness.wait, self._open_another)
        if self._presence is not None:
            self._presence.remember()
        self._writer = Writer(conn, self.path, fairness, checkpoints, self._presence)
        self._readers = Readers(self.open_reader, self.path)

    def _open_another(self) -> apsw.Connection:
        return connection.open_writer(self.place, self._busy_timeout_s, self._vfs)

    def _open_frozen(self) -> None:
        if not connection.check_file(self.path):
            raise SessionNotFoundError(
                f"There is no store at {self.path}.", fix="Open it for writing once to create it."
            )
        self._presence = Presence(self.path, self._busy_timeout_s, read_only=True)
        self._readers = Readers(self.open_reader, self.path)
        self._readers.run(self._refuse_other)

    def open_reader(self) -> apsw.Connection:
        """Open another read-only connection."""
        if self.read_only:
            return connection.open_frozen(self.path, self._busy_timeout_s)
        self.check_file()  # the path may name another file now
        return connection.open_reader(self.place, self._busy_timeout_s, self._vfs)

    def check_file(self) -> None:
        """Raise StoreGoneError when the path no longer names the file that was opened."""
        if self._presence is not None and not self._presence.is_ours():
            raise connection.store_gone(self.path)

    def _refuse_newer(self, conn: apsw.Connection) -> None:
        found = schema.version_of(conn)
        if found > schema.SCHEMA_VERSION:
            raise StoreVersionError(
                f"{self.path} was written by a newer Hermes (schema {found}, "
                f"this one knows {schema.SCHEMA_VERSION}).",
                fix="Nothing was changed. Upgrade Hermes, or set HERMES_HOME to another folder.",
            )

    def _refuse_other(self, conn: apsw.Connection) -> None:
        self._refuse_newer(conn)
        if schema.version_of(conn) < schema.SCHEMA_VERSION:
            raise StoreVersionError(
                f"{self.path} was written by an older Hermes.",
                fix="Open it for writing once to upgrade it; run: hermes doctor",
            )

    # -- functions of a transaction --------------------------------------------------------------

    def write(self, fn: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` in one transaction and return when it is on disk; `fn` may run twice, see Writer."""
        return self.run_on_writer(
            lambda conn: fn(SqliteTx(conn), *args, **kwargs), deferrable=is_deferrable(fn)
        )

    def read(self, fn: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` on one snapshot of the store."""
        run = self.run_on_reader if is_one_statement(fn) else self.run_on_snapshot
        return run(lambda conn: fn(SqliteTx(conn), *args, **kwargs))

    def within(self, _conversation_id: str) -> Transactional:
        """Return this database, as SQLite has one writer."""
        return self

    # -- functions of a connection ---------------------------------------------------------------

    def run_on_writer(self, fn: Callable[[apsw.Connection], T], *, deferrable: bool = False) -> T:
        """Run `fn` on the connection that writes, in one transaction."""
        self.refuse_fork()
        if self._writer is None:
            raise StoreReadOnlyError(f"{self.path} was opened read-only.")
        result = self._writer.run(fn, deferrable=deferrable)
        self.on_commit()
        return result

    def run_on_snapshot(self, fn: Callable[[apsw.Connection], T]) -> T:
        """Run `fn` on a connection that reads, in one transaction."""
        self.refuse_fork()
        if self._writer is not None and self.in_memory:  # one connection is all there is
            return self._writer.run(fn)
        return self._readers.run(fn)

    def run_on_reader(self, fn: Callable[[apsw.Connection], T]) -> T:
        """Run `fn`, which runs a single statement and so needs no transaction."""
        self.refuse_fork()
        if self._writer is not None and self.in_memory:
            return self._writer.run(fn)
        return self._readers.lend(fn)

    @property
    def is_forked(self) -> bool:
        """Return whether this process is a fork of the one that opened the database."""
        return os.getpid() != self._process

    def refuse_fork(self) -> None:
        """Raise StoreError in a forked child, which must not use connections of its parent."""
        if os.getpid() != self._process:
            raise StoreError(
                f"{self.path} was opened before this process was forked.",
                fix="Start the child anew (multiprocessing's spawn, or exec): SQLite cannot be used "
                "on both sides of a fork.",
            )

    def close(self) -> None:
        """Finish waiting writes and close every connection; do nothing in a forked child."""
        if self.is_forked:
            return
        self._readers.close()
        if self._writer is not None:
            self._writer.close()
        self._leave()

    def _leave(self) -> None:
        """Release the presence lock; after that the file may be replaced."""
        if self._presence is not None:
            self._presence.close()
