"""The shipped example: what it remembers of a conversation, and what survives a killed process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_cli import plugin_sources
from hermes_cli.commands import root
from hermes_cli.plugins import PluginHost
from hermes_core import clock, config
from hermes_core.paths import Home

FOLDER = plugin_sources.BUNDLED / "crash_recovery"

CHILD = """
import sys
from hermes_cli import plugins
from hermes_core import config
home = config.home()
plugins.load_enabled(home, config.load(home))
plugins.invoke_hook("on_session_start", session_id="s/1", model="m", platform="cli")
plugins.invoke_hook("on_session_start", session_id="done", model="m", platform="cli")
plugins.invoke_hook("on_session_finalize", session_id="done", platform="cli")
print("started", flush=True)
sys.stdin.read()
"""


class Recovery:
    """The plugin in a host of its own, with the hooks that surfaces fire."""

    def __init__(self, home: Home) -> None:
        self._host = PluginHost()
        self._host.load_folder(FOLDER, home)

    def start(self, session_id: str, platform: str = "cli") -> None:
        self._fire("on_session_start", session_id=session_id, model="m", platform=platform)

    def end(self, session_id: str, *, completed: bool) -> None:
        self._fire(
            "on_session_end",
            session_id=session_id,
            completed=completed,
            interrupted=not completed,
            model="m",
            platform="cli",
        )

    def finalize(self, session_id: str) -> None:
        self._fire("on_session_finalize", session_id=session_id, platform="cli")

    def lose(self, session_id: str) -> None:
        self._fire("on_session_lost", session_id=session_id, platform="cli")

    def reset(self, session_id: str) -> None:
        self._fire("on_session_reset", session_id=session_id, platform="cli")

    def turn(self, session_id: str, platform: str = "cli") -> None:
        self._fire(
            "on_turn_start",
            session_id=session_id,
            turn_id="t",
            user_message="hi",
            model="m",
            platform=platform,
        )

    def answered(self, session_id: str, platform: str = "cli") -> None:
        self._fire(
            "on_turn_end",
            session_id=session_id,
            turn_id="t",
            status="answered",
            response="hello",
            error="",
            model="m",
            platform=platform,
        )

    def compact(self, old: str, new: str) -> None:
        self._fire(
            "post_compaction",
            old_session_id=old,
            new_session_id=new,
            summary="",
            platform="cli",
        )

    def _fire(self, hook: str, **kwargs: object) -> None:
        assert self._host.invoke_hook(hook, **kwargs) == []


@pytest.fixture
def recovery(home: Home) -> Recovery:
    config.change(home, "plugins.enabled", ["crash_recovery"])
    return Recovery(home)


def notes(home: Home) -> dict[str, bool]:
    """Every note that is there: the session, and whether it is marked as interrupted."""
    files = (home.root / "plugin-data" / "crash_recovery" / "open").glob("*.json")
    found = [json.loads(path.read_text()) for path in files]
    return {note["session_id"]: note["interrupted"] for note in found}


def cut_off(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What another process would list: the session, and how it was cut off."""
    assert root.run(["recovery", "list", "--json"]) == 0
    return {row["session_id"]: row["how"] for row in json.loads(capsys.readouterr().out)}


def test_a_conversation_is_noted_from_its_start_to_its_end(recovery: Recovery, home: Home) -> None:
    for session_id in ("finalized", "completed", "reset", "still-open"):
        recovery.start(session_id)
    assert set(notes(home)) == {"finalized", "completed", "reset", "still-open"}
    recovery.finalize("finalized")
    recovery.end("completed", completed=True)
    recovery.reset("reset")
    assert notes(home) == {"still-open": False}


@pytest.mark.parametrize("platform", ["telegram", "api_server"])
def test_where_nobody_leaves_a_conversation_is_noted_while_it_is_answered(
    recovery: Recovery, home: Home, platform: str
) -> None:
    recovery.start("s", platform)
    assert notes(home) == {}
    recovery.turn("s", platform)
    assert notes(home) == {"s": False}
    recovery.answered("s", platform)
    assert notes(home) == {}


def test_at_a_terminal_a_conversation_is_noted_between_its_turns_too(
    recovery: Recovery, home: Home
) -> None:
    recovery.turn("s")
    recovery.answered("s")
    assert notes(home) == {"s": False}


def test_notes_are_private(recovery: Recovery, home: Home) -> None:
    recovery.start("../../s")
    files = [p for p in (home.root / "plugin-data").rglob("*") if p.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert {path.parent.name for path in files} == {"open", "running"}


def test_a_note_follows_its_conversation_to_a_new_id(recovery: Recovery, home: Home) -> None:
    recovery.start("old")
    recovery.compact("old", "new")
    recovery.compact("unknown", "other")
    assert notes(home) == {"new": False}


def test_a_resumed_conversation_is_noted_by_its_first_turn(recovery: Recovery, home: Home) -> None:
    recovery.end("s", completed=False)
    assert notes(home) == {"s": True}
    recovery.turn("s")
    assert notes(home) == {"s": False}


def test_an_interrupted_conversation_is_listed_and_an_open_one_is_not(
    recovery: Recovery, capsys: pytest.CaptureFixture[str]
) -> None:
    recovery.start("open")
    with clock.replaced(lambda: 1_000_000_000.0):
        recovery.end("cut", completed=False)
    assert cut_off(capsys) == {"cut": "interrupted"}
    assert root.run(["recovery"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    when = clock.local(1_000_000_000.0)
    assert line == f"cut  {when}  interrupted  cli    hermes chat --resume cut"


def test_a_killed_process_leaves_its_conversations_to_the_next_one(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    config.change(home, "plugins.enabled", ["crash_recovery"])
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout
        assert child.stdout.readline() == "started\n"
        assert cut_off(capsys) == {}, "it is open, not lost"
        child.kill()
    assert cut_off(capsys) == {"s/1": "lost"}

    assert root.run(["recovery", "clear", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"cleared": ["s/1"]}
    assert root.run(["recovery"]) == 0
    assert capsys.readouterr().out == "Every conversation ended properly.\n"
    running = home.root / "plugin-data" / "crash_recovery" / "running"
    assert list(running.iterdir()) == []


def test_a_lost_conversation_stays_listed_when_another_process_closes_it(
    recovery: Recovery, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    config.change(home, "plugins.enabled", ["crash_recovery"])
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout
        assert child.stdout.readline() == "started\n"
        child.kill()
    recovery.lose("s/1")
    recovery.end("s/1", completed=False)
    recovery.finalize("s/1")
    assert cut_off(capsys) == {"s/1": "lost"}
    recovery.turn("s/1")
    recovery.finalize("s/1")
    assert cut_off(capsys) == {}, "it was continued, and closed"


def test_clearing_forgets_only_what_was_named_and_never_what_is_open(
    recovery: Recovery, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    recovery.start("open")
    recovery.end("a", completed=False)
    recovery.end("b", completed=False)
    assert root.run(["recovery", "clear", "a", "open"]) == 0
    assert capsys.readouterr().out == "Removed 1 of 2.\n"
    assert notes(home) == {"open": False, "b": True}


def test_a_damaged_note_does_not_hide_the_others(
    recovery: Recovery, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    recovery.end("a", completed=False)
    Path(home.root / "plugin-data/crash_recovery/open/x.json").write_text("{")
    assert cut_off(capsys) == {"a": "interrupted"}
