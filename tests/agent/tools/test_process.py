"""Background processes: the registry, and the tool that looks after them."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hermes_agent.sandbox.sandboxes import Host
from hermes_agent.tools.process import TOOL
from hermes_agent.tools.processes import Processes
from hermes_agent.tools.terminal import TOOL as TERMINAL
from hermes_agent.turn.stop import Stop
from hermes_core.errors import Interrupted
from hermes_state.ledger import lineage, messages, sessions
from hermes_state.values import NewMessage
from tests.agent.tools.conftest import Desk, MakeDesk
from tests.agent.tools.test_terminal import NEVER, has_ended, wait_for


def start(desk: Desk, command: str) -> str:
    text = desk.text(TERMINAL, command=command, background=True)
    return next(word.strip(";") for word in text.split() if word.startswith("p"))


def test_a_command_in_the_background_is_started_listed_and_ended(desk: Desk) -> None:
    id_ = start(desk, "echo up; sleep 300")
    assert f"{id_} (running" in desk.text(TOOL, action="list")
    assert desk.bench.processes.has_running("s1")
    assert "ended with exit code" in desk.text(TOOL, action="kill", id=id_)
    assert not desk.bench.processes.has_running("s1")
    assert desk.text(TOOL, action="list").startswith(f"{id_} (ended")


def test_waiting_gives_the_output_and_the_exit_code(desk: Desk) -> None:
    id_ = start(desk, "echo one; exit 3")
    text = desk.text(TOOL, action="wait", id=id_, seconds=30)
    assert text == f"one\n[{id_} ended with exit code 3]"
    assert desk.text(TOOL, action="poll", id=id_).startswith("(no new output)")


def test_polling_gives_only_what_is_new(desk: Desk) -> None:
    id_ = start(desk, "echo one; touch a; read x; echo two; touch b; sleep 300")
    wait_for(desk.workspace / "a")
    first = _poll_until(desk, id_, "one")
    desk.text(TOOL, action="write", id=id_, text="go\n")
    wait_for(desk.workspace / "b")
    second = _poll_until(desk, id_, "two")
    assert "two" not in first
    assert "one" not in second


def _poll_until(desk: Desk, id_: str, word: str) -> str:
    deadline = time.monotonic() + 30
    seen = ""
    while word not in seen:
        assert time.monotonic() < deadline
        NEVER.wait(0.01)
        seen += desk.text(TOOL, action="poll", id=id_)
    return seen


def test_waiting_is_cut_short_by_its_time_and_by_a_stop(desk: Desk) -> None:
    id_ = start(desk, "sleep 300")
    assert "running" in desk.text(TOOL, action="wait", id=id_, seconds=0.05)
    stop = Stop()
    threading.Timer(0.05, stop.set).start()
    with pytest.raises(Interrupted):
        desk.run(TOOL, stop, action="wait", id=id_, seconds=60)


def test_what_it_reads_can_be_written(desk: Desk) -> None:
    id_ = start(desk, "read name; echo hello $name")
    desk.text(TOOL, action="write", id=id_, text="you\n")
    assert "hello you" in desk.text(TOOL, action="wait", id=id_, seconds=5)
    assert "does not read its input" in desk.error(TOOL, action="write", id=id_, text="x\n")


def test_an_unknown_process_is_told_with_those_there_are(desk: Desk) -> None:
    id_ = start(desk, "sleep 300")
    assert f"There are: {id_}" in desk.error(TOOL, action="poll", id="p99")
    assert "needs the id" in desk.error(TOOL, action="poll")
    assert "one of list" in desk.error(TOOL, action="stop")


def test_nothing_in_the_background_is_told(desk: Desk) -> None:
    assert desk.text(TOOL, action="list") == "Nothing runs in the background."


def test_a_process_belongs_to_its_conversation(desk: Desk) -> None:
    id_ = start(desk, "sleep 300")
    desk.bench.store.write(sessions.create, "s2", "cli", {})
    desk.session_id = "s2"
    assert desk.text(TOOL, action="list") == "Nothing runs in the background."
    assert "no process" in desk.error(TOOL, action="kill", id=id_)


def test_processes_stay_with_a_conversation_that_is_compacted(desk: Desk) -> None:
    id_ = start(desk, "sleep 300")
    desk.bench.store.write(messages.append, "s1", NewMessage("user", "hello"))
    summary = {"role": "user", "content": "summary", "kind": "summary"}
    desk.session_id = desk.bench.store.write(lineage.rotate, "s1", [summary])
    assert desk.session_id != "s1"
    assert f"{id_} (running" in desk.text(TOOL, action="list")


def test_unread_output_is_kept_within_bounds(desk: Desk) -> None:
    id_ = start(desk, "yes 0123456789 | head -c 5000000; echo the end")
    process = desk.bench.processes.get("s1", id_)
    process.wait(10, Stop())
    text = process.read()
    assert len(text) < 400_000
    assert "characters were not kept" in text
    assert text.endswith("the end\n")


def test_too_many_at_once_are_refused(desk: Desk) -> None:
    for _ in range(16):
        start(desk, "sleep 300")
    message = desk.error(TERMINAL, command="sleep 300", background=True)
    assert "16 background processes" in message


def test_closing_ends_every_child_and_may_be_done_twice(make_desk: MakeDesk) -> None:
    desk = make_desk()
    start(desk, "sleep 300 & echo $! > child; touch up; wait")
    wait_for(desk.workspace / "up")
    desk.bench.processes.close()
    desk.bench.processes.close()
    assert has_ended(int((desk.workspace / "child").read_text()))


KILLED_SCRIPT = """
import os, sys, signal, threading
from pathlib import Path
from hermes_agent.approval.gate import Permit
from hermes_agent.sandbox.detect import choose
from hermes_agent.sandbox.sandboxes import Job
from hermes_agent.tools.processes import Processes
from hermes_core.settings import Settings, ToolSettings

