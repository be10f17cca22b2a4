"""The log file: who may read it, what goes into it, and that the terminal stays clean."""

import logging
from pathlib import Path

import pytest

from hermes_core import log


def test_records_of_the_level_go_to_a_private_file_and_nowhere_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.set_up(tmp_path / "logs", "warning")
    logging.getLogger("some.part").warning("größer: %s", 7)
    logging.getLogger("some.part").info("left out")
    file = tmp_path / "logs" / "hermes.log"
    assert file.read_text("utf-8").endswith(" WARNING some.part größer: 7\n")
    assert "left out" not in file.read_text("utf-8")
    assert file.stat().st_mode & 0o777 == 0o600
    assert capsys.readouterr() == ("", "")


def test_the_file_is_made_by_the_first_record(tmp_path: Path) -> None:
    log.set_up(tmp_path / "logs", "info")
    assert list((tmp_path / "logs").iterdir()) == []


def test_setting_up_twice_writes_each_record_once(tmp_path: Path) -> None:
    log.set_up(tmp_path / "one", "info")
    log.set_up(tmp_path / "two", "info")
    logging.getLogger("x").info("once")
    assert not (tmp_path / "one" / "hermes.log").exists()
    assert (tmp_path / "two" / "hermes.log").read_text().count("once") == 1


def test_a_log_that_has_grown_makes_room_for_itself(tmp_path: Path) -> None:
    log.set_up(tmp_path, "info")
    for number in range(9):
        logging.getLogger("x").info("%s %s", number, "y" * 1_000_000)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["hermes.log", "hermes.log.1", "hermes.log.2", "hermes.log.3"]
    logging.getLogger("x").info("goes on")
    assert "goes on" in (tmp_path / "hermes.log").read_text("utf-8")
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())


def test_a_log_that_cannot_be_written_stops_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hermes.log").mkdir()
    log.set_up(tmp_path, "info")
    logging.getLogger("x").info("nowhere to go")
    assert "Is a directory" in capsys.readouterr().err
    (tmp_path / "hermes.log").rmdir()
    logging.getLogger("x").info("there is room again")
    assert "there is room again" in (tmp_path / "hermes.log").read_text()
