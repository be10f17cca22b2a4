"""The bare limit: SQLite without Hermes, on a file that Hermes' own migrations made."""

import threading
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

import apsw

from hermes_state.engines.sqlite import connection, schema

INSERT = (
    "INSERT INTO messages (session_id, role, content, parts, tool_calls, tool_call_id, tool_name,"
    " timestamp, token_count, finish_reason, reasoning, platform_message_id, extra, kind, origin_id,"
    " observed, active) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)


def store(path: Path, sessions: int = 1) -> apsw.Connection:
    """A new store with some sessions, opened with the pragmas of Hermes."""
    connection.create_file(path)
    conn = reopened(path)
    schema.migrate(conn)
    add_sessions(conn, (f"s{number}" for number in range(sessions)))
    return conn


def reopened(path: Path) -> apsw.Connection:
    """The same file again, waiting for locks as SQLite itself does."""
    conn = connection.open_writer(path, 30.0)
    conn.set_busy_timeout(30_000)
    return conn


def add_sessions(conn: apsw.Connection, ids: Iterable[str]) -> None:
    now = time.time()
    with conn:
        conn.executemany(
            "INSERT INTO sessions (id, conversation_id, source, started_at, last_active_at)"
            " VALUES (?1, ?1, 'cli', ?2, ?2)",
            ((id_, now) for id_ in ids),
        )


def row(session_id: str, text: str, role: str = "user", at: float | None = None) -> tuple:
    """The bindings of one message."""
    at = time.time() if at is None else at
    return (session_id, role, text, None, None, None, None, at, *[None] * 5, "message", None, 0, 1)


def append(conn: apsw.Connection, session_id: str, text: str) -> None:
    """One durable message: begin, insert, commit."""
    conn.execute("BEGIN IMMEDIATE")
    conn.execute(INSERT, row(session_id, text))
    conn.execute("COMMIT")


class SharedCommits:
    """Threads that share one connection and its commits: group commit as written by hand.

    A thread queues its row. The one that gets the lock commits every queued row; the others find
    theirs committed.
    """

    def __init__(self, conn: apsw.Connection) -> None:
        self._conn = conn
        self._lock = threading.Lock()
        self._queue: deque[tuple[tuple, list[bool]]] = deque()

    def append(self, session_id: str, text: str) -> None:
        """Store one message durably."""
        is_committed: list[bool] = []
        self._queue.append((row(session_id, text), is_committed))
        with self._lock:
            if is_committed:
                return
            batch = [self._queue.popleft() for _ in range(len(self._queue))]
            self._conn.execute("BEGIN IMMEDIATE")
            for bindings, _ in batch:
                self._conn.execute(INSERT, bindings)
            self._conn.execute("COMMIT")
            for _, flag in batch:
                flag.append(True)


def fill(conn: apsw.Connection, messages: Iterable[tuple], portion: int = 20_000) -> None:
    """Store many messages quickly, one transaction per portion."""
    pending: list[tuple] = []
    for message in messages:
        pending.append(message)
        if len(pending) == portion:
            _insert(conn, pending)
            pending = []
    _insert(conn, pending)


def _insert(conn: apsw.Connection, messages: list[tuple]) -> None:
    with conn:
        conn.executemany(INSERT, messages)
