"""Processes that write one file take turns."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import SessionDB
from hermes_state.engines.sqlite import write_fairness
from hermes_state.engines.sqlite.write_fairness import WriteFairness
from hermes_state.ledger import messages


@pytest.fixture
def manners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[WriteFairness]]:
    """Two of them for one store; whoever waits insists at once."""
    monkeypatch.setattr(write_fairness, "_PRIORITY_AFTER_S", -1.0)
    both = [WriteFairness(tmp_path / "state.db", 30.0) for _ in range(2)]
    yield both
    for fairness in both:
        fairness.close()


def insists(other: WriteFairness) -> bool:
    """Whether somebody else insists, as `other` sees it."""
    return not other._is_free()


def test_who_has_waited_long_enough_insists_until_it_has_written(
    manners: list[WriteFairness],
) -> None:
    first, other = manners
    assert not insists(other)
    assert first.wait(0)
    assert insists(other)
    assert other._flag is not None and other._flag[0], "it is seen without asking for the lock"
    first.done()
    assert not insists(other)
    assert not other._flag[0]


def test_only_one_insists_at_a_time(manners: list[WriteFairness]) -> None:
    first, other = manners
    first.wait(0)
    assert other.wait(0), "it goes on waiting, without insisting"
    first.done()
    other.wait(1)
    assert insists(first)


def test_who_insists_and_never_writes_is_not_waited_for(
    manners: list[WriteFairness], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = manners
    monkeypatch.setattr(write_fairness, "_MAX_YIELD_S", 0.01)
    first.wait(0)
    other.give_way()
    assert insists(other)


def test_a_wait_ends_when_the_time_is_up(tmp_path: Path) -> None:
    fairness = WriteFairness(tmp_path / "state.db", -1.0)
    assert not fairness.wait(0)
    fairness.close()


def test_courtesy_dies_with_its_process(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path;"
        "from hermes_state.engines.sqlite import write_fairness as wf;"
        "wf._PRIORITY_AFTER_S = -1.0; one = wf.WriteFairness(Path(sys.argv[1]), 30.0);"
        "one.wait(0); assert one._has_priority; os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "state.db"], timeout=30)
    assert done.returncode == -9
    other = WriteFairness(tmp_path / "state.db", 30.0)
    assert other._flag is not None and other._flag[0], "it died with its sign up"
    other.give_way()
    assert not other._flag[0]
    assert not insists(other)
    other.close()


def test_without_the_file_there_is_no_courtesy_and_no_harm(tmp_path: Path) -> None:
    (tmp_path / "state.db-turn").mkdir()
    with SessionDB(tmp_path / "state.db") as store:
        store.create_session("a", "cli")
        store.append_message("a", "user", "hello")
        assert store.read(messages.count, "a") == 1
