"""Every step of the schema, from a stored file of the version before it."""

import hashlib
import re
import shutil
from enum import StrEnum
from pathlib import Path

import apsw
import pytest

from hermes_core.errors import IllegalTransitionError, StoreError
from hermes_state import SessionDB, transitions
from hermes_state.engines.sqlite import schema as migrations
from hermes_state.engines.sqlite import triggers
from hermes_state.engines.sqlite.connection import open_writer
from hermes_state.ledger import effects, inbox, lineage, meta, outbox, routes, titles, turns
from hermes_state.values import Call, InboundMessage

FILES = Path(__file__).parent / "files"


def schema(path: Path) -> list[tuple[str, str]]:
    conn = apsw.Connection(str(path))
    found = conn.execute(
        "SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
    ).fetchall()
    conn.close()
    return found


@pytest.mark.parametrize("version", range(1, migrations.SCHEMA_VERSION))
def test_a_stored_file_of_each_old_version_is_brought_up_to_date(
    tmp_path: Path, version: int
) -> None:
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    shutil.copy(FILES / f"v{version}.db", old)
    SessionDB(new).close()
    with SessionDB(old) as store:
        assert store.check() == []
        assert store.read(titles.title_of, "parent") == "Old chat"
        assert store.read(lineage.tip, "parent") == "child"
        whole = store.get_messages_as_conversation("child", include_ancestors=True)
        assert [m["content"] for m in whole] == ["the first word", "an answer", "go on"]
        assert store.search_messages("answer")[0]["session_id"] == "parent"
        accepted = store.write(turns.accept, "child", {"role": "user", "content": "a turn"})
        assert store.write(turns.start, accepted.turn_id) == 1
    assert schema(old) == schema(new)


def test_what_queries_ask_for_becomes_columns_of_the_rows_that_are_there(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    shutil.copy(FILES / "v8.db", path)
    with SessionDB(path) as store:
        for edited, found in (("1", ["2"]), ("3", ["3-4"]), ("6", ["6"])):
            message = InboundMessage("telegram", "room", edited)
            rows = store.read(inbox.versions, message)
            assert [row["message_id"] for row in rows] == found
        keys = store.read(lambda tx: tx.tuples("SELECT message_id, session_key FROM inbox"))
        assert dict(keys) == {"2": "key", "3-4": "key", "5": None, "6": None}
        part = store.read(outbox.find, "question:q1:0")
        assert part is not None and part["extra"] == '{"reply_to":"2"}'
        assert (part["question_id"], part["buttons"]) == ("q1", '[["Yes","once"]]')
        assert store.read(routes.keys_of, "child") == {"open", "odd"}
        assert store.check() == []


def test_there_is_a_stored_file_for_every_version_but_this_one() -> None:
    stored = {path.stem for path in FILES.glob("v*.db")}
    assert stored == {f"v{number}" for number in range(1, migrations.SCHEMA_VERSION)}


def test_a_step_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.db"
    shutil.copy(FILES / "v1.db", path)
    before = schema(path)

    half_way = "CREATE TABLE half (a); SELECT no_such_function()"
    broken = (migrations.STEPS[0], migrations.Step("m002_broken", half_way))
    monkeypatch.setattr(migrations, "STEPS", broken)
    with pytest.raises(StoreError):
        SessionDB(path)
    assert schema(path) == before
    monkeypatch.undo()
    with SessionDB(path) as store:
        assert store.check() == []


def test_a_step_may_rebuild_a_table_that_others_refer_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as store:
        store.create_session("s", "cli")
        turn_id = store.write(turns.accept, "s", {"role": "user", "content": "go"}).turn_id
        store.write(turns.start, turn_id)
        answer = {"role": "assistant", "content": "wait"}
        store.write(turns.step, turn_id, answer, [Call("c1", "terminal", "{}", read_only=False)])
    before = schema(path)
    sql = dict(before)
    columns = re.sub(r'CREATE TABLE "?turns"?', "CREATE TABLE rebuilt", sql["turns"], count=1)
    indexes = [sql for _, sql in before if re.match(r"CREATE INDEX \w+ ON turns ", sql or "")]
    rebuild = (
        f"{columns}; INSERT INTO rebuilt SELECT * FROM turns; DROP TABLE turns;"
        f" ALTER TABLE rebuilt RENAME TO turns; {'; '.join(indexes)}"
    )
    monkeypatch.setattr(
        migrations, "STEPS", (*migrations.STEPS, migrations.Step("rebuild", rebuild))
    )
    monkeypatch.setattr(migrations, "SCHEMA_VERSION", len(migrations.STEPS))
    conn = open_writer(path, 1.0)
    migrations.migrate(conn, migrations.SCHEMA_VERSION)
    conn.close()
    with SessionDB(path) as store:
        assert [row["tool_call_id"] for row in store.read(effects.of_turn, turn_id)] == ["c1"]
        with pytest.raises(IllegalTransitionError):
            store.write(lambda tx: tx.run("UPDATE turns SET state = 'accepted'"))
        store.write(lambda tx: tx.run("DELETE FROM turns"))
        assert store.read(effects.of_turn, turn_id) == [], "foreign keys count again"
    assert [name for name, _ in schema(path)] == [name for name, _ in before]


def test_the_steps_that_ran_are_on_record(tmp_path: Path) -> None:
    with SessionDB(tmp_path / "state.db") as store:
        for step in migrations.STEPS:
            assert store.read(meta.get, f"migration.{step.name}") is not None


RELEASED = {
    "m001_sessions_and_messages": "1335e9cf37904889",
    "m002_ledger": "78483ab2e248e0ff",
    "m003_questions_and_reservations": "e99e3f7237961e1a",
    "m004_delivery_and_people": "31d8bfe68704df8b",
    "m005_partials": "e5ad1a493e16b846",
    "m006_turns_cut_short": "edbf77660fbab80e",
    "m007_messages_compacted": "eb03dd2dc33aa397",
    "m008_workers": "a7e07d38326694a5",
    "m009_columns": "f933306d54c4293c",
    "m010_checkpoints": "cd65eaa7ad8c42c4",
    "m011_grants": "25a6cc92ebba57b4",
    "m012_taint": "179510b540ff96fa",
}
"""A hash per step. Stores have taken these steps: a change is a new step, never an edit."""


def test_released_steps_never_change() -> None:
    hashes = {
        step.name: hashlib.sha256(step.sql.encode()).hexdigest()[:16] for step in migrations.STEPS
    }
    assert hashes == RELEASED


def test_a_store_that_took_a_step_with_its_later_edit_is_brought_up_to_date(tmp_path: Path) -> None:
    """For a day, step 5 made an index that is step 6 now; such stores must open as well."""
    path, new = tmp_path / "old.db", tmp_path / "new.db"
    shutil.copy(FILES / "v5.db", path)
    conn = apsw.Connection(str(path))
    conn.execute(
        "CREATE INDEX turns_cut_short ON turns (user_message_id)"
        " WHERE state IN ('failed', 'interrupted')"
    )
    conn.close()
    SessionDB(new).close()
    with SessionDB(path) as store:
        assert store.check() == []
    assert schema(path) == schema(new)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DROP INDEX turns_cut_short", "the index turns_cut_short is missing"),
        ("DROP TRIGGER turns_move", "the trigger turns_move is missing"),
        ("DROP TABLE partials", "the table partials is missing"),
        ("ALTER TABLE outbox DROP COLUMN error", "the column error of outbox is missing"),
        (
            "DROP INDEX usage_time; CREATE INDEX usage_time ON usage (model)",
            "the index usage_time is not as it should be",
        ),
    ],
)
def test_a_schema_that_lacks_something_is_found_and_fixed(
    tmp_path: Path, statement: str, problem: str
) -> None:
    path, new = tmp_path / "state.db", tmp_path / "new.db"
    SessionDB(new).close()
    SessionDB(path).close()
    conn = apsw.Connection(str(path))
    if "outbox" in statement:  # a CHECK names it: the table is made without
        sql = conn.execute("SELECT sql FROM sqlite_schema WHERE name = 'outbox'").get
        conn.pragma("writable_schema", "on")
        without = sql.replace("    error               TEXT,\n", "").replace(
            ",\n    CHECK ((state = 'failed') <= (error IS NOT NULL))", ""
        )
        conn.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'outbox'", (without,))
    else:
        conn.execute(statement)
    conn.close()
    with SessionDB(path) as store:
        assert store.check() == [problem]
        assert store.fix() == [problem]
        assert store.check() == []
    if "outbox" not in statement:
        assert schema(path) == schema(new)


