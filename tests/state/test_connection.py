"""What may be opened, and what is refused without being touched."""

import sqlite3
import threading
from pathlib import Path

import apsw
import pytest

from hermes_core.errors import ForeignStoreError, StoreReadOnlyError, StoreVersionError
from hermes_state import SessionDB
from hermes_state.engines.sqlite import connection, schema
from hermes_state.engines.sqlite.connection import sqlite_version
from hermes_state.ledger import messages, outbox, turns
from hermes_state.values import InboundMessage, OutboundPart


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_store_and_its_folder_are_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "state.db"
    with SessionDB(path) as store:
        store.create_session("a", "cli")
        modes = {p.name: p.stat().st_mode & 0o777 for p in path.parent.iterdir()}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert set(modes.values()) == {0o600}
    assert {"state.db", "state.db-wal"} <= modes.keys()


def test_every_commit_is_synced_and_foreign_keys_hold(tmp_path: Path) -> None:
    with SessionDB(tmp_path / "state.db") as store:
        settings = store._execute_write(
            lambda c: [c.pragma(p) for p in ("journal_mode", "synchronous", "foreign_keys")]
        )
    assert settings == ["wal", 2, 1]


def test_what_every_message_asks_of_the_store_is_parsed_once(tmp_path: Path) -> None:
    parsed: list[int] = []

    def note(operation: int, *_about: str | None) -> int:
        parsed.append(operation)
        return apsw.SQLITE_OK

    with SessionDB(tmp_path / "state.db") as store:
        store._execute_write(lambda c: c.set_authorizer(note))
        for number in range(3):
            parsed.clear()
            store.create_session(f"s{number}", "cli")
            for position in range(2):
                delivery = InboundMessage("chat", f"room{number}", f"{number}.{position}")
                message = {"role": "user", "content": "hello"}
                accepted = store.write(turns.accept, f"s{number}", message, inbound=delivery)
                claimed = store.write(turns.claim, accepted.turn_id, f"s{number}", "me")
                assert claimed is not None
                store.write(
                    turns.finish,
                    accepted.turn_id,
                    "answered",
                    message={"role": "assistant", "content": "hi"},
                    lease=claimed.lease,
                    parts=[OutboundPart("chat", f"room{number}", "hi")],
                )
                for row in store.read(outbox.due):
                    store.write(outbox.begin, row["id"])
                    store.write(outbox.sent, row["id"], "m1")
    assert parsed == []


def test_a_sqlite_that_can_corrupt_shared_files_is_refused() -> None:
    with pytest.raises(StoreVersionError, match="pip install"):
        connection.check_library("3.51.2")
    connection.check_library("3.51.3")
    connection.check_library(sqlite_version())


def test_a_file_of_hermes_agent_is_refused_with_the_command_that_imports_it(tmp_path: Path) -> None:
    home = tmp_path / "my old home"
    home.mkdir()
    path = home / "state.db"
    foreign = sqlite3.connect(path)
    foreign.executescript(
        "CREATE TABLE sessions (id TEXT); CREATE TABLE messages (id INTEGER);"
        "CREATE TABLE schema_version (version INTEGER); INSERT INTO schema_version VALUES (22);"
    )
    foreign.close()
    before = contents(home)
    with pytest.raises(ForeignStoreError) as refusal:
        SessionDB(path)
    assert str(path) in str(refusal.value)
    assert refusal.value.fix.endswith(f"hermes sessions import --from-hermes-agent '{home}'")
    assert contents(home) == before


def test_a_file_of_hermes_agent_is_known_also_while_all_of_it_is_in_its_log(tmp_path: Path) -> None:
    path = tmp_path / "what? #1.db"
    foreign = sqlite3.connect(path)
    foreign.execute("PRAGMA journal_mode = WAL")
    foreign.execute("PRAGMA wal_autocheckpoint = 0")
    for table in ("sessions", "messages", "schema_version"):
        foreign.execute(f"CREATE TABLE {table} (id TEXT)")
    foreign.commit()
    before = contents(tmp_path)
    with pytest.raises(ForeignStoreError, match="hermes-agent"):
        SessionDB(path)
    assert contents(tmp_path) == before
    foreign.close()


def test_a_store_may_lie_under_any_name(tmp_path: Path) -> None:
    path = tmp_path / "my store? #100%.db"
    with SessionDB(path) as store:
        store.create_session("a", "cli")
    with SessionDB(path, read_only=True) as store:
        assert store.get_session("a") is not None


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE recipes (name TEXT)")
    other.commit()
    other.close()
    before = contents(tmp_path)
    with pytest.raises(ForeignStoreError, match="another program"):
        SessionDB(path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("read_only", [False, True])
def test_what_is_no_database_is_refused(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "state.db"
    path.write_text("dear diary, " * 100)
    before = contents(tmp_path)
    with pytest.raises(ForeignStoreError, match="not a database"):
        SessionDB(path, read_only=read_only)
    assert contents(tmp_path) == before


def test_a_folder_in_the_place_of_the_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.db").mkdir()
    with pytest.raises(ForeignStoreError, match="folder"):
        SessionDB(tmp_path / "state.db")


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch()
    with SessionDB(tmp_path / "state.db") as store:
        assert store.check() == []


@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_of_a_newer_version_is_refused(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "state.db"
    SessionDB(path).close()
    newer = apsw.Connection(str(path))
    newer.pragma("user_version", schema.SCHEMA_VERSION + 1)
    newer.close()
    before = path.read_bytes()
    with pytest.raises(StoreVersionError, match="newer Hermes"):
        SessionDB(path, read_only=read_only)
    assert path.read_bytes() == before


def test_a_store_opened_read_only_is_read_and_never_written(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as store:
        store.create_session("a", "cli")
        store.append_message("a", "user", "hello")
    before = [p.name for p in tmp_path.iterdir() if "search" in p.name]
    with SessionDB(path, read_only=True) as store:
        assert store.read(messages.of_session, "a")[0]["content"] == "hello"
        assert len(store.search_messages("hello")) == 1
        with pytest.raises(StoreReadOnlyError):
            store.append_message("a", "user", "again")
    assert [p.name for p in tmp_path.iterdir() if "search" in p.name] == before


def test_the_default_place_is_asked_for_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "elsewhere"))
    with SessionDB() as store:
        assert store.path == tmp_path / "elsewhere" / "state.db"


def test_a_burst_of_readers_does_not_leave_a_connection_each_behind(tmp_path: Path) -> None:
    at_once = 30
    together = threading.Barrier(at_once)
    with SessionDB(tmp_path / "state.db") as store:
        readers = store._database._readers

        def read() -> None:
            store.read(lambda conn: together.wait(10))

        threads = [threading.Thread(target=read) for _ in range(at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(readers._idle) <= 8
        assert store.get_session("nobody") is None
