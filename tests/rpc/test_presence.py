"""Who has which conversation open, and what becomes of those nobody has."""

import contextlib
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_agent.testing.scripted import ScriptedModel
from hermes_core.paths import Home
from hermes_state import SessionDB
from hermes_state.ledger import leases, lineage, sessions, turns
from tests.agent.test_assembly import Host
from tests.engine.conftest import make_assembly
from tests.rpc.harness import TIMEOUT_S
from tui_gateway.orphans import end_orphans, report
from tui_gateway.presence import Presence

CHILD = """
import sys
from pathlib import Path
from tui_gateway.presence import Presence
presence = Presence(Path(sys.argv[1]))
presence.add("theirs")
presence.add("there")
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "open"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionDB]:
    with SessionDB(tmp_path / "state.db") as opened:
        yield opened


def stored(store: SessionDB, name: str, source: str = "tui", **fields: str) -> None:
    store.create_session(name, source, **fields)
    store.append_message(name, "user", "hi")


def ended(store: SessionDB, name: str) -> str | None:
    return (store.get_session(name) or {})["end_reason"]


def left_behind(presence: Presence) -> set[str]:
    with presence.orphaned() as orphans:
        return orphans


def test_what_cannot_be_told_is_not_open_until_it_can(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = Presence(folder), Presence(folder)
    ours.add("first")
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", _disk_full)
        with pytest.raises(OSError, match="space"):
            ours.add("second")
        assert ours.open_here == {"first"}
    ours.add("second")
    assert theirs.elsewhere() == {"first", "second"}


def _disk_full(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_others_see_what_is_open_until_the_process_is_gone(folder: Path) -> None:
    ours = Presence(folder)
    ours.add("ours")
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"open\n"
        assert ours.elsewhere() == {"theirs", "there"}
        assert left_behind(ours) == set()
        child.kill()
        child.wait(TIMEOUT_S)
    assert ours.elsewhere() == set()
    with contextlib.suppress(OSError), ours.orphaned() as orphans:
        assert orphans == {"theirs", "there"}
        raise OSError
    assert left_behind(ours) == {"theirs", "there"}, "nobody has dealt with them"
    assert left_behind(ours) == set()
    assert ours.open_here == {"ours"}


def test_what_is_closed_is_not_open_any_more_and_files_are_private(folder: Path) -> None:
    ours, theirs = Presence(folder), Presence(folder)
    for name in ("a", "b"):
        ours.add(name)
        ours.add(name)
    [file] = folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    ours.remove("a")
    ours.remove("unknown")
    assert theirs.elsewhere() == {"b"}
    ours.close()
    ours.close()
    assert list(folder.iterdir()) == []
    assert theirs.elsewhere() == set()


def test_an_orphan_is_ended_and_nothing_else_is(store: SessionDB, folder: Path) -> None:
    ours, theirs = Presence(folder), Presence(folder)
    for name in ("orphan", "ours", "theirs", "pending", "held", "ended"):
        stored(store, name)
    stored(store, "cli", source="cli")
    ours.add("ours")
    theirs.add("theirs")
    pending = store.write(turns.accept, "pending", {"role": "user", "content": "x"})
    lease = store.write(leases.acquire, "held", "another-machine:1:1:1")
    assert lease is not None
    store.end_session("ended", "tui_close")
    assert end_orphans(store, ours) == ["orphan", "pending"]
    reasons = {name: ended(store, name) for name in ("ours", "theirs", "held", "cli")}
    assert set(reasons.values()) == {None}
    assert (ended(store, "orphan"), ended(store, "ended")) == ("tui_orphan", "tui_close")
    assert [turn["id"] for turn in store.read(turns.unfinished)] == [pending.turn_id]
    assert end_orphans(store, ours) == []


def test_plugins_are_not_told_of_the_end_of_what_was_resumed_meanwhile(
    store: SessionDB, home: Home, folder: Path
) -> None:
    host = Host(ScriptedModel([]))
    assembly = make_assembly(home, store, host)
    for name in ("closed", "resumed", "deleted"):
        stored(store, name)
    ended_here = end_orphans(store, Presence(folder))
    store.write(sessions.reopen, "resumed")
    store.write(sessions.delete, ["deleted"])
    report(assembly, ended_here)
    assert {call["session_id"] for call in host.of("on_session_lost")} == {"closed"}
    assert {call["session_id"] for call in host.of("on_session_finalize")} == {"closed"}
    assert ended(store, "resumed") is None


def test_what_a_dead_process_had_resumed_from_elsewhere_is_ended_too(
    store: SessionDB, folder: Path
) -> None:
    stored(store, "theirs", source="cli")
    stored(store, "there", source="telegram", session_key="agent:main:telegram:dm:1")
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        child.kill()
    assert end_orphans(store, Presence(folder)) == ["theirs"]
    assert ended(store, "there") is None, "a messenger's chat belongs to its gateway"


def test_an_orphan_is_ended_where_its_conversation_is(store: SessionDB, folder: Path) -> None:
    stored(store, "old")
    ours = Presence(folder)
    ours.add("old")
    new = store.write(lineage.rotate, "old", [{"role": "user", "content": "summary"}])
    assert end_orphans(store, ours) == [], "it is open here"
    ours.close()
    assert end_orphans(store, ours) == [new]
    assert ended(store, "old") == "compression"


def test_a_file_without_a_lock_is_nobodys(folder: Path) -> None:
    folder.mkdir()
    (folder / f"{os.getpid()}-x.open").write_text("ghost\n")
    assert Presence(folder).elsewhere() == set()
    assert left_behind(Presence(folder)) == {"ghost"}


def test_two_who_look_at_the_same_time_do_not_take_each_other_for_an_owner(folder: Path) -> None:
    folder.mkdir()
    (folder / "1-x.open").write_text("ghost\n")
    presence, wrong = Presence(folder), []

    def look() -> None:
        wrong.extend(presence.elsewhere() for _ in range(500))

    lookers = [threading.Thread(target=look) for _ in range(4)]
    for looker in lookers:
        looker.start()
    for looker in lookers:
        looker.join()
    assert set().union(*wrong) == set()
