"""The search index follows the store, can be thrown away, and can do it no harm."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from hermes_core.errors import StoreError
from hermes_state import SessionDB
from hermes_state.engines.sqlite import index
from hermes_state.engines.sqlite.index import index_path, searchable, split_unspaced
from hermes_state.ledger import messages, meta, sessions
from hermes_state.ledger.records import encode


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionDB]:
    with SessionDB(tmp_path / "state.db") as store:
        store.create_session("a", "cli")
        store.append_message("a", "user", "the quick brown fox")
        yield store


def found(store: SessionDB, query: str) -> list[str]:
    return [hit["snippet"] for hit in store.search_messages(query)]


def test_what_was_just_said_is_found_at_once(store: SessionDB) -> None:
    store.append_message("a", "assistant", "jumps over the lazy dog")
    assert found(store, "lazy") == ["jumps over the >>>lazy<<< dog"]


@pytest.mark.parametrize("ruin", ["delete", "truncate", "garbage"])
def test_a_lost_or_damaged_index_is_built_anew(store: SessionDB, tmp_path: Path, ruin: str) -> None:
    assert found(store, "brown")
    store.close()
    index = index_path(tmp_path / "state.db")
    match ruin:
        case "delete":
            index.unlink()
        case "truncate":
            index.write_bytes(index.read_bytes()[:5000])
        case _:
            index.write_bytes(b"no database " * 500)
    with SessionDB(tmp_path / "state.db") as again:
        again.append_message("a", "user", "another fox")
        assert len(found(again, "fox")) == 2


def found_by_many(store: SessionDB, query: str) -> set[int]:
    """How often six threads find it, so that more connections are needed than are open."""
    begin = threading.Barrier(6)

    def look(_number: int) -> set[int]:
        begin.wait()
        return {len(found(store, query)) for _ in range(10)}

    with ThreadPoolExecutor(6) as pool:
        return set().union(*pool.map(look, range(6)))


def test_an_index_that_is_removed_under_an_open_store_is_built_anew(
    store: SessionDB, tmp_path: Path
) -> None:
    assert found(store, "brown")
    for file in tmp_path.glob("state-search.db*"):
        file.unlink()
    assert found_by_many(store, "brown") == {1}
    store.append_message("a", "user", "a second fox")
    assert found_by_many(store, "fox") == {2}
    assert index_path(tmp_path / "state.db").exists()


@pytest.mark.parametrize("version", [index.VERSION, index.VERSION + 1])
def test_an_index_that_another_process_builds_anew_is_followed(
    store: SessionDB, tmp_path: Path, version: int
) -> None:
    assert found(store, "brown")
    rebuild = f"""
from hermes_state import SessionDB
from hermes_state.engines.sqlite import index
index.VERSION = {version}
with SessionDB({str(tmp_path / "state.db")!r}) as store:
    store.index.rebuild()
    store.append_message("a", "user", "a wombat from elsewhere")
    assert store.search_messages("wombat")
