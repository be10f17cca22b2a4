"""Group commit: many writers, one fsync; a failing function fails alone."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, cast

import apsw
import pytest

from hermes_core.errors import StoreError, StoreFullError, StoreMemoryError
from hermes_state import SessionDB
from hermes_state.engines.sqlite.writer import Writer
from hermes_state.ledger import messages

TIMEOUT_S = 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    conn = apsw.Connection(str(tmp_path / "w.db"))
    conn.pragma("journal_mode", "wal")
    conn.execute("CREATE TABLE items (name TEXT)")
    conn.close()
    return tmp_path / "w.db"


@contextmanager
def _writing(path: Path) -> Generator[Writer]:
    conn = apsw.Connection(str(path))
    conn.pragma("synchronous", "full")
    writer = Writer(conn, path)
    try:
        yield writer
    finally:
        writer.close()


def _put(name: str) -> Callable[[apsw.Connection], str]:
    def put(conn: apsw.Connection) -> str:
        conn.execute("INSERT INTO items VALUES (?)", (name,))
        return name

    return put


def _stored(path: Path) -> list[str]:
    conn = apsw.Connection(str(path))
    names = [name for (name,) in conn.execute("SELECT name FROM items ORDER BY rowid")]
    conn.close()
    return names


def _together(writer: Writer, functions: list[Callable[[apsw.Connection], Any]]) -> list[Any]:
    """Run the functions in one commit: all wait while the first holds the writer."""
    results: list[Any] = [None] * len(functions)
    inside, go_on = threading.Event(), threading.Event()

    def hold(_conn: apsw.Connection) -> None:
        inside.set()
        assert go_on.wait(TIMEOUT_S)

    def run(number: int) -> None:
        try:
            results[number] = writer.run(functions[number])
        except BaseException as error:  # noqa: BLE001 -- it is the result
            results[number] = error

    first = threading.Thread(target=writer.run, args=(hold,))
    first.start()
    assert inside.wait(TIMEOUT_S)
    threads: list[threading.Thread] = []
    for number in range(len(functions)):
        threads.append(threading.Thread(target=run, args=(number,)))
        threads[-1].start()
        while len(writer._waiting) <= number and threads[-1].is_alive():
            pass  # they queue up in the order of the list
    go_on.set()
    for thread in [first, *threads]:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
    return results


def _counted_commits(writer: Writer) -> list[str]:
    """The commits that are made from now on."""
    commits: list[str] = []

    def trace(_cursor: apsw.Cursor, sql: str, _bindings: object) -> bool:
        if sql == "COMMIT":
            commits.append(sql)
        return True

    writer.conn.exec_trace = trace
    return commits


def _in_a_thread(job: Callable[[], Any]) -> Any:
    """What comes of a job in a thread: the main thread has its own way to write."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(job()))
    thread.start()
    thread.join(TIMEOUT_S)
    return results[0]


def _fails(conn: apsw.Connection) -> None:
    _put("of the failing one")(conn)
    raise ValueError("no")


def _rolls_back(conn: apsw.Connection) -> None:
    _put("of the one that rolled back")(conn)
    conn.execute("ROLLBACK")


def _rolls_back_and_raises(conn: apsw.Connection) -> None:
    _rolls_back(conn)
    raise ValueError("no")


def _is_too_big(conn: apsw.Connection) -> None:
    conn.pragma("max_page_count", conn.pragma("page_count") + 2)
    try:
        conn.execute("INSERT INTO items VALUES (zeroblob(1000000))")
    finally:
        conn.pragma("max_page_count", 1_000_000)


