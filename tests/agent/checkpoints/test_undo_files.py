"""/undo --files: what tools and shell commands changed comes back, and what people changed stays."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hermes_agent import recovery
from hermes_agent.checkpoints import undo
from hermes_agent.checkpoints.recorder import Checkpoints
from hermes_agent.testing.scripted import Step, call
from hermes_agent.tools.base import Tool
from hermes_agent.tools.registry import default_tools
from hermes_core.errors import NothingSaidError, UsageError
from hermes_core.paths import Home
from hermes_core.settings import ToolSettings
from hermes_state import SessionDB
from hermes_state.ledger import checkpoints, lineage, messages
from tests.agent.checkpoints.conftest import SETTINGS
from tests.agent.conftest import Chat, Counting, MakeChat
from tests.agent.test_commands import Surface

pytestmark = pytest.mark.promise("P15")

MakeSurface = Callable[..., Surface]


@pytest.fixture
def open_chat(make_chat: MakeChat, work: Path) -> MakeSurface:
    """A conversation with the real tools; each script is one turn."""

    def make(*scripts: list[Step | str], extra: Sequence[Tool] = ()) -> Surface:
        steps = [step for script in scripts for step in script]
        tools = [*default_tools(SETTINGS), *extra]
        surface = Surface(make_chat(steps, tools, settings=SETTINGS), make_chat)
        for _ in scripts:
            surface.chat.say("go on")
        return surface

    return make


def shell(command: str) -> Step:
    return call("terminal", command=command)


def write(path: str, content: str) -> Step:
    return call("write_file", path=path, content=content)


def files(work: Path) -> dict[str, str]:
    return {
        str(path.relative_to(work)): path.read_text()
        for path in sorted(work.rglob("*"))
        if path.is_file() and ".git" not in path.parts
    }


def test_changes_of_tools_and_of_commands_come_back(open_chat: MakeSurface, work: Path) -> None:
    (work / "a.txt").write_text("mine")
    (work / "b.txt").write_text("mine too")
    (work / "run").write_text("#!/bin/sh\n")
    (work / "run").chmod(0o755)
    before = files(work)
    chat = open_chat([
        write("a.txt", "changed"), shell("rm b.txt run; mkdir new; echo x > new/c.txt"), "Done.",
    ])  # fmt: skip
    assert files(work) == {"a.txt": "changed", "new/c.txt": "x\n"}
    output = chat.type("/undo --files")
    assert files(work) == before
    assert os.access(work / "run", os.X_OK)
    assert not (work / "new").exists()
    assert chat.texts() == []
    for line in ("restore a.txt", "bring back b.txt", "delete new/c.txt", "refs/undo/"):
        assert line in output
    with pytest.raises(NothingSaidError):
        chat.type("/undo --files")


def test_hand_edits_are_kept(open_chat: MakeSurface, work: Path) -> None:
    (work / "a.txt").write_text("1")
    chat = open_chat([shell("echo 2 > a.txt; echo 2 > b.txt; echo 2 > c.txt"), "Done."])
    (work / "a.txt").write_text("by hand")
    (work / "b.txt").unlink()
    (work / "mine.txt").write_text("new")
    output = chat.type("/undo --files")
    assert files(work) == {"a.txt": "by hand", "mine.txt": "new"}
    assert "a.txt: it was edited since" in output and "delete c.txt" in output
    assert "b.txt:" not in output, "it is as it was before"


def test_several_turns_are_undone_newest_first(open_chat: MakeSurface, work: Path) -> None:
    (work / "a.txt").write_text("0")
    chat = open_chat(*([shell(f"echo {n} | tee a.txt > b{n}.txt"), "Done."] for n in (1, 2, 3)))
    assert "restore a.txt" in chat.type("/undo 2 --files")
    assert files(work) == {"a.txt": "1\n", "b1.txt": "1\n"}
    chat.type("/undo --files")
    assert files(work) == {"a.txt": "0"}


def test_a_hand_edit_between_turns_stops_the_way_back(open_chat: MakeSurface, work: Path) -> None:
    (work / "a.txt").write_text("0")
    chat = open_chat([shell("echo 1 > a.txt"), "Done."])
    (work / "a.txt").write_text("by hand")
    chat.chat.model.add(shell("echo 2 > a.txt"), "Done.")
    chat.chat.say("again")
    output = chat.type("/undo 2 --files")
    assert (work / "a.txt").read_text() == "by hand"
    assert "restore a.txt" in output and "a.txt: it was edited since" in output


def test_plain_undo_says_how_files_are_restored(open_chat: MakeSurface, work: Path) -> None:
    (work / "a.txt").write_text("0")
    chat = open_chat(["Hello."], [shell("echo 1 > a.txt"), "Done."])
    assert "/undo --files" in chat.type("/undo")
    assert (work / "a.txt").read_text() == "1\n"
    output = chat.type("/undo --files")
    assert (work / "a.txt").read_text() == "0" and "Undone" not in output
    assert chat.texts() == ["go on", "Hello."], "only the files that the first undo left"
    assert "/undo --files" not in chat.type("/undo")


def test_a_turn_that_only_reads_takes_no_checkpoint(
    open_chat: MakeSurface, work: Path, home: Home
) -> None:
    (work / "a.txt").write_text("0")
    chat = open_chat([call("read_file", path="a.txt"), "Done."], ["Hello."])
    assert not home.checkpoints.exists()
    assert "No files were changed" in chat.type("/undo --files")


def test_ignored_files_come_back_when_a_file_tool_wrote_them(
    open_chat: MakeSurface, work: Path
) -> None:
    (work / ".gitignore").write_text("*.log\n")
    for name in ("a.log", "b.log"):
        (work / name).write_text("mine")
    chat = open_chat([
        shell("echo x > c.txt; echo changed > b.log"), write("a.log", "changed"),
        write("new.log", "new"), "Done.",
    ])  # fmt: skip
    chat.type("/undo --files")
    assert files(work) == {".gitignore": "*.log\n", "a.log": "mine", "b.log": "changed\n"}


def test_the_model_cannot_hide_a_file_behind_gitignore(open_chat: MakeSurface, work: Path) -> None:
    (work / "a.txt").write_text("mine")
    chat = open_chat([shell("echo '*' > .gitignore; rm a.txt"), "Done."])
    chat.type("/undo --files")
    assert files(work) == {"a.txt": "mine"}


def test_the_way_back_needs_nothing_in_the_workspace(open_chat: MakeSurface, work: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=work, check=True)
    (work / "a.txt").write_text("mine")
    chat = open_chat([shell("rm -rf .git a.txt"), "Done."])
    chat.type("/undo --files")
    assert files(work) == {"a.txt": "mine"}


def test_a_file_that_is_too_large_is_named_and_left(
    open_chat: MakeSurface, work: Path, home: Home
) -> None:
    (work / "big").write_bytes(b"x" * 1_500_000)
    (work / "grown").write_text("small")
    chat = open_chat([shell("echo small > big; head -c 1500000 /dev/zero > grown"), "Done."])
    store = chat.chat.store
    rows = store.read(checkpoints.of_conversation, chat.chat.agent.conversation_id)
    (plan,) = undo.plans(store, home, SETTINGS.tools, rows, apply=False)
    assert [change.path for change in plan.changes] == ["grown"]
    output = chat.type("/undo --files")
    assert "These stay as they are:\n• big: what it held is not kept" in output
    assert (work / "grown").read_text() == "small"
    assert (work / "big").read_text() == "small\n"
    assert "big: what it held is not kept" in output and "big is larger than 1 MB" in output


def test_effects_that_stay_are_listed(open_chat: MakeSurface, work: Path, tmp_path: Path) -> None:
    chat = open_chat([shell("echo sent"), write(str(tmp_path / "outside.txt"), "x"), "Done."])
    output = chat.type("/undo --files")
    assert "terminal ran without a sandbox: echo sent" in output
    assert f"write_file could write {tmp_path}/outside.txt" in output
    assert (tmp_path / "outside.txt").exists()


def test_a_stopped_and_a_failed_turn_can_be_undone(open_chat: MakeSurface, work: Path) -> None:
    (work / "a.txt").write_text("0")
    chat = open_chat([shell("echo 1 > a.txt"), call("terminal", command="")])
    assert chat.chat.turns()[-1]["state"] == "failed", "the script has ended"
    chat.type("/undo --files")
    assert files(work) == {"a.txt": "0"}


def test_what_another_conversation_changed_at_the_same_time_stays(
    open_chat: MakeSurface, make_chat: MakeChat, work: Path
) -> None:
    (work / "a.txt").write_text("0")
    other = make_chat(
        [shell("echo other > b.txt"), "Done."], default_tools(SETTINGS), settings=SETTINGS
    )

    def meanwhile(*_: object) -> str:
        other.say("go on")
        return "done"

    script = [shell("echo 1 > a.txt"), call("count"), "Done."]
    first = open_chat(script, extra=[Counting(then=meanwhile).tool()])
    output = first.type("/undo --files")
    assert files(work) == {"a.txt": "0", "b.txt": "other\n"}
    assert "b.txt: another conversation worked here at the same time" in output


def test_a_compaction_and_a_branch_keep_the_way_back(open_chat: MakeSurface, work: Path) -> None:
    (work / "a.txt").write_text("0")
    chat = open_chat([shell("echo 1 > a.txt"), "Done."], [shell("echo 2 > a.txt"), "Done."])
    here, store = chat.agent.session_id, chat.agent.store
    last = [message["id"] for message in store.read(messages.as_conversation, here)]
    summary = {"role": "user", "content": "summary", "kind": "summary"}
    store.write(lineage.rotate, here, [summary, *last[-4:]])
    chat.agent.session_id = store.read(lineage.tip, here)
    branch = store.write(lineage.branch, chat.agent.session_id)
    chat.type("/undo --files")
    assert (work / "a.txt").read_text() == "1\n"
    copy = chat.make_chat([], session_id=branch, settings=SETTINGS)
    output = Surface(copy, chat.make_chat).type("/undo --files")
    assert "No files were changed" in output, "they are those of the original"
    assert (work / "a.txt").read_text() == "1\n"


def test_without_git_the_turn_goes_on_and_undo_says_so(
    open_chat: MakeSurface, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_agent.checkpoints.git.shutil.which", lambda _name: None)
    (work / "a.txt").write_text("0")
    chat = open_chat([write("a.txt", "1"), "Done."])
    assert chat.chat.states() == ["answered"]
    assert "git is not installed" in chat.type("/undo --files")
    assert (work / "a.txt").read_text() == "1"


def test_checkpoints_can_be_switched_off(make_chat: MakeChat, work: Path, home: Home) -> None:
    settings = type(SETTINGS)(tools=ToolSettings(sandbox="host", checkpoints=False))
    chat = make_chat([write("a.txt", "1"), "Done."], default_tools(settings), settings=settings)
    chat.say("go on")
    assert not home.checkpoints.exists()
    assert "Checkpoints are off" in Surface(chat, make_chat).type("/undo --files")


def test_a_home_as_workspace_is_not_copied(store: SessionDB, home: Home) -> None:
    recorder = Checkpoints(store, home, home.root.parent, ToolSettings())
    assert "whole home" in recorder._unfit()
    assert Checkpoints(store, home, home.workspace, ToolSettings())._unfit() == ""


@pytest.mark.parametrize("line", ["/undo --file", "/undo 0 --files", "/undo compress --files"])
def test_what_is_not_understood_changes_nothing(
    open_chat: MakeSurface, work: Path, line: str
) -> None:
    chat = open_chat([write("a.txt", "1"), "Done."])
    with pytest.raises(UsageError):
        chat.type(line)
    assert files(work) == {"a.txt": "1"} and chat.texts()


KILLED = """\
import os, sys
from pathlib import Path
from hermes_agent.agent import Agent
from hermes_agent.testing.scripted import ScriptedModel
from hermes_agent.tools.registry import Toolbox, default_tools
from hermes_core.paths import Home
from hermes_state import SessionDB
from tests.agent.checkpoints.conftest import SETTINGS
from tests.agent.checkpoints.test_undo_files import shell

