"""Checkpoints: made beside the writers, and the log does not grow whatever happens to them."""

import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from hermes_state import SessionDB
from hermes_state.engines.sqlite import checkpoint
from hermes_state.engines.sqlite.checkpoint import Checkpoints
from hermes_state.engines.sqlite.connection import open_writer
from hermes_state.engines.sqlite.database import Database

TIMEOUT_S = 20
TEXT = "x" * 3000
PAGE = 4096


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "PAGES", 50)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def store(path: Path) -> Iterator[SessionDB]:
    with SessionDB(path) as store:
        store.create_session("s", "cli")
        yield store


def log_pages(path: Path) -> float:
    return path.with_name(path.name + "-wal").stat().st_size / PAGE


def fill(store: SessionDB, messages: int) -> None:
    for _ in range(messages):
        store.append_message("s", "user", TEXT)


def test_the_log_of_a_writer_that_never_rests_stays_short(store: SessionDB, path: Path) -> None:
    fill(store, 2_000)
    assert log_pages(path) < 2_000
    assert path.stat().st_size > 1_000 * PAGE


def test_a_thread_makes_the_checkpoints_and_a_writer_only_what_is_left(
    store: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    makers: list[tuple[str, int]] = []
    copy = checkpoint._copy

    def noted(conn: apsw.Connection, mode: int) -> bool:
        makers.append((threading.current_thread().name, mode))
        return copy(conn, mode)

    monkeypatch.setattr(checkpoint, "_copy", noted)
    expected = {
        ("hermes-checkpoint", apsw.SQLITE_CHECKPOINT_PASSIVE),
        ("hermes-writer", apsw.SQLITE_CHECKPOINT_FULL),
    }
    for _ in range(100):
        fill(store, 100)
        if set(makers) == expected and len(makers) >= 4:
            return
    assert set(makers) == expected


def test_without_a_second_connection_a_writer_makes_the_checkpoint(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_database: Database) -> apsw.Connection:
        raise apsw.CantOpenError("too many open files")

    monkeypatch.setattr(Database, "_open_another", refuse)
    with SessionDB(path) as store:
        store.create_session("s", "cli")
        fill(store, 2_000)
        assert log_pages(path) < 2_000
    assert "a writer runs it" in caplog.text


def test_without_a_thread_a_writer_makes_the_checkpoint(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "hermes-checkpoint":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with SessionDB(path) as store:
        store.create_session("s", "cli")
        fill(store, 2_000)
        assert log_pages(path) < 2_000
    assert "a writer runs it" in caplog.text


def test_a_checkpoint_that_fails_is_tried_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with SessionDB(path):
        pass

    class Failing:
        """A connection on a disk that is full."""

        def wal_checkpoint(self, **_how: object) -> None:
            raise apsw.FullError("disk is full")

        def close(self) -> None:
            pass

    conn = open_writer(path, 5)
    checkpoints = Checkpoints(conn, lambda _times: False, Failing)  # type: ignore[arg-type]
    tried = threading.Event()
    begin = checkpoints._begin

    def noted() -> None:
        tried.set()
        begin()

    checkpoints._begin = noted  # type: ignore[method-assign]
    for _ in range(2):
        tried.clear()
        for _ in range(200_000):
            conn.execute("INSERT OR REPLACE INTO meta VALUES ('k', ?)", (TEXT * 4,))
            checkpoints.committed()
            if tried.is_set():
                break
        assert tried.is_set()
    checkpoints.close()
    conn.close()
    assert "disk is full" in caplog.text


def test_closing_waits_for_a_checkpoint_and_ends_the_thread(path: Path) -> None:
    with SessionDB(path) as store:
        store.create_session("s", "cli")
        fill(store, 200)
        running = [t for t in threading.enumerate() if t.name == "hermes-checkpoint"]
        assert len(running) == 1
    running[0].join(TIMEOUT_S)
    assert not running[0].is_alive()
    assert not path.with_name(path.name + "-wal").exists()
