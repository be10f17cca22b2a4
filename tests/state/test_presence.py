"""A write that went into a file nobody will open again is not acknowledged."""

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_core.errors import StoreBusyError, StoreGoneError
from hermes_state import SessionDB
from hermes_state.engines.sqlite.presence import LOCK_VARIABLE, Presence
from hermes_state.ledger import messages


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    path.rename(path.with_name("old.db"))
    with SessionDB(path) as other:
        other.create_session("a", "cli")


def remove_the_log(path: Path) -> None:
    path.with_name("state.db-wal").unlink()


def remove_the_index_of_the_log(path: Path) -> None:
    path.with_name("state.db-shm").unlink()


def move_the_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


@pytest.mark.parametrize(
    "harm", [remove, replace, remove_the_log, remove_the_index_of_the_log, move_the_folder]
)
def test_a_store_that_is_taken_away_acknowledges_nothing_more(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    path = tmp_path / "home" / "state.db"
    with SessionDB(path) as store:
        store.create_session("a", "cli")
        store.append_message("a", "user", "kept")
        harm(path)
        for _ in range(2):
            with pytest.raises(StoreGoneError, match="removed or replaced while it was in use"):
                store.append_message("a", "user", "gone")


def test_other_files_in_the_folder_may_come_and_go(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as store:
        store.create_session("a", "cli")
        for number in range(5):
            (tmp_path / f"{number}").write_text("")
            store.append_message("a", "user", str(number))
            (tmp_path / f"{number}").unlink()
        with SessionDB(path) as other:
            other.append_message("a", "user", "of another")
        store.append_message("a", "user", "last")
        assert store.vacuum() >= 0
        assert store.read(messages.count, "a") == 7
        store.append_message("a", "user", "after compaction of the file")


def test_a_store_behind_a_link_is_the_file_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "home").mkdir()
    SessionDB(tmp_path / "disk" / "state.db").close()
    link = tmp_path / "home" / "state.db"
    link.symlink_to(tmp_path / "disk" / "state.db")
    with SessionDB(link) as store:
        store.create_session("a", "cli")
        (tmp_path / "disk" / "state.db").unlink()
        with pytest.raises(StoreGoneError):
            store.append_message("a", "user", "gone")


def test_without_the_lock_file_a_store_works(tmp_path: Path) -> None:
    (tmp_path / "state.db-open").mkdir()
    with SessionDB(tmp_path / "state.db") as store:
        store.create_session("a", "cli")
    Presence(tmp_path / "nowhere" / "state.db", 0.0, read_only=True).close()
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_that_cannot_be_looked_at_for_a_while_costs_no_write(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with SessionDB(home / "state.db") as store:
        store.create_session("a", "cli")
        home.rename(tmp_path / "away")
        home.symlink_to(home)  # nothing behind it can be looked at, as when a file server is away
        store.append_message("a", "user", "one")
        home.unlink()
        (tmp_path / "away").rename(home)
        store.append_message("a", "user", "two")
        assert [row["content"] for row in store.read(messages.of_session, "a")] == ["one", "two"]


@pytest.mark.parametrize("replacement", [False, True])
def test_a_store_that_is_taken_away_is_not_read_from_another_file(
    tmp_path: Path, replacement: bool
) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as store:
        for file in tmp_path.iterdir():
            file.unlink()
        if replacement:
            SessionDB(path).close()
        with pytest.raises(StoreGoneError):
            store.check_file()
        with pytest.raises(StoreGoneError):
            read_in_parallel(store, 4)


def read_in_parallel(store: SessionDB, readers: int) -> None:
    """Read inside a read, which needs a connection each."""
    if readers:
        store.read(lambda _conn: read_in_parallel(store, readers - 1))


def test_a_store_is_opened_with_the_exclusive_lock_of_the_parent_and_stays_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as store:
        store.create_session("a", "cli")
    with path.with_name("state.db-open").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        monkeypatch.setenv(LOCK_VARIABLE, str(lock.fileno()))
        with SessionDB(path) as store:
            store.append_message("a", "user", "kept")
        for value in ("", "9999", "0", "nonsense"):
            monkeypatch.setenv(LOCK_VARIABLE, value)
            with pytest.raises(StoreBusyError, match="being repaired or updated"):
                SessionDB(path, busy_timeout_s=0.1)


def test_a_lock_that_the_parent_only_claims_to_have_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path), path.with_name("state.db-open").open("rb") as lock:
        monkeypatch.setenv(LOCK_VARIABLE, str(lock.fileno()))
        with SessionDB(path):
            pass
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