root = Path(sys.argv[1])
script = [shell("echo 1 > a.txt; echo 1 > b.txt"), shell(f"kill -9 {os.getpid()}"), "Done."]
with SessionDB(root / "state.db") as store:
    Agent(
        ScriptedModel(script), Toolbox(default_tools(SETTINGS)), store, SETTINGS,
        Home(Path(sys.argv[2])), workspace=root / "work", session_id="killed",
    ).run_conversation("go on")
"""


def test_a_kill_in_the_middle_of_a_turn_loses_nothing(
    make_chat: MakeChat, work: Path, tmp_path: Path, home: Home
) -> None:
    (work / "a.txt").write_text("0")
    with SessionDB(tmp_path / "state.db") as store:
        store.create_session("killed", "cli")
    program = [sys.executable, "-c", KILLED, str(tmp_path), str(home.root)]
    ended = subprocess.run(program, cwd=Path(__file__).parents[3], timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert files(work) == {"a.txt": "1\n", "b.txt": "1\n"}
    with SessionDB(tmp_path / "state.db") as store:
        chat: Chat = make_chat(
            ["I was cut off."], default_tools(SETTINGS), settings=SETTINGS, on=store,
            session_id="killed",
        )  # fmt: skip
        for row in recovery.unfinished(store):
            chat.agent.run_turn(row["id"])
        rows = store.read(checkpoints.of_conversation, chat.agent.conversation_id)
        assert [row["after"] for row in rows] == [None], "the second attempt changed nothing"
        output = Surface(chat, make_chat).type("/undo --files")
        assert files(work) == {"a.txt": "0"}
        assert "A process was killed" in output
        chat.agent.close()
