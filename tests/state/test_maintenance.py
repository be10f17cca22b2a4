"""Upkeep: what goes, what stays, and that nobody waits long for it."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_core import clock
from hermes_core.errors import StoreError, StoreReadOnlyError, UsageError
from hermes_state import SessionDB
from hermes_state.ledger import lineage, listing, messages, sessions

DAY = 86_400.0
NOW = 1_800_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionDB]:
    with SessionDB(tmp_path / "state.db") as store:
        yield store


def conversation(store: SessionDB, name: str, *, age_days: float, ended: bool = True) -> None:
    with clock.replaced(lambda: NOW - age_days * DAY):
        store.create_session(name, "tui")
        store.append_message(name, "user", f"hello from {name}")
        if ended:
            store.end_session(name, "tui_close")


def test_prune_takes_only_what_is_old_and_ended_and_not_put_away(store: SessionDB) -> None:
    conversation(store, "old", age_days=100)
    conversation(store, "open", age_days=100, ended=False)
    conversation(store, "young", age_days=10)
    conversation(store, "kept", age_days=100)
    store.write(sessions.set_archived, "kept", True)
    with clock.replaced(lambda: NOW):
        assert [row["id"] for row in store.list_prune_candidates()] == ["old"]
        assert store.prune_sessions() == 1
        assert store.prune_sessions() == 0
    assert store.get_session("old") is None
    assert all(store.get_session(name) for name in ("open", "young", "kept"))


def test_prune_takes_a_compacted_conversation_as_a_whole(store: SessionDB) -> None:
    conversation(store, "root", age_days=120, ended=False)
    with clock.replaced(lambda: NOW - 110 * DAY):
        tip = store.write(lineage.rotate, "root", [{"role": "user", "content": "summary"}])
        store.end_session(tip, "tui_close")
    with clock.replaced(lambda: NOW):
        assert store.prune_sessions() == 1
    assert store.read(listing.stats)["sessions"] == 0


def test_a_lineage_whose_tip_is_fresh_is_not_pruned(store: SessionDB) -> None:
    conversation(store, "root", age_days=120, ended=False)
    with clock.replaced(lambda: NOW):
        store.write(lineage.rotate, "root", [])
        assert store.prune_sessions() == 0
    assert store.get_session("root") is not None


@pytest.mark.parametrize("days", [0, -3])
def test_an_age_of_nothing_is_refused(store: SessionDB, days: float) -> None:
    with pytest.raises(UsageError):
        store.prune_sessions(days)


def test_ghosts_go_and_everything_with_a_word_or_a_title_stays(store: SessionDB) -> None:
    with clock.replaced(lambda: NOW - 2 * DAY):
        for name, source in (("ghost", "tui"), ("titled", "tui"), ("open", "tui"), ("cli", "cli")):
            store.create_session(name, source)
        store.set_session_title("titled", "A title")
        for name in ("ghost", "titled", "cli"):
            store.end_session(name, "tui_close")
        conversation(store, "spoken", age_days=2)
    with clock.replaced(lambda: NOW - 0.5 * DAY):
        store.create_session("fresh", "tui")
        store.end_session("fresh", "tui_close")
    with clock.replaced(lambda: NOW):
        assert store.prune_empty_ghost_sessions() == 1
    assert store.get_session("ghost") is None
    assert store.read(listing.stats)["sessions"] == 5


def test_a_ghost_at_the_end_of_a_lineage_gives_the_tip_back(store: SessionDB) -> None:
    conversation(store, "root", age_days=3, ended=False)
    with clock.replaced(lambda: NOW - 2 * DAY):
        store.end_session("root", "compression")
        store.create_session("ghost", "tui", parent_session_id="root")
        store.end_session("ghost", "tui_close")
    with clock.replaced(lambda: NOW):
        assert store.prune_empty_ghost_sessions() == 1
    assert [row["id"] for row in store.list_sessions_rich()] == ["root"]
    assert store.check() == []


def test_a_writer_gets_in_between_the_slices_of_a_long_prune(store: SessionDB) -> None:
    for number in range(350):
        conversation(store, f"old{number}", age_days=100)
    conversation(store, "live", age_days=0, ended=False)
    seen: list[int] = []
    between = threading.Event()

    def progress(_done: int) -> None:
        if not seen:
            between.set()
        seen.append(store.read(listing.stats)["conversations"])

    def write() -> None:
        between.wait(30)
        store.append_message("live", "user", "in the middle")

    writer = threading.Thread(target=write)
    writer.start()
    with clock.replaced(lambda: NOW):
        assert store.prune_sessions(progress=progress) == 350
    writer.join(30)
    assert len(seen) >= 3
    assert store.read(messages.count, "live") == 2


def test_what_was_touched_while_we_looked_is_not_pruned(store: SessionDB) -> None:
    for number in range(101):
        conversation(store, f"old{number:03}", age_days=200 - number)

    def wake_the_last(_done: int) -> None:
        with clock.replaced(lambda: NOW):
            store.append_message("old100", "user", "I am back")

    with clock.replaced(lambda: NOW):
        assert store.prune_sessions(progress=wake_the_last) == 100
    assert store.get_session("old100") is not None


def test_a_backup_is_whole_while_writers_write(store: SessionDB, tmp_path: Path) -> None:
    conversation(store, "a", age_days=0)
    copied: list[int] = []
    store.backup(tmp_path / "copy.db", lambda done, total: copied.append(done))
    store.append_message("a", "user", "after")
    with SessionDB(tmp_path / "copy.db") as copy:
        assert copy.read(messages.count, "a") == 1
        assert copy.check() == []
    assert copied
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageError, match="exists already"):
        store.backup(tmp_path / "copy.db")


def test_a_backup_that_fails_leaves_nothing_behind(store: SessionDB, tmp_path: Path) -> None:
    def stop(_done: int, _all: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.backup(tmp_path / "copy.db", stop)
    assert not list(tmp_path.glob("copy.db*"))


def test_vacuum_gives_space_back(store: SessionDB) -> None:
    store.create_session("a", "cli")
    store.append_messages("a", [{"role": "user", "content": "x" * 2000}] * 500)
    store.write(sessions.delete, ["a"])
    assert store.vacuum() > 500_000
    assert store.check() == []


def test_vacuum_is_refused_where_nothing_may_be_written(store: SessionDB) -> None:
    store.create_session("a", "cli")
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.vacuum()
    before = store.path.read_bytes()
    with SessionDB(store.path, read_only=True) as frozen, pytest.raises(StoreReadOnlyError):
        frozen.vacuum()
    assert store.path.read_bytes() == before


def test_check_names_what_does_not_fit_together(store: SessionDB) -> None:
    conversation(store, "a", age_days=0)
    store.write(lambda c: c.run("UPDATE sessions SET message_count = 9, is_tip = 0"))
    problems = store.check()
    assert "a session counts its messages wrongly" in problems
    assert "a conversation has no tip" in problems