# -- generated triggers -------------------------------------------------------------------------


def test_every_trigger_that_a_released_step_made_for_states_is_generated_anew() -> None:
    conn = apsw.Connection(":memory:")
    for step in migrations.STEPS:
        conn.execute(step.sql)
    created = {
        name for (name,) in conn.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")
    }
    unchanged = {"messages_counted", "messages_immutable", "messages_forgotten", "usage_summed"}
    assert created - unchanged <= triggers.expected().keys()


@pytest.mark.parametrize("machine", transitions.MACHINES, ids=lambda machine: machine.table)
def test_the_states_of_a_table_are_those_of_its_machine(machine: transitions.Machine) -> None:
    with SessionDB.in_memory() as store:
        sql: str = store._execute_write(
            lambda c: (
                c.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (machine.table,)).get
            )
        )
    states = ", ".join(f"'{state}'" for state in machine.states)
    assert f"CHECK ({machine.column} IN ({states}))" in sql


@pytest.mark.parametrize("machine", transitions.MACHINES, ids=lambda machine: machine.table)
def test_every_move_that_a_machine_does_not_allow_is_refused(machine: transitions.Machine) -> None:
    conn = apsw.Connection(":memory:")
    flags = set(machine.moves_if.values())
    columns = ", ".join((machine.column, *flags))
    conn.execute(f"CREATE TABLE {machine.table} ({columns})")
    mine = (sql for sql in triggers.expected().values() if f" ON {machine.table} " in sql)
    for sql in [*mine]:
        conn.execute(sql)
    for flag in range(2):
        for old in (None, *machine.states):
            for new in (None, *machine.states):
                if (old is None or new is None) and machine.table != "inbox":
                    continue
                assert _moves(conn, machine, flag, old, new) == _may_move(machine, flag, old, new)


def _moves(
    conn: apsw.Connection,
    machine: transitions.Machine,
    flag: int,
    old: StrEnum | None,
    new: StrEnum | None,
) -> bool:
    """Tell whether the database lets a row go from one state to another."""
    table, column = machine.table, machine.column
    conn.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    conn.execute(f"DELETE FROM {table}; INSERT INTO {table} ({column}) VALUES (?)", (old,))
    for name in machine.moves_if.values():
        conn.execute(f"UPDATE {table} SET {name} = ?", (flag,))
    conn.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 1)
    try:
        conn.execute(f"UPDATE {table} SET {column} = ?", (new,))
    except apsw.ConstraintError:
        return False
    return True


def _may_move(
    machine: transitions.Machine, flag: int, old: StrEnum | None, new: StrEnum | None
) -> bool:
    if machine.moves is None:
        return old == machine.open
    assert old is not None and new is not None
    return new in machine.moves.get(old, ()) or bool(flag and (old, new) in machine.moves_if)