folder = Path(sys.argv[1])
processes = Processes(choose(Settings(tools=ToolSettings(sandbox=sys.argv[2]))))
command = ["/bin/sh", "-c", "sleep 300 & echo $! > child; touch up; wait"]
job = Job(command, folder, folder, folder / "home", dict(os.environ))
def begin():
    # As a turn does: from a thread that ends while the process goes on.
    processes.add("c", "x", processes.sandbox.spawn(Permit._for_tests(), job))
thread = threading.Thread(target=begin)
thread.start(); thread.join()
while not (folder / "up").exists():
    os.sched_yield()
print("up", processes.of("c")[0].is_running, flush=True)
if sys.argv[3] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["kill", "exit"])
def test_no_child_outlives_us_however_we_end(tmp_path: Path, how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_SCRIPT, str(tmp_path), "host", how],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.stdout == "up True\n", done.stderr
    assert has_ended(int((tmp_path / "child").read_text()))


def test_typing_into_an_interpreter_is_judged_like_running_it(desk: Desk) -> None:
    shell, python, other = start(desk, "bash"), start(desk, "python3 -i -q"), start(desk, "cat")
    sql = start(desk, "sqlite3 x.db || sleep 300")
    assert desk.kinds(TOOL, action="write", id=shell, text="ls\n") == []
    assert desk.kinds(TOOL, action="write", id=shell, text="rm -rf src\n") == ["destructive"]
    code = "import os; os.system('rm -rf src')\n"
    assert desk.kinds(TOOL, action="write", id=python, text=code) == ["destructive"]
    assert desk.kinds(TOOL, action="write", id=sql, text="drop table x;\n") == ["remote_code"]
    assert desk.kinds(TOOL, action="write", id=other, text="rm -rf src\n") == []
    assert desk.kinds(TOOL, action="kill", id=shell) == []


def test_a_registry_without_a_sandbox_uses_the_host() -> None:
    assert Processes().sandbox.name == "host"


def test_closing_does_not_look_for_a_sandbox_that_no_command_needed() -> None:
    def fail() -> Host:
        raise AssertionError("looked for a sandbox")

    Processes(choose=fail).close()
