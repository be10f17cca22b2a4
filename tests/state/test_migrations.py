"""Every step of the schema, from a stored file of the version before it."""

import shutil
from pathlib import Path

import apsw
import pytest

from hermes_state import SessionDB, migrations

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
        assert store.get_session_title("parent") == "Old chat"
        assert store.get_compression_tip("parent") == "child"
        whole = store.get_messages_as_conversation("child", include_ancestors=True)
        assert [m["content"] for m in whole] == ["the first word", "an answer", "go on"]
        assert store.search_messages("answer")[0]["session_id"] == "parent"
        accepted = store.turns.accept("child", {"role": "user", "content": "a turn"})
        assert store.turns.start(accepted.turn_id) == 1
    assert schema(old) == schema(new)


def test_there_is_a_stored_file_for_every_version_but_this_one() -> None:
    stored = {path.stem for path in FILES.glob("v*.db")}
    assert stored == {f"v{number}" for number in range(1, migrations.SCHEMA_VERSION)}


def test_a_step_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.db"
    shutil.copy(FILES / "v1.db", path)
    before = schema(path)

    def half_way(conn: apsw.Connection) -> None:
        conn.execute("CREATE TABLE half (a)")
        raise RuntimeError("power cut")

    broken = (migrations.STEPS[0], migrations.Step("m002_broken", half_way))
    monkeypatch.setattr(migrations, "STEPS", broken)
    with pytest.raises(RuntimeError):
        SessionDB(path)
    assert schema(path) == before
    monkeypatch.undo()
    with SessionDB(path) as store:
        assert store.check() == []


def test_the_steps_that_ran_are_on_record(tmp_path: Path) -> None:
    with SessionDB(tmp_path / "state.db") as store:
        for step in migrations.STEPS:
            assert store.get_meta(f"migration.{step.name}") is not None