class TestAFailingFunction:
    def test_fails_alone_and_the_others_of_its_commit_are_stored(self, path: Path) -> None:
        with _writing(path) as writer:
            results = _together(writer, [_put("a"), _fails, _put("b")])
        assert isinstance(results[1], ValueError)
        assert [results[0], results[2]] == ["a", "b"]
        assert _stored(path) == ["a", "b"]

    def test_fails_alone_when_it_is_the_first(self, path: Path) -> None:
        with _writing(path) as writer:
            with pytest.raises(ValueError, match="no"):
                writer.run(_fails)
            results = _together(writer, [_fails, _fails, _put("a")])
        assert isinstance(results[0], ValueError)
        assert _stored(path) == ["a"]

    @pytest.mark.parametrize("bad", [_rolls_back, _rolls_back_and_raises, _is_too_big])
    def test_that_loses_the_transaction_fails_alone(
        self, path: Path, bad: Callable[[apsw.Connection], None]
    ) -> None:
        with _writing(path) as writer:
            results = _together(writer, [_put("a"), bad, _put("b"), _put("c")])
        assert isinstance(results[1], Exception)
        assert _stored(path) == ["a", "b", "c"]

    @pytest.mark.parametrize("bad", [_rolls_back, _rolls_back_and_raises, _is_too_big])
    def test_that_loses_the_transaction_fails_alone_as_the_first(
        self, path: Path, bad: Callable[[apsw.Connection], None]
    ) -> None:
        with _writing(path) as writer:
            with pytest.raises(Exception, match=r"."):
                writer.run(bad)
            assert writer.run(_put("a")) == "a"
        assert _stored(path) == ["a"]

    def test_that_is_too_big_says_that_the_disk_is_full(self, path: Path) -> None:
        with _writing(path) as writer, pytest.raises(StoreFullError):
            writer.run(_is_too_big)

    def test_that_ends_the_transaction_itself_doubles_nothing(self, path: Path) -> None:
        def commits(conn: apsw.Connection) -> None:
            conn.execute("COMMIT")

        with _writing(path) as writer:
            results = _together(writer, [_put("a"), commits, _put("b")])
        assert isinstance(results[1], Exception)
        assert _stored(path) == ["a", "b"]

    def test_keeps_its_own_error_as_the_cause(self, path: Path) -> None:
        with _writing(path) as writer, pytest.raises(StoreError) as caught:
            writer.run(lambda c: c.execute("nonsense"))
        assert isinstance(caught.value.__cause__, apsw.SQLError)


