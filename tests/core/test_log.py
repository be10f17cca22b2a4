"""The log file: who may read it, what goes into it, and that the terminal stays clean."""

import json
import logging
from datetime import datetime
from pathlib import Path

import pytest

from hermes_core import log, secrets


@pytest.fixture
def secret() -> str:
    value = 'kü"mmel'
    secrets.register({"SPICE": value})
    return value


def test_records_of_the_level_go_to_a_private_file_and_nowhere_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.set_up(tmp_path / "logs", "warning")
    logging.getLogger("some.part").warning("größer: %s", 7)
    logging.getLogger("some.part").info("left out")
    file = tmp_path / "logs" / "hermes.log"
    (line,) = file.read_text("utf-8").splitlines()
    record = json.loads(line)
    assert datetime.fromisoformat(record.pop("time")).tzinfo is not None
    assert record == {"level": "WARNING", "logger": "some.part", "message": "größer: 7"}
    assert file.stat().st_mode & 0o777 == 0o600
    assert capsys.readouterr() == ("", "")


def test_of_details_only_our_own_are_kept(tmp_path: Path) -> None:
    log.set_up(tmp_path, "debug")
    for name in ("nio.responses", "peewee", "httpcore.connection"):
        logging.getLogger(name).debug("what somebody said, and a token")
    logging.getLogger("gateway.turns").debug("a detail")
    logging.getLogger("hermes_plugins.mine").debug("another detail")
    lines = (tmp_path / "hermes.log").read_text("utf-8").splitlines()
    assert [json.loads(line)["message"] for line in lines] == ["a detail", "another detail"]
    log.set_up(tmp_path, "info")
    logging.getLogger("gateway.turns").debug("left out")
    assert "left out" not in (tmp_path / "hermes.log").read_text("utf-8")


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
        logging.getLogger("hermes_agent").info("%s %s", number, "y" * 1_000_000)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["hermes.log", "hermes.log.1", "hermes.log.2", "hermes.log.3"]
    logging.getLogger("hermes_agent").info("goes on")
    assert "goes on" in (tmp_path / "hermes.log").read_text("utf-8")
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())


def test_a_log_that_another_process_made_room_for_is_not_moved_again(tmp_path: Path) -> None:
    log.set_up(tmp_path, "info")
    logging.getLogger("x").info("%s", "y" * 1_999_000)
    (tmp_path / "hermes.log").rename(tmp_path / "hermes.log.1")
    (tmp_path / "hermes.log").write_text("another's\n")
    logging.getLogger("x").info("%s", "z" * 2_000)
    logging.getLogger("x").info("goes on")
    assert "goes on" in (tmp_path / "hermes.log").read_text().removeprefix("another's\n")
    assert not (tmp_path / "hermes.log.2").exists()


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


def test_a_record_is_one_line_of_json_with_its_fields_and_its_traceback(tmp_path: Path) -> None:
    log.set_up(tmp_path, "info")
    fields = {"chat": "7", "seconds": 1.5, "is_new": True, "place": tmp_path, "nothing": None}
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("x").exception("broke\noff", extra=fields)
    (line,) = (tmp_path / "hermes.log").read_text().splitlines()
    record = json.loads(line)
    assert record["message"] == "broke\noff"
    assert {name: record[name] for name in fields} == fields | {"place": str(tmp_path)}
    assert record["traceback"].startswith("Traceback") and record["traceback"].endswith("lines")
    formatted = log.format_line(line)
    assert " ERROR x: broke\noff (chat=7 seconds=1.5 is_new=True" in formatted
    assert formatted.endswith("ValueError: two\nlines")


@pytest.mark.parametrize("line", ["an old line", '{"time": 3}', "{}", "[]", '{"time": "x"}', ""])
def test_what_is_no_record_is_read_as_it_is(line: str) -> None:
    assert log.format_line(line) == line


def test_what_people_are_shown_goes_to_the_standard_error_as_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.set_up(tmp_path, "info", is_shown=True)
    logging.getLogger("x").info("up", extra={"platform": "loopback"})
    assert capsys.readouterr().err.endswith(" INFO x: up (platform=loopback)\n")
    assert '"platform":"loopback"' in (tmp_path / "hermes.log").read_text()


def test_no_secret_passes_wherever_it_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], secret: str
) -> None:
    log.set_up(tmp_path, "info", is_shown=True)
    try:
        raise ValueError(f"in an error: {secret}")
    except ValueError as error:
        fields = {"reason": secret, "error": error, "list": [secret]}
        logging.getLogger("x").exception("said: %s", secret, extra=fields)
    written, printed = (tmp_path / "hermes.log").read_text(), capsys.readouterr().err
    for text in (written, printed):
        assert "mmel" not in text
        assert text.count("[secret SPICE]") == 5
    json.loads(written)


def test_an_odd_record_harms_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.set_up(tmp_path, "info")
    logging.getLogger("x").info("half a character: \ud800", extra={"odd": "\udfff"})
    logging.getLogger("x").info("%d", "no number")
    logging.getLogger("x").info("goes on")
    lines = (tmp_path / "hermes.log").read_text().splitlines()
    assert [json.loads(line)["message"] for line in lines][-1] == "goes on"
    assert "no number" in capsys.readouterr().err


def test_libraries_that_tell_of_every_request_are_kept_short(tmp_path: Path) -> None:
    log.set_up(tmp_path, "info")
    logging.getLogger("httpx").info("HTTP Request: POST")
    logging.getLogger("httpx").warning("broken")
    (line,) = (tmp_path / "hermes.log").read_text().splitlines()
    assert json.loads(line)["message"] == "broken"