"""
    subprocess.run([sys.executable, "-c", rebuild], check=True)
    assert found_by_many(store, "wombat") == {1}
    store.append_message("a", "user", "a wombat from here")
    assert found_by_many(store, "wombat") == {2}
    store.close()
    subprocess.run([sys.executable, "-c", rebuild], check=True)


def test_a_home_that_was_moved_away_is_not_made_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with SessionDB(home / "state.db") as store:
        store.create_session("a", "cli")
        home.rename(tmp_path / "elsewhere")
        with suppress(StoreError):
            store.search_messages("fox")
        assert not home.exists()


def test_who_lets_go_of_a_replaced_index_leaves_the_log_of_the_new_one(
    store: SessionDB, tmp_path: Path
) -> None:
    assert found(store, "brown")
    for file in tmp_path.glob("state-search.db*"):
        file.unlink()
    with SessionDB(tmp_path / "state.db") as other:
        other.append_message("a", "user", "a wombat")
        assert found(other, "wombat")
        store.append_message("a", "user", "another wombat")
        assert len(found(store, "wombat")) == 2  # from here on it has the new file open
        store.close()
        other.append_message("a", "user", "a third wombat")
        assert len(found(other, "wombat")) == 3
        with SessionDB(tmp_path / "state.db", read_only=True) as third:
            assert len(found(third, "wombat")) == 3


def test_an_index_of_another_store_is_not_believed(store: SessionDB, tmp_path: Path) -> None:
    with SessionDB(tmp_path / "other.db") as other:
        other.create_session("b", "cli")
        for _ in range(3):
            other.append_message("b", "user", "an elephant")
        assert found(other, "elephant")
    store.close()
    index_path(tmp_path / "other.db").replace(index_path(tmp_path / "state.db"))
    with SessionDB(tmp_path / "state.db") as again:
        assert found(again, "elephant") == []
        assert found(again, "fox")


def test_an_index_ahead_of_a_restored_store_is_built_anew(store: SessionDB, tmp_path: Path) -> None:
    store.backup(tmp_path / "backup.db")
    store.append_message("a", "user", "said after the backup")
    assert found(store, "backup")
    store.close()
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"state.db{suffix}").unlink(missing_ok=True)
    (tmp_path / "backup.db").replace(tmp_path / "state.db")
    with SessionDB(tmp_path / "state.db") as restored:
        restored.append_message("a", "user", "said after the restore")
        assert found(restored, "backup") == []
        assert found(restored, "restore")


def test_deleted_words_leave_the_index_too(store: SessionDB) -> None:
    assert found(store, "quick")
    store.write(sessions.delete, ["a"])
    store.index.catch_up()
    rows = store.index.ask(
        lambda c: c.execute("SELECT count(*) FROM words WHERE words MATCH 'quick'").get
    )
    assert rows == 0
    assert store.read(lambda c: c.value("SELECT count(*) FROM forgotten")) == 0


def test_an_index_that_cannot_be_written_does_not_stop_a_message(tmp_path: Path) -> None:
    index_path(tmp_path / "state.db").mkdir()
    with SessionDB(tmp_path / "state.db") as store:
        store.create_session("a", "cli")
        store.append_message("a", "user", "still stored")
        assert store.read(messages.of_session, "a")[0]["content"] == "still stored"
        assert found(store, "still") == [">>>still<<< stored"]


def test_two_processes_worth_of_indexers_do_not_index_twice(tmp_path: Path) -> None:
    with SessionDB(tmp_path / "state.db") as first, SessionDB(tmp_path / "state.db") as second:
        first.create_session("a", "cli")
        for number in range(50):
            (first, second)[number % 2].append_message("a", "user", f"word{number} shared")
        assert len(first.search_messages("shared", limit=100)) == 50
        assert len(second.search_messages("shared", limit=100)) == 50


def test_unspaced_script_is_indexed_as_pairs() -> None:
    assert split_unspaced("say 你好吗 now").split() == ["say", "你好", "好吗", "吗", "now"]
    assert split_unspaced("plain text") == "plain text"


def test_images_and_keys_are_not_indexed() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5000}}
    text = {"type": "text", "text": "what is this?"}
    assert searchable(None, encode([image, text]), None, None) == "what is this?"
    assert "QUJD" not in searchable("see " + "QUJD" * 100 + " here", None, None, None)


def test_closing_never_waits_for_a_thread_that_has_gone_to_sleep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last news and the close may come at any moment of the thread's round."""
    monkeypatch.setattr(index, "_PAUSE_S", 0.0001)
    with SessionDB(tmp_path / "state.db") as store:
        store.create_session("a", "cli")
    for number in range(300):
        with SessionDB(tmp_path / "state.db") as store:
            store.write(meta.put, "round", str(number))
            for _ in range(number % 7):
                store.index.stir()


ODD_CALLS: list[object] = [
    [{"id": "x", "function": None}],
    [{"function": "text"}],
    [{"function": {"name": 5, "arguments": {"q": "delta"}}}],
    [[1]],
    {"name": "not a list"},
]


@pytest.mark.parametrize("calls", ODD_CALLS)
def test_no_call_however_odd_keeps_other_messages_from_being_found(
    store: SessionDB, calls: object
) -> None:
    store.append_message("a", "assistant", "an odd one", tool_calls=calls)
    store.append_message("a", "user", "said after it")
    assert found(store, "odd") and found(store, "after") and found(store, "fox")


@pytest.mark.parametrize("parts", ["no JSON", "[" * 5000 + "]" * 5000, "[" * 900 + "]" * 900])
def test_no_parts_however_odd_keep_other_messages_from_being_found(
    store: SessionDB, parts: str
) -> None:
    """Another program, or a file that was imported, may have left them."""
    store.write(
        lambda c: c.run(
            "INSERT INTO messages (session_id, role, parts, timestamp) VALUES ('a', 'user', ?, 1)",
            parts,
        )
    )
    store.append_message("a", "user", "said after it")
    assert found(store, "after") and found(store, "fox")


def test_the_end_of_a_long_message_is_found_too(store: SessionDB) -> None:
    store.append_message("a", "user", "word " * 20_000 + "needleend")
    (snippet,) = found(store, "needleend")
    assert snippet.endswith(">>>needleend<<<")


def test_a_message_is_stored_and_the_store_closes_where_no_thread_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with SessionDB(tmp_path / "state.db") as store:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            store.create_session("a", "cli")
            store.append_message("a", "user", "stored all the same")
        store.append_message("a", "user", "once there are threads again")
        assert len(found(store, "stored")) == 1
        assert store.index._thread is not None and store.index._thread.is_alive()
    with SessionDB(tmp_path / "state.db") as store, monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        store.append_message("a", "user", "closed before there are any")


def test_a_full_disk_under_the_index_costs_only_what_is_not_indexed_yet(store: SessionDB) -> None:
    assert found(store, "fox")

    def limit(pages: int) -> None:
        conn = store.index._opened()
        conn.pragma("max_page_count", conn.pragma("page_count") + pages)

    limit(0)
    for number in range(50):
        store.append_message("a", "user", f"{number} " + os.urandom(2000).hex(" "))
    assert found(store, "brown")
    limit(100_000)
    store.append_message("a", "user", "there is room again")
    assert found(store, "room")
