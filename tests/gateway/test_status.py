"""What the gateway says about itself: in files, also where they cannot be written, and to a person."""

import contextlib
import errno
import json
import logging
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import gateway.run as run
import gateway.status as status
from gateway.locks import AccountLock
from gateway.platforms.base import PlatformError
from hermes_cli.commands import gateway_status
from hermes_cli.commands.app import App
from hermes_core.errors import ConfigError, StoreFullError, StoreIOError
from hermes_core.paths import Home
from hermes_state import SessionDB
from hermes_state.ledger import outbox, turns
from hermes_state.values import InboundMessage, NewSession, OutboundPart
from tests.gateway.harness import Inside, World
from tests.support.faults import eventually, needs_dev_full


def _full(_descriptor: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def _obstruct(path: Path) -> None:
    """Have every write of a file fail: a folder is in its place, whoever writes it meanwhile."""
    while not path.is_dir():
        path.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir()


def test_a_start_on_a_full_disk_says_so_and_leaves_the_home_free(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = r"gateway\.pid cannot be written: No space left.*Free space"
    with monkeypatch.context() as full, pytest.raises(StoreFullError, match=message):
        full.setattr(os, "fsync", _full)
        status.write_pid_file()
    assert not status.pid_file().exists()
    status.write_pid_file()
    assert status.get_running_pid() == os.getpid()
    status.remove_pid_file()


def test_a_home_that_cannot_be_written_to_is_named_at_the_start(world: World) -> None:
    _obstruct(status.pid_file())
    with pytest.raises(StoreIOError, match=r"gateway\.pid cannot be written: Is a directory"):
        status.write_pid_file()
    _obstruct(status.pid_file().with_suffix(".lock"))
    with pytest.raises(StoreIOError, match=r"gateway\.lock cannot be written: Is a directory"):
        status.write_pid_file()
    _obstruct(status.state_file())
    with pytest.raises(StoreIOError, match=r"gateway_state\.json cannot be written"):
        status.write_runtime_status(gateway_state="starting")


def test_a_gateway_that_runs_goes_on_when_it_can_say_nothing_about_itself(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with Inside(world), caplog.at_level(logging.WARNING, "gateway.status"):
        _obstruct(status.state_file())
        world.platform.cut()
        world.platform.say("a", "still there?")
        assert "still there?" in world.wait_for_replies("a", 1)[0]
    assert "gateway_state.json cannot be written" in caplog.text


@pytest.mark.parametrize("content", [None, "garbage", '{"pid": 1, "gateway_state": "stopped"}'])
def test_a_status_file_that_is_lost_is_written_again_as_a_whole(
    world: World, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    def is_whole() -> bool:
        state = status.read_runtime_status()
        platforms = {
            name: platform["state"] for name, platform in state.get("platforms", {}).items()
        }
        return (state.get("gateway_state"), platforms) == ("running", {"loopback": "connected"})

    monkeypatch.setattr(run, "_STATUS_CHECK_INTERVAL_S", 0.05)
    with Inside(world):
        eventually(is_whole)
        status.state_file().unlink()
        if content is not None:
            status.state_file().write_text(content)
        eventually(is_whole)


def test_a_platform_that_has_news_after_the_status_file_is_lost_is_not_all_that_is_told(
    world: World,
) -> None:
    status.write_runtime_status(gateway_state="starting")
    status.write_runtime_status(gateway_state="running", active_agents=2)
    status.write_runtime_status(platform="one", platform_state="connected")
    status.state_file().unlink()
    status.write_runtime_status(platform="two", platform_state="connected")
    state = status.read_runtime_status()
    assert (state["gateway_state"], state["active_agents"]) == ("running", 2)
    assert list(state["platforms"]) == ["one", "two"]


@pytest.mark.parametrize("content", [None, "garbage", "1", '{"pid": 1}'])
def test_a_gateway_is_known_by_the_lock_of_its_home_when_its_file_is_lost(
    world: World, content: str | None
) -> None:
    status.write_pid_file()
    status.pid_file().unlink()
    if content is not None:
        status.pid_file().write_text(content)
    assert status.get_running_pid() == os.getpid()
    result = CliRunner().invoke(gateway_status.show, obj=App(), standalone_mode=False)
    assert "The gateway is running (details unknown: " in result.output
    status.remove_pid_file()
    assert status.get_running_pid() is None


def test_a_home_that_is_gone_ends_nobody(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / "no folder"
    place.touch()
    monkeypatch.setenv("HERMES_HOME", str(place / "home"))
    status.write_runtime_status(platform="loopback", platform_state="connected")
    assert "Cannot create folder" in caplog.text
    with pytest.raises(ConfigError, match="HERMES_HOME"):
        status.write_pid_file()


def test_a_pid_file_that_cannot_be_taken_away_does_not_hold_up_the_stop(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    status.write_pid_file()

    def refuse(_path: Path, missing_ok: bool = False) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refuse)
    status.remove_pid_file()
    monkeypatch.undo()
    assert "Read-only file system" in caplog.text
    status.write_pid_file()
    status.remove_pid_file()


@needs_dev_full
def test_an_account_is_locked_also_when_its_holder_cannot_be_written_down(world: World) -> None:
    lock, other = AccountLock("loopback", "one"), AccountLock("loopback", "one")
    lock.path.parent.mkdir(parents=True)
    lock.path.symlink_to("/dev/full")
    lock.take()
    with pytest.raises(PlatformError, match="Another gateway"):
        other.take()
    lock.release()
    other.take()
    other.release()


# -- what a person is told ----------------------------------------------------------------------


def _output(*arguments: str) -> str:
    run = CliRunner().invoke(gateway_status.show, arguments, obj=App(), standalone_mode=False)
    if run.exception is not None:
        raise run.exception
    return run.output


def _leave_things_undone(home: Home) -> None:
    """A message without an answer; replies that wait: for their turn, for later; four given up."""
    with SessionDB(home.create().database) as store:
        message = {"role": "user", "content": "hello"}
        delivery = InboundMessage("loopback", "a", "m1")
        store.write(
            turns.accept, "s", message, inbound=delivery, new_session=NewSession("loopback", {})
        )
        first, _, _ = store.write(
            outbox.add, [OutboundPart("loopback", "a", text) for text in "123"]
        )
        store.write(outbox.begin, first)
        store.write(outbox.retry, first, "There is no connection.", due_at=time.time() + 3600)
        for number, chat in enumerate("wxyz"):
            store.write(
                outbox.add, [OutboundPart("loopback", chat, "no", failure=f"Blocked {number}.")]
            )


def test_it_is_told_what_waits_and_what_was_given_up_and_why(home: Home) -> None:
    _leave_things_undone(home)
    lines = _output().splitlines()
    assert lines[0] == "The gateway is not running (last: never started)."
    assert lines[1] == "Unanswered messages: 1."
    assert lines[2].startswith("Replies to send: 3, the oldest since ")
    assert lines[2].endswith(" (loopback: There is no connection).")
    assert lines[3] == "Undelivered replies in the last day: 4:"
    assert [line.split(maxsplit=2)[2] for line in lines[4:]] == [
        f"loopback {chat}: Blocked {number}." for number, chat in enumerate("xyz", 1)
    ]
    document = json.loads(_output("--json"))
    assert (document["unanswered"], document["to_send"], document["given_up"]) == (1, 3, 4)
    assert document["failures"][0]["reason"] == "Blocked 0."


def test_of_what_is_not_there_little_is_said(home: Home) -> None:
    assert _output().splitlines()[1:] == [
        "Unanswered messages: 0.",
        "Replies to send: 0.",
        "Undelivered replies in the last day: 0.",
    ]


def test_platforms_are_told_with_their_state_and_the_reason(world: World) -> None:
    status.write_pid_file()
    status.write_runtime_status(gateway_state="degraded")
    status.write_runtime_status(platform="one", platform_state="connected")
    status.write_runtime_status(
        platform="two", platform_state="retrying", error_message="No server answers."
    )
    lines = _output().splitlines()
    assert lines[0] == f"The gateway is degraded, process {os.getpid()}."
    assert lines[1:3] == ["  one: connected", "  two: retrying: No server answers."]
    status.remove_pid_file()
    assert _output().splitlines()[1] == "  one: off"


def test_the_reason_of_a_platform_holds_no_secret(world: World) -> None:
    with Inside(world):  # the key of the model is one
        status.write_runtime_status(
            platform="two", platform_state="retrying", error_message="GET /scripted-key: gone"
        )
        assert "/[secret model.api_key]: gone" in _output()
        assert "scripted-key" not in status.state_file().read_text()


def test_after_a_stop_no_platform_is_connected(world: World) -> None:
    with Inside(world):
        assert status.read_runtime_status()["platforms"]["loopback"]["state"] == "connected"
        status.write_runtime_status(
            platform="two", platform_state="failed", error_message="The token is wrong."
        )
    state = status.read_runtime_status()
    assert state["gateway_state"] == "stopped"
    assert state["platforms"]["loopback"]["state"] == "disconnected"
    assert state["platforms"]["two"]["state"] == "failed"
    assert state["platforms"]["two"]["error_message"] == "The token is wrong."
