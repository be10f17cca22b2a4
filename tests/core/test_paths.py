"""The home and its files: modes, and writing as a whole or not at all."""

import os
from pathlib import Path

import pytest

from hermes_core.errors import ConfigError
from hermes_core.paths import Home, make_folder, touch_private, write_private


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_asking_for_a_name_makes_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert {home.config.name, home.database.name} == {"config.toml", "state.db"}
    assert not home.root.exists()


def test_a_folder_is_made_private_with_every_parent_it_lacks(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_folder(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    assert {mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")} == {0o700}


def test_a_folder_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o755)
    make_folder(tmp_path / "shared")
    assert mode(tmp_path / "shared") == 0o755


def test_a_folder_that_cannot_be_made_is_an_error_the_user_can_act_on(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="HERMES_HOME"):
        make_folder(tmp_path / "file" / "inner")
    with pytest.raises(ConfigError):
        make_folder(tmp_path / "file")


def test_a_file_is_replaced_as_a_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "note"
    write_private(path, "größer")
    write_private(path, "日本")
    assert path.read_bytes() == "日本".encode()
    assert mode(path) == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["note"]


def test_a_write_that_fails_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "note"
    write_private(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_private(path, "half \ud800")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["note"]


def test_touching_makes_an_empty_private_file_and_keeps_one_that_is_there(tmp_path: Path) -> None:
    touch_private(tmp_path / "x")
    assert mode(tmp_path / "x") == 0o600
    (tmp_path / "x").write_text("kept")
    touch_private(tmp_path / "x")
    assert (tmp_path / "x").read_text() == "kept"
