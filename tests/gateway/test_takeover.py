"""`hermes gateway run --replace` where the account is used by the gateway of another home."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gateway.locks as locks
from gateway.locks import AccountLock
from hermes_agent.testing.scripted import Quiet, silence
from hermes_core.errors import UsageError
from hermes_core.paths import Home
from tests.gateway.harness import TIMEOUT_S, Process, World
from tests.support.faults import eventually


@pytest.fixture
def elsewhere(world: World, tmp_path: Path) -> Iterator[World]:
    """Another home, with the same account and a model of its own."""
    with World(Home(tmp_path / "elsewhere")) as other_world:
        text = other_world.home.config.read_text()
        other_world.home.config.write_text(
            text.replace(other_world.platform.address, world.platform.address)
        )
        yield other_world


def test_a_gateway_of_another_home_is_asked_to_stop_and_its_account_taken_over(
    world: World, elsewhere: World, tmp_path: Path
) -> None:
    shared = {"HERMES_GATEWAY_LOCK_DIR": str(tmp_path / "locks")}
    quiet = Quiet()
    world.play(silence(quiet, then="the end"))
    with Process(world, **shared) as first:
        first.wait_until_up()
        world.platform.say("a", "one")
        assert quiet.started.wait(20)
        with Process(elsewhere, "--replace", **shared) as second:
            eventually(lambda: b"drain" in _state(world))
            quiet.release()
            second.wait_until_up()
            assert first.child.wait(TIMEOUT_S) == 0
            assert world.replies("a") == ["the end"]
            world.platform.say("a", "two")
            world.wait_for_text("a", "You said: two")
            assert len(elsewhere.model.model_requests) == 1
            assert second.terminate() == 0


def _state(world: World) -> bytes:
    return (world.home.root / "gateway_state.json").read_bytes()


_HOLD = """
import sys
from gateway.locks import AccountLock
AccountLock("x", "token", {kind!r}).take()
print("taken", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["setup", "gateway"])
def test_only_a_gateway_is_asked_to_stop(kind: str) -> None:
    command = [sys.executable, "-c", _HOLD.format(kind=kind)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"taken\n"
        if kind == "gateway":
            locks.take_over([AccountLock("x", "token"), AccountLock("x", "token")], TIMEOUT_S)
            assert holder.wait(TIMEOUT_S) == -signal.SIGTERM
            return
        with pytest.raises(UsageError, match=f"{holder.pid}.*not your gateway"):
            locks.take_over([AccountLock("x", "token")], TIMEOUT_S)
        assert holder.poll() is None
        holder.communicate(timeout=TIMEOUT_S)


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"{",
        b"[1]",
        str(os.getppid()).encode(),
        b'{"pid": 1, "kind": "gateway", "process": ""}',
        b'{"pid": %d, "kind": "gateway", "process": "elsewhere:%d:1"}' % ((os.getppid(),) * 2),
    ],
)
def test_nobody_is_signalled_whom_the_lock_does_not_name_beyond_doubt(written: bytes) -> None:
    holder, lock = AccountLock("x", "token"), AccountLock("x", "token")
    holder.take()
    holder.path.write_bytes(written)
    with pytest.raises(UsageError, match="not your gateway"):
        locks.take_over([lock], TIMEOUT_S)
    holder.release()


def test_a_gateway_that_does_not_stop_is_named() -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    command = [sys.executable, "-c", stubborn + _HOLD.format(kind="gateway")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"taken\n"
        with pytest.raises(UsageError, match=f"Process {holder.pid} has not ended"):
            locks.take_over([AccountLock("x", "token")], timeout_s=0.2)
        holder.communicate(timeout=TIMEOUT_S)


def test_how_far_an_account_was_dealt_with_is_told_by_who_holds_it() -> None:
    first, second = AccountLock("x", "token"), AccountLock("x", "token")
    assert first.mark.read() is None
    first.take()
    first.mark.write("one")
    first.release()
    second.take()
    second.mark.write("two")
    first.mark.write("too late")
    assert first.mark.read() == second.mark.read() == "two"
    assert AccountLock("x", "another").mark.read() is None
    second.release()


def test_a_mark_that_cannot_be_written_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    lock = AccountLock("x", "token")
    lock.take()
    lock.path.with_suffix(".mark").mkdir()
    lock.mark.write("one")
    assert lock.mark.read() is None
    assert "Cannot write mark" in caplog.text
    lock.release()
