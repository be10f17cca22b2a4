"""Repair: what can be read is saved, what cannot is told, and nobody is left with the old file."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from hermes_core.errors import StoreBusyError, StoreIOError, StoreVersionError
from hermes_state import SessionDB
from hermes_state.engines.sqlite import integrity, schema
from hermes_state.engines.sqlite.connection import connect, create_file
from hermes_state.engines.sqlite.presence import alone_with
from hermes_state.engines.sqlite.repair import Repair, repair, tables_of
from hermes_state.ledger import lineage, listing, turns
from hermes_state.ledger import messages as message_ledger
from hermes_state.ledger import sessions as session_ledger
from hermes_state.store import Tx

PAGE = 4096
Rows = dict[str, list[tuple[object, ...]]]

ONE_OF_EACH: dict[str, dict[str, object] | None] = {
    "meta": {"key": "note"},
    "sessions": None,
    "messages": None,
    "forgotten": {"message_id": 4711},
    "leases": {"conversation_id": "s0"},
    "turns": {"id": "t", "session_id": "s0", "state": "answered", "final_message_id": 2},
    "effects": {"turn_id": "t", "state": "done"},
    "checkpoints": {"turn_id": "t"},
    "lasting_effects": {"turn_id": "t", "kind": "host"},
    "inbox": {"platform": "telegram", "message_id": "m1", "outcome": "turn", "turn_id": "t"},
    "inbox_parts": {"platform": "telegram", "message_id": "m1"},
    "outbox": {"turn_id": "t", "state": "sent"},
    "routes": {"session_id": "s0"},
    "usage": {"session_id": "s0"},
    "questions": {
        "turn_id": "t",
        "kind": "approval",
        "state": "pending",
        "answer": None,
        "ended_at": None,
    },
    "grants": {},
    "reservations": {"state": "open"},
    "drafts": {"turn_id": "t"},
    "people": {"role": "owner", "name": "Me"},
    "pairings": {},
    "pairing_failures": {},
    "partials": {"turn_id": "t"},
    "workers": {},
    "taint": {"session_id": "s0", "kind": "outside"},
}
"""A row for every table: the values that matter. Those of None are filled through the store."""
ANY_VALUE = {"INTEGER": 1, "REAL": 2.5, "TEXT": "[1]"}


def row_of(conn: Tx, table: str, values: dict[str, object]) -> dict[str, object]:
    """Return a row with a value in every column that the schema has today."""
    columns = conn.tuples(f"SELECT name, type FROM pragma_table_info('{table}')")
    return {name: ANY_VALUE[type_] for name, type_ in columns} | values


def fill(path: Path, sessions: int = 12, messages: int = 40) -> Rows:
    """Make a store with something in every table, and return all that is in it."""
    with SessionDB(path) as store:
        for number in range(sessions):
            name = f"s{number}"
            store.create_session(name, "cli")
            contents = [f"{number} {turn} " + "lorem ipsum " * 20 for turn in range(messages)]
            store.append_messages(name, [{"role": "user", "content": text} for text in contents])
        store.append_message("s0", "user", "long " * 20_000)
        store.write(lineage.rotate, "s1", [{"role": "user", "content": "in short"}], child_id="s1b")
        store.write(
            lineage.rotate, "s1b", [{"role": "user", "content": "in short"}], child_id="s1c"
        )
        store.write(lineage.undo_rotation, "s1c")
        store.write(lineage.branch, "s2", child_id="s2b")
        store.set_session_title("s2", "Precious ✓")

        def one_of_each(conn: Tx) -> None:
            triggers = conn.tuples("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
            for name, _ in triggers:
                conn.run(f"DROP TRIGGER {name}")
            for table, values in ONE_OF_EACH.items():
                if values is not None:
                    row = row_of(conn, table, values)
                    marks = ", ".join("?" * len(row))
                    conn.run(
                        f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", *row.values()
                    )
            for _, sql in triggers:
                conn.run(sql)

        store.write(one_of_each)
        assert store.check() == []
    return content(path)


def content(path: Path) -> Rows:
    """Every row of every table, but for the note of a repair."""
    conn = connect(path)
    try:
        found = {name: conn.execute(f"SELECT * FROM {name}").fetchall() for name in tables_of(conn)}
        found["numbers"] = conn.execute("SELECT * FROM sqlite_sequence ORDER BY name").fetchall()
    finally:
        conn.close()
    found["meta"] = [row for row in found["meta"] if row[0] != "repaired_at"]
    return found


def pages_of(path: Path, table: str, kind: str = "leaf") -> list[int]:
    conn = connect(path)
    try:
        found = conn.execute(
            "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = ? ORDER BY path", (table, kind)
        )
        return [number for (number,) in found]
    finally:
        conn.close()


def overwrite(path: Path, *pages: int, with_: bytes = b"\xa5") -> None:
    data = bytearray(path.read_bytes())
    for page in pages:
        data[(page - 1) * PAGE : page * PAGE] = with_ * PAGE
    path.write_bytes(data)


def repaired(path: Path) -> Repair:
    """Repair, and see that the result is a store in which everything is in order."""
    before = path.read_bytes()
    result = repair(path)
    assert result.damaged_file.read_bytes() == before
    assert result.damaged_file.stat().st_mode & 0o777 == path.stat().st_mode & 0o777 == 0o600
    with SessionDB(path) as store:
        assert store.check() == []
        session = (
            store.list_sessions_rich()[0]["id"]
            if store.read(listing.stats)["conversations"]
            else None
        )
        if session is not None:
            store.append_message(session, "user", "life goes on")
            store.write(
                message_ledger.rewind,
                session,
                store.read(message_ledger.of_session, session)[-1]["id"],
            )
    return result


def test_every_table_of_the_schema_is_saved_whole(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    before = fill(path)
    assert set(ONE_OF_EACH) == set(before) - {"numbers"}, "a new table needs a row above"
    overwrite(path, *pages_of(path, "usage_time"))
    result = repair(path)
    assert result.lost == []
    assert content(path) == before
    assert result.recovered == {
        name: len(rows) for name, rows in before.items() if name != "numbers"
    }


def test_what_was_only_in_the_log_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    fill(path, sessions=3)
    code = (
        "import os, sys; from hermes_state import SessionDB; store = SessionDB(sys.argv[1]);"
        "[store.append_message('s0', 'user', f'in the log {n}') for n in range(50)]; os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, path], check=True)
    assert (tmp_path / "state.db-wal").stat().st_size > 50 * PAGE
    result = repair(path)
    with SessionDB(path) as store:
        contents = [message["content"] for message in store.read(message_ledger.of_session, "s0")]
        assert contents[-50:] == [f"in the log {number}" for number in range(50)]
        assert store.check() == []
    assert result.lost == []


def test_a_store_of_an_older_schema_is_saved_and_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes((Path(__file__).parent / "files" / "v2.db").read_bytes())
    path.chmod(0o600)
    before = content(path)
    result = repair(path)
    assert result.lost == []
    after = content(path)
    for table, rows in before.items():
        if table != "meta":
            assert [row[: len(rows[0])] for row in after[table]] == rows
    with SessionDB(path) as store:
        assert store.check() == []
        assert store._execute_write(schema.version_of) == schema.SCHEMA_VERSION


def test_a_store_of_a_newer_schema_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    fill(path, sessions=3)
    conn = connect(path)
    conn.pragma("user_version", 99)
    conn.close()
    before = path.read_bytes()
    with pytest.raises(StoreVersionError, match="newer Hermes"):
        repair(path)
    assert path.read_bytes() == before


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-PAGE])


def misspell_the_schema(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(b"CREATE INDEX usage_time", b"CRXATE INDEX usage_time"))


def two_leaves(path: Path) -> None:
    pages = pages_of(path, "messages")
    overwrite(path, pages[3], pages[-3], with_=b"\0")


def the_way_to_messages(path: Path) -> None:
    overwrite(path, *pages_of(path, "messages", "internal"))


def a_page_of_the_schema(path: Path) -> None:
    overwrite(path, *pages_of(path, "sqlite_schema")[1:3])


def the_first_page_but_its_header(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100:PAGE] = b"\xa5" * (PAGE - 100)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("harm", "most_lost"),
    [
        (truncate, 20),
        (misspell_the_schema, 0),
        (two_leaves, 40),
        (the_way_to_messages, 0),
        (a_page_of_the_schema, 0),
        (the_first_page_but_its_header, 0),
    ],
)
def test_only_what_cannot_be_read_is_lost_and_that_is_told(
    tmp_path: Path, harm: Callable[[Path], None], most_lost: int
) -> None:
    path = tmp_path / "state.db"
    before = fill(path)
    harm(path)
    result = repaired(path)
    after = content(path)
    lost = set(before["messages"]) - set(after["messages"])
    assert len(lost) <= most_lost
    if lost:
        assert any(text.startswith(f"{len(lost)} rows of messages") for text in result.lost)
    for table in ("people", "turns", "reservations", "usage", "inbox"):
        assert after[table] == before[table]
    again = repair(path)
    assert again.lost == []
    assert content(path)["messages"] == after["messages"]


def test_what_was_deleted_stays_deleted(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    fill(path)
    with SessionDB(path) as store:
        store.write(session_ledger.delete, ["s5"])
    the_way_to_messages(path)
    repaired(path)
    with SessionDB(path) as store:
        assert store.get_session("s5") is None
        assert (
            store.read(lambda c: c.value("SELECT count(*) FROM messages WHERE content GLOB '5 *'"))
            == 0
        )


def test_a_row_that_breaks_a_rule_is_told(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    fill(path, sessions=3)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"ownerMe", b"kingXMe"))
    result = repaired(path)
    assert [text for text in result.lost if "people" in text and "violates a constraint" in text]
    assert result.recovered["people"] == 0


@pytest.mark.parametrize("lost", [["a"], ["b"], ["c"], ["a", "b"], ["b", "c"], ["a", "b", "c"]])
def test_a_conversation_whose_heads_are_lost_keeps_what_was_said(
    tmp_path: Path, lost: list[str]
) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as store:
        store.create_session("a", "cli")
        store.append_message("a", "user", "first")
        for parent, child in (("a", "b"), ("b", "c")):
            store.write(
                lineage.rotate, parent, [{"role": "user", "content": "so far"}], child_id=child
            )
            store.append_message(child, "user", f"said in {child}")
    conn = connect(path)
    conn.pragma("foreign_keys", "off")
    for name in lost:
        conn.execute("DELETE FROM sessions WHERE id = ?", (name,))
    conn.close()
    result = repair(path)
    assert any(f"rows of {len(lost)} sessions" in text for text in result.lost)
    with SessionDB(path) as store:
        assert store.check() == []
        for name, text in (("a", "first"), ("b", "said in b"), ("c", "said in c")):
            assert store.read(message_ledger.of_session, name)[-1]["content"] == text
        if lost in (["a"], ["b"]):
            assert store.read(lineage.tip, "a") == "c"


def test_a_turn_whose_question_is_lost_ends(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as store:
        store.create_session("s", "cli")
        waiting = store.write(turns.accept, "s", {"role": "user", "content": "anybody?"})
    conn = connect(path)
    conn.execute("DELETE FROM messages")
    conn.close()
    result = repair(path)
    assert any("user message of 1 row of turns" in text for text in result.lost)
    with SessionDB(path) as store:
        assert store.check() == []
        state = "SELECT state FROM turns WHERE id = ?"
        assert store.read(lambda c: c.value(state, waiting.turn_id)) == "failed"


def test_rows_that_refer_to_a_lost_row_by_several_columns_go_too(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    fill(path, sessions=3)
    conn = connect(path)
    conn.pragma("foreign_keys", "off")
    conn.execute("INSERT INTO inbox_parts SELECT platform, chat_id, 'p', 'lost' FROM inbox")
    conn.close()
    result = repair(path)
    assert result.lost == ["1 row of inbox_parts that referred to lost rows"]
    with SessionDB(path) as store:
        assert store.check() == []
    assert [row[-1] for row in content(path)["inbox_parts"]] == ["m1"]


def test_a_column_and_a_table_that_a_new_step_adds_are_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"
    fill(path, sessions=3)
    sql = """
        ALTER TABLE inbox ADD COLUMN added TEXT;
        ALTER TABLE messages ADD COLUMN added INTEGER NOT NULL DEFAULT 3;
        CREATE TABLE added (
            part_id TEXT NOT NULL, number INTEGER NOT NULL, message_id TEXT NOT NULL,
            chat_id TEXT NOT NULL, platform TEXT NOT NULL, PRIMARY KEY (message_id, number),
            FOREIGN KEY (platform, chat_id, message_id) REFERENCES inbox ON DELETE CASCADE
        ) STRICT, WITHOUT ROWID;
    """
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, schema.Step("m_added", sql)))
    monkeypatch.setattr(schema, "SCHEMA_VERSION", len(schema.STEPS))
    integrity._expected.cache_clear()
    try:
        with SessionDB(path) as store:
            store.write(lambda tx: tx.run("UPDATE inbox SET added = 'new'"))
            store.write(
                lambda tx: tx.run(
                    "INSERT INTO added SELECT 'p', 4, message_id, chat_id, platform FROM inbox"
                )
            )
        before = content(path)
        overwrite(path, *pages_of(path, "usage_time"))
        assert repaired(path).lost == []
        after = content(path)
        assert [(row[1], row[-1]) for row in after["inbox"]] == [("[1]", "new")]
        for table in ("inbox", "added", "turns"):
            assert after[table] == before[table]
        assert {row[-1] for row in after["messages"]} == {3}
    finally:
        integrity._expected.cache_clear()


HOLDER = """
import sys
from hermes_state import SessionDB
with SessionDB(sys.argv[1]) as store:
    print("open", flush=True)
    sys.stdin.readline()
    print(store.append_message("a", "user", "after"), flush=True)
