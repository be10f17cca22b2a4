"""Text that is not valid UTF-8: a flipped bit in one row must not take anything else with it."""

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from hermes_state import SessionDB
from hermes_state.ledger import lineage, outbox, titles, turns
from hermes_state.ledger import messages as message_ledger
from hermes_state.values import OutboundPart

BAD = b"one \xff bad byte"
REPLACED = "one \ufffd bad byte"


def damage(path: Path, table: str, column: str, where: str = "1") -> None:
    """Put a byte into a text that cannot be there, as a flipped bit would."""
    conn = apsw.Connection(str(path))
    conn.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    conn.execute(f"UPDATE {table} SET {column} = CAST(? AS TEXT) WHERE {where}", (BAD,))
    assert conn.changes() > 0
    conn.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with two conversations, the first of which is damaged by the tests."""
    path = tmp_path / "state.db"
    with SessionDB(path) as store:
        for name in ("first", "second"):
            store.create_session(name, "cli", model="m", cwd="/tmp")
            store.append_message(name, "user", f"what {name} asks")
            store.append_message(name, "assistant", "an answer", reasoning="because")
            store.append_message(
                name, "assistant", None, tool_calls=[{"id": "c", "function": {"name": "read"}}]
            )
            store.set_session_title(name, f"the {name}")
        store.write(turns.accept, "first", {"role": "user", "content": "a turn"})
        store.index.catch_up()
    return path


@pytest.fixture
def store(path: Path) -> Iterator[SessionDB]:
    damage(path, "messages", "content", "session_id = 'first' AND role = 'user'")
    damage(path, "sessions", "preview", "id = 'first'")
    damage(path, "sessions", "title", "id = 'first'")
    with SessionDB(path) as store:
        yield store


def test_a_conversation_is_read_with_the_bad_byte_replaced(store: SessionDB) -> None:
    messages = store.get_messages_as_conversation("first")
    assert [m["content"] for m in messages[:2]] == [REPLACED, "an answer"]
    assert store.read(message_ledger.of_session, "first")[0]["content"] == REPLACED
    assert store.read(titles.title_of, "first") == REPLACED


def test_lists_keep_their_order_and_show_the_bad_row(store: SessionDB) -> None:
    store.append_message("second", "user", "later")
    listed = store.list_sessions_rich()
    assert [row["id"] for row in listed] == ["second", "first"]
    assert listed[1]["preview"] == REPLACED
    assert [row["id"] for row in store.list_sessions_rich(search_query="THE SECOND")] == ["second"]
    assert [row["id"] for row in store.list_sessions_rich(search_query="one")] == ["first"]


def test_search_finds_all_other_messages(store: SessionDB) -> None:
    store.index.rebuild()
    assert [hit["session_id"] for hit in store.search_messages("second")] == ["second"]
    assert store.search_messages("byte")[0]["session_id"] == "first"


def test_a_write_that_reads_the_bad_row_succeeds(store: SessionDB) -> None:
    branch = store.write(lineage.branch, "second", title="other")
    assert store.get_session(branch) is not None
    child = store.write(lineage.rotate, "first", [])
    assert store.read(titles.title_of, child) == REPLACED


def test_a_write_that_returns_the_bad_row_succeeds(path: Path) -> None:
    with SessionDB(path) as store:
        (piece,) = store.write(outbox.add, [OutboundPart("telegram", "1", "text")])
    damage(path, "outbox", "content")
    with SessionDB(path) as store:
        assert store.write(outbox.begin, piece)["content"] == REPLACED


def test_a_store_in_memory_replaces_as_well() -> None:
    with SessionDB.in_memory() as store:
        store.create_session("s", "cli")
        store._execute_write(
            lambda conn: conn.execute("UPDATE sessions SET preview = CAST(? AS TEXT)", (BAD,))
        )
        assert store.list_sessions_rich()[0]["preview"] == REPLACED


TEXTS = [
    ("messages", "content"), ("messages", "parts"), ("messages", "tool_calls"),
    ("messages", "reasoning"), ("messages", "tool_name"), ("sessions", "preview"),
    ("sessions", "title"), ("sessions", "cwd"), ("sessions", "model"), ("turns", "idempotency_key"),
    ("meta", "value"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "column"), TEXTS)
def test_the_check_names_the_row_and_the_column_of_any_text(
    path: Path, table: str, column: str
) -> None:
    row_of = {"sessions": "id = 'first'", "messages": "id = 3", "meta": "key = 'store_id'"}
    where = row_of.get(table, "1")
    if column == "parts":
        conn = apsw.Connection(str(path))
        conn.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        conn.execute("UPDATE messages SET content = NULL WHERE id = 3")
        conn.close()
    damage(path, table, column, where)
    with SessionDB(path) as store:
        problems = store.check()
        assert len(problems) == 1
        assert f" of {table} " in problems[0]
        assert column in problems[0]
        assert len(store.fix()) == 1
        assert store.check() == []
        assert store.fix() == []
