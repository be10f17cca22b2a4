"""`hermes undo`, driven as from a shell."""

import shutil
from pathlib import Path

import pytest

from hermes_agent.agent import Agent
from hermes_agent.testing.scripted import ScriptedModel, call
from hermes_agent.tools.registry import Toolbox, default_tools
from hermes_core.paths import Home
from hermes_core.settings import AgentSettings, Settings
from hermes_state import SessionDB
from hermes_state.ledger import messages, titles
from tests.cli.conftest import Shell

pytestmark = [
    pytest.mark.promise("P15"),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]
SETTINGS = Settings(agent=AgentSettings(titles=False))


@pytest.fixture
def work(home: Home, tmp_path: Path) -> Path:
    """A workspace in which a conversation called Old chat has written a file twice."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("0")
    script = [
        call("write_file", path="a.txt", content="1"), "Done.",
        call("write_file", path="a.txt", content="2"), "Done.",
    ]  # fmt: skip
    with SessionDB(home.create().database) as store:
        agent = Agent(
            ScriptedModel(script), Toolbox(default_tools(SETTINGS)), store, SETTINGS, home,
            workspace=folder, session_id="old",
        )  # fmt: skip
        agent.run_conversation("first")
        agent.run_conversation("second")
        store.write(titles.set_title, "old", "Old chat")
        agent.close()
    return folder


def requests(home: Home) -> list[str]:
    with SessionDB(home.database) as store:
        found = store.read(messages.as_conversation, "old")
        return [message["content"] for message in found if message["role"] == "user"]


def test_files_and_exchanges_are_undone(shell: Shell, home: Home, work: Path) -> None:
    planned = shell.run("undo --files --dry-run")
    assert "Would undo from here on: 'second'" in planned
    assert "restore a.txt" in planned
    assert (work / "a.txt").read_text() == "2" and len(requests(home)) == 2
    assert "restore a.txt" in shell.run("undo --files 'Old chat'")
    assert (work / "a.txt").read_text() == "1" and requests(home) == ["first"]


def test_plain_undo_leaves_the_files(shell: Shell, home: Home, work: Path) -> None:
    assert "/undo --files" in shell.run("undo -n 2 old")
    assert (work / "a.txt").read_text() == "2" and requests(home) == []
    shell.run("undo --files old")
    assert (work / "a.txt").read_text() == "0"


@pytest.mark.usefixtures("can_answer")
def test_doctor_says_whether_checkpoints_are_taken(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "taken with" in shell.run("doctor")
    assert "restores nothing" in shell.run("--set tools.checkpoints=false doctor")
    monkeypatch.setattr("hermes_agent.checkpoints.git.shutil.which", lambda _name: None)
    assert "git is not installed" in shell.run("doctor")