"""


def test_a_store_that_another_process_has_open_is_not_repaired(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as store:
        store.create_session("a", "cli")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        inode = path.stat().st_ino
        with pytest.raises(StoreBusyError, match="in use, so nothing was changed"):
            repair(path)
        assert path.stat().st_ino == inode
        assert not list(tmp_path.glob("*damaged*")) and not list(tmp_path.glob("*repaired*"))
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert int(holder.stdout.readline()) == 1
    assert repair(path).recovered["messages"] == 1


def test_a_store_that_another_program_has_open_is_not_repaired(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    fill(path, sessions=3)
    other = apsw.Connection(str(path))
    other.execute("SELECT count(*) FROM messages").fetchall()
    with pytest.raises(StoreBusyError, match="in use"):
        repair(path)
    other.close()
    repaired(path)


def test_this_process_keeps_its_locks_when_it_opens_the_store_twice(tmp_path: Path) -> None:
    """To close a file in any other way than through SQLite would give them up."""
    path = tmp_path / "state.db"
    code = (
        "import sys, pathlib\nfrom hermes_state.engines.sqlite.repair import _locked\n"
        "with _locked(pathlib.Path(sys.argv[1])): pass"
    )
    with SessionDB(path):
        SessionDB(path).close()
        done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert "StoreBusyError" in done.stderr


def test_who_opens_a_store_waits_until_its_repair_is_done(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    fill(path, sessions=3)
    with alone_with(path):
        for read_only in (False, True):
            with pytest.raises(StoreBusyError, match="being repaired"):
                SessionDB(path, read_only, busy_timeout_s=0.01)
    SessionDB(path).close()


def test_a_repair_that_is_killed_before_the_exchange_has_changed_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    before = fill(path)
    code = (
        "import os, pathlib, sys\nfrom hermes_state import SessionDB\n"
        "from hermes_state.engines.sqlite.repair import repair\n"
        "if os.fork() == 0:\n"
        "    SessionDB(sys.argv[1]).append_message('s0', 'user', 'the last'); os._exit(0)\n"
        "os.wait()\n"
        "pathlib.Path.replace = lambda *_: os.kill(os.getpid(), 9)\n"
        "repair(pathlib.Path(sys.argv[1]))"
    )
    done = subprocess.run([sys.executable, "-c", code, path], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    with SessionDB(path) as store:
        assert store.check() == []
        assert store.read(message_ledger.of_session, "s0")[-1]["content"] == "the last"
        assert store.read(listing.stats)["messages"] == len(before["messages"]) + 1
    assert len(list(tmp_path.glob("*.repaired-*"))) == 1
    repair(path)
    assert list(tmp_path.glob("*.repaired-*")) == []


def test_a_disk_that_takes_no_more_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    fill(path)
    truncate(path)
    before = path.read_bytes()
    code = (
        "import pathlib, resource, signal, sys\n"
        "from hermes_state.engines.sqlite.repair import repair\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "repair(pathlib.Path(sys.argv[1]))"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert StoreIOError.__name__ in done.stderr or "StoreFullError" in done.stderr
    assert path.read_bytes() == before
    assert not list(tmp_path.glob("*damaged*")) and not list(tmp_path.glob("*repaired*"))
    repaired(path)


def test_an_empty_store_can_be_repaired(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    create_file(path)
    repair(path)
    with SessionDB(path) as store:
        assert store.check() == []


def test_a_store_behind_a_link_is_repaired_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    path = tmp_path / "disk" / "state.db"
    before = fill(path, sessions=3)
    link = tmp_path / "state.db"
    link.symlink_to(path)
    assert repair(link).damaged_file.parent == path.parent
    assert link.is_symlink()
    assert content(link) == before


def at_random(data: bytes, dice: random.Random) -> bytes:
    """A file after some accident: pages overwritten or emptied, an end that is missing, wrong bytes."""
    harmed = bytearray(data)
    pages = len(data) // PAGE
    match dice.randrange(4):
        case 0:
            for page in dice.sample(range(1, pages), 3):
                harmed[page * PAGE : (page + 1) * PAGE] = dice.randbytes(PAGE)
        case 1:
            for page in dice.sample(range(1, pages), 3):
                harmed[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
        case 2:
            del harmed[dice.randrange(PAGE, len(data)) :]
        case _:
            for _ in range(200):
                harmed[dice.randrange(100, len(data))] = dice.randrange(256)
    return bytes(harmed)


def test_no_accident_makes_a_repair_fail(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    fill(whole, sessions=5)
    data = whole.read_bytes()
    for seed in range(int(os.environ.get("HERMES_REPAIR_ACCIDENTS", "12"))):
        path = tmp_path / f"{seed}.db"
        path.write_bytes(at_random(data, random.Random(seed)))
        path.chmod(0o600)
        repaired(path)
        assert repair(path).lost == [], seed