class TestWhatRidesAlong:
    def test_waits_for_a_commit_of_somebody_else(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("hermes_state.engines.sqlite.writer._DEFER_TIMEOUT_S", float(TIMEOUT_S))
        with _writing(path) as writer:
            commits = _counted_commits(writer)
            rider = threading.Thread(target=lambda: writer.run(_put("a"), deferrable=True))
            rider.start()
            while not writer._waiting:
                pass  # it is in line
            assert not commits
            _in_a_thread(lambda: writer.run(_put("b")))
            rider.join(TIMEOUT_S)
            assert not rider.is_alive()
            assert len(commits) == 1
            writer.conn.exec_trace = None
        assert _stored(path) == ["a", "b"]

    def test_is_on_disk_by_itself_when_nobody_comes(self, path: Path) -> None:
        with _writing(path) as writer:
            assert _in_a_thread(lambda: writer.run(_put("a"), deferrable=True)) == "a"
            assert _stored(path) == ["a"]

    def test_is_on_disk_before_the_end(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("hermes_state.engines.sqlite.writer._DEFER_TIMEOUT_S", float(TIMEOUT_S))
        with _writing(path) as writer:
            rider = threading.Thread(target=lambda: writer.run(_put("a"), deferrable=True))
            rider.start()
            while not writer._waiting:
                pass
        rider.join(TIMEOUT_S)
        assert _stored(path) == ["a"]

    @pytest.mark.parametrize("patience_s", [0.0, 0.0005, 0.01])
    def test_neither_hangs_nor_overtakes_among_others(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, patience_s: float
    ) -> None:
        monkeypatch.setattr("hermes_state.engines.sqlite.writer._DEFER_TIMEOUT_S", patience_s)
        with _writing(path) as writer:

            def write(thread: int) -> None:
                for number in range(60):
                    writer.run(_put(f"{thread} {number}"), deferrable=(thread + number) % 3 > 0)

            threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(TIMEOUT_S)
            assert not any(thread.is_alive() for thread in threads)
        stored = _stored(path)
        assert len(stored) == 8 * 60
        for thread in range(8):
            own = [name for name in stored if name.startswith(f"{thread} ")]
            assert own == [f"{thread} {number}" for number in range(60)]


class TestACommit:
    def test_is_shared_by_sixteen_threads(self, path: Path) -> None:
        everybody = threading.Barrier(16)
        with _writing(path) as writer:
            commits = _counted_commits(writer)

            def write(thread: int) -> None:
                everybody.wait(TIMEOUT_S)
                for number in range(50):
                    writer.run(_put(f"{thread} {number}"))

            threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(TIMEOUT_S)
            assert not any(thread.is_alive() for thread in threads)
            writer.conn.exec_trace = None
        stored = _stored(path)
        assert len(stored) == len(set(stored)) == 16 * 50
        for thread in range(16):
            own = [name for name in stored if name.startswith(f"{thread} ")]
            assert own == [f"{thread} {number}" for number in range(50)]
        assert len(commits) < 16 * 50 / 2

    def test_that_cannot_be_made_is_tried_one_by_one(self, tmp_path: Path) -> None:
        """A foreign key that is checked only at the commit fails the function it belongs to."""
        with SessionDB(tmp_path / "s.db") as store:
            store.create_session("s", "cli")
            writer = store._database._writer
            assert writer is not None

            def orphan(conn: apsw.Connection) -> None:
                conn.pragma("defer_foreign_keys", "on")
                conn.execute(
                    "INSERT INTO messages (session_id, role, timestamp) VALUES ('none', 'user', 0)"
                )

            def say(text: str) -> Callable[[apsw.Connection], Any]:
                return lambda c: c.execute(
                    "INSERT INTO messages (session_id, role, content, timestamp)"
                    " VALUES ('s', 'user', ?, 0)",
                    (text,),
                )

            results = _together(writer, [say("a"), orphan, say("b")])
            assert isinstance(results[1], StoreError)
            assert [message["content"] for message in store.read(messages.of_session, "s")] == [
                "a",
                "b",
            ]
            assert store.check() == []


class TestAWrite:
    def test_inside_a_write_is_refused(self, path: Path) -> None:
        with _writing(path) as writer:
            with pytest.raises(StoreError, match="inside a write"):
                writer.run(lambda _c: writer.run(_put("a")))
            assert writer.run(_put("b")) == "b"
        assert _stored(path) == ["b"]

    def test_after_the_end_is_refused(self, path: Path) -> None:
        with _writing(path) as writer:
            writer.run(_put("a"))
        with pytest.raises(StoreError, match="closed"):
            writer.run(_put("b"))
        writer.close()
        assert _stored(path) == ["a"]

    def test_of_another_thread_is_finished_before_the_end(self, path: Path) -> None:
        results: list[str] = []
        with _writing(path) as writer:
            inside, go_on = threading.Event(), threading.Event()

            def slow(conn: apsw.Connection) -> str:
                inside.set()
                assert go_on.wait(TIMEOUT_S)
                return _put("a")(conn)

            thread = threading.Thread(target=lambda: results.append(writer.run(slow)))
            thread.start()
            assert inside.wait(TIMEOUT_S)
            closing = threading.Thread(target=writer.close)
            closing.start()
            go_on.set()
            thread.join(TIMEOUT_S)
            closing.join(TIMEOUT_S)
        assert results == ["a"]
        assert _stored(path) == ["a"]

    def test_that_waits_for_another_process_succeeds_when_the_lock_is_free(
        self, path: Path
    ) -> None:
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        with _writing(path) as writer:
            writer.conn.set_busy_timeout(TIMEOUT_S * 1000)
            waiting = threading.Thread(target=writer.run, args=(_put("a"),))
            waiting.start()
            while not writer._leader and waiting.is_alive():
                pass
            other.execute("COMMIT")
            waiting.join(TIMEOUT_S)
            assert not waiting.is_alive()
        other.close()
        assert _stored(path) == ["a"]

    def test_that_cannot_have_the_lock_says_so_and_the_next_one_works(self, path: Path) -> None:
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        with _writing(path) as writer:
            with pytest.raises(StoreError, match="locked"):
                writer.run(_put("a"))
            other.execute("COMMIT")
            writer.run(_put("b"))
        other.close()
        assert _stored(path) == ["b"]


@contextmanager
def _interrupted_while(armed: list[bool]) -> Generator[None]:
    """Raise KeyboardInterrupt in the main thread about every millisecond, while it is armed."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if armed[0]:
            armed[0] = False
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_function_that_releases_a_savepoint_it_did_not_make_fails_alone(path: Path) -> None:
    def releases(conn: apsw.Connection) -> None:
        conn.execute("RELEASE job")

    with _writing(path) as writer:
        _, failed, last = _together(writer, [_fails, releases, _put("one")])
    assert isinstance(failed, StoreError) and last == "one"
    assert _stored(path) == ["one"]


def test_an_interrupted_main_thread_neither_hangs_nor_loses_nor_doubles(path: Path) -> None:
    armed, acknowledged, interrupted = [False], list[str](), 0
    with _writing(path) as writer:

        def write(thread: int) -> None:
            for number in range(200):
                writer.run(_put(f"{thread} {number}"))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        with _interrupted_while(armed):
            for number in range(600):
                try:
                    armed[0] = True
                    name = writer.run(_put(f"main {number}"))
                    armed[0] = False
                    acknowledged.append(name)
                except KeyboardInterrupt:
                    interrupted += 1
        for thread in threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()
    stored = _stored(path)
    assert len(stored) == len(set(stored))
    assert interrupted
    assert set(acknowledged) <= set(stored)
    assert len([name for name in stored if not name.startswith("main")]) == 4 * 200
    numbers = [int(name.split()[1]) for name in stored if name.startswith("main")]
    assert numbers == sorted(numbers)


_PROCESS = """
import sys
from hermes_state import SessionDB
with SessionDB(sys.argv[1]) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    store.create_session(sys.argv[2], "cli")
    for number in range(150):
        store.append_message(sys.argv[2], "user", str(number))
"""


def test_processes_that_write_at_once_get_no_error_and_lose_nothing(tmp_path: Path) -> None:
    database = tmp_path / "s.db"
    names = ["one", "two", "three"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _PROCESS, str(database), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:  # all are open: let go
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
    with SessionDB(database) as store:
        for name in names:
            contents = [message["content"] for message in store.read(messages.of_session, name)]
            assert contents == [str(number) for number in range(150)]
        assert store.check() == []


class _WithoutMemory:
    """A connection that has no memory for one statement, and for one ROLLBACK after it."""

    def __init__(self, conn: apsw.Connection, statement: str) -> None:
        self._conn = conn
        self._missing = [statement, "ROLLBACK"]

    def execute(self, sql: str, *bindings: Any) -> apsw.Cursor:
        if self._missing and sql == self._missing[0]:
            del self._missing[0]
            raise MemoryError
        return self._conn.execute(sql, *bindings)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"])
def test_a_writer_without_memory_tells_who_waits_and_goes_on(path: Path, statement: str) -> None:
    with _writing(path) as writer:
        conn = writer.conn
        writer.conn = cast("apsw.Connection", _WithoutMemory(conn, statement))
        job, error = (_put("one"), StoreMemoryError)
        if statement == "ROLLBACK":
            job, error = (_fails, ValueError)
        with pytest.raises(error):
            writer.run(job)
        writer.conn = conn
        results: list[str] = []
        thread = threading.Thread(
            target=lambda: results.append(writer.run(_put("two"))), daemon=True
        )
        thread.start()
        thread.join(TIMEOUT_S)
        assert results == ["two"]
    assert _stored(path) == ["two"]
