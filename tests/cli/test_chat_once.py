"""`hermes chat -q`: one question, one answer, and an exit status that tells how it went."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_agent.testing.faults import wrong_key
from hermes_agent.testing.scripted import Quiet, call, say, silence, together
from hermes_core.paths import Home
from hermes_state.ledger import turns as turn_ledger
from tests.cli.chat_process import HERMES, TIMEOUT_S, World, as_json
from tests.support.plugins import enable


def test_the_answer_goes_to_stdout_and_notes_go_to_stderr(world: World) -> None:
    (world.workspace / "a.txt").write_text("forty-two\n")
    world.server.add(together("I look.", call("read_file", path="a.txt")), "It is **42**.")
    done = world.once("-q", "what is in a.txt?")
    assert done.returncode == 0
    assert done.stdout == "It is **42**.\n"
    assert "· I look.\n✓ read_file a.txt" in done.stderr
    (session,) = world.sessions()
    assert session["end_reason"] == "cli_close" and session["source"] == "cli"
    assert [turn["state"] for turn in world.turns()] == ["answered"]


def test_json_is_one_document_with_the_result(world: World) -> None:
    world.server.add("Hello.")
    document = as_json(world.once("--query", "hi", "--json"))
    assert (
        document["final_response"] == "Hello."
        and document["completed"]
        and document["error"] is None
    )
    assert document["session_id"] == world.sessions()[0]["id"]
    assert document["usage"]["input_tokens"] > 0


@pytest.mark.parametrize(
    ("arguments", "stdin", "question"),
    [
        (["-q", "-"], "from the pipe\n", "from the pipe"),
        ([], "from the pipe\n", "from the pipe"),
        (["-q", "sum this up"], "a long text\n", "sum this up\n\na long text"),
        (["-q", "no pipe"], None, "no pipe"),
    ],
)
def test_what_is_piped_in_is_asked_or_added(
    world: World, arguments: list[str], stdin: str | None, question: str
) -> None:
    world.server.add("Yes.")
    done = world.once(*arguments, stdin=stdin)
    assert done.stdout == "Yes.\n", done.stderr
    assert world.model_messages() == [question]


def test_nothing_to_ask_is_a_usage_error(world: World) -> None:
    done = world.once(stdin="  \n")
    assert done.returncode == 2 and "There is no question" in done.stderr


def test_a_failed_turn_says_why_and_exits_with_one(world: World) -> None:
    world.server.add(wrong_key())
    done = world.once("-q", "hi")
    assert (done.returncode, done.stdout) == (1, "")
    assert "key" in done.stderr
    assert [turn["state"] for turn in world.turns()] == ["failed"]


def test_a_failed_turn_is_told_to_programs_as_well(world: World) -> None:
    world.server.add(wrong_key())
    done = world.once("-q", "hi", "--json")
    document = as_json(done)
    assert (
        done.returncode == 1
        and document["failed"]
        and document["failure_reason"] == "model.refused"
    )


def test_without_a_model_and_without_a_terminal_it_says_what_to_run(world: World) -> None:
    done = world.once("-q", "hi", HERMES_MODEL="embedded")
    assert done.returncode == 3
    assert "hermes model pull" in done.stderr


def test_a_secret_of_the_environment_is_not_sent(world: World) -> None:
    world.server.add("Fine.")
    done = world.once("-q", "my key is sk-test-of-the-chat")
    assert done.returncode == 0
    assert "sk-test-of-the-chat" not in world.model_messages()[0]


def test_the_last_conversation_and_a_named_one_are_continued(world: World) -> None:
    world.server.add("One.", "Two.", "Three.")
    assert world.once("-q", "first").returncode == 0
    first = world.sessions()[0]["id"]
    assert world.once("-q", "second", "--continue").returncode == 0
    assert world.model_messages() == ["first", "One.", "second"]
    assert world.once("-q", "third", "--resume", first[:-2]).returncode == 0
    assert world.model_messages() == ["first", "One.", "second", "Two.", "third"]
    (session,) = world.sessions()
    assert session["end_reason"] == "cli_close" and session["message_count"] == 6


def test_what_cannot_be_continued_is_an_error(world: World) -> None:
    done = world.once("-q", "hi", "--continue")
    assert done.returncode == 4 and "no conversation to continue" in done.stderr
    done = world.once("-q", "hi", "--resume", "nothing")
    assert done.returncode == 4 and "No conversation 'nothing'" in done.stderr
    assert world.once("-q", "hi", "-c", "-r", "x").returncode == 2


def test_another_folder_and_another_model_can_be_named(world: World, tmp_path: Path) -> None:
    world.server.add("Yes.")
    other = tmp_path / "other"
    other.mkdir()
    done = world.once("-q", "hi", "--workspace", str(other), "--model", "another")
    assert done.returncode == 0, done.stderr
    assert world.server.model_requests[-1].json["model"] == "another"
    assert world.sessions()[0]["cwd"] == str(other)
    assert world.once("-q", "hi", "--workspace", str(tmp_path / "none")).returncode == 2


def start(world: World, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*world.command, "chat", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=world.workspace,
        env=world.environment,
    )


def test_a_folder_whose_name_is_no_text_can_be_worked_in(world: World) -> None:
    world.workspace = Path(os.fsdecode(bytes(world.workspace) + b"/dir\xff"))
    world.workspace.mkdir()
    (world.workspace / "a.txt").write_text("forty-two\n")
    world.server.add(call("read_file", path="a.txt"), call("terminal", command="cat a.txt"), "42.")
    done = world.once("-q", "what is in a.txt?")
    assert done.returncode == 0 and done.stdout == "42.\n", done.stderr
    assert done.stderr.count("✓") == 2, done.stderr
    world.server.add("Still 42.")
    assert world.once("-c", "-q", "sure?").stdout == "Still 42.\n"


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=lambda value: str(value),
)
def test_a_signal_stops_a_silent_model_and_finalizes_the_conversation(
    world: World, number: signal.Signals, status: int
) -> None:
    quiet = Quiet()
    world.server.add(silence(quiet, after="Half of"))
    process = start(world, "-q", "hi")
    assert quiet.started.wait(TIMEOUT_S)
    process.send_signal(number)
    out, _ = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (status, "")
    (session,) = world.sessions()
    assert session["end_reason"] == "cli_close"
    assert [turn["state"] for turn in world.turns()] == ["interrupted"]


def test_a_killed_question_is_answered_by_the_next_one_that_continues(world: World) -> None:
    quiet = Quiet()
    world.server.add(silence(quiet), "The first answer.", "The second answer.")
    process = start(world, "-q", "the first question")
    assert quiet.started.wait(TIMEOUT_S)
    process.kill()
    process.communicate(timeout=TIMEOUT_S)
    done = world.once("-q", "the second question", "--continue")
    assert done.stdout == "The second answer.\n"
    assert "no answer yet" in done.stderr
    assert [turn["state"] for turn in world.turns()] == ["answered", "answered"]
    assert world.model_messages() == [
        "the first question",
        "The first answer.",
        "the second question",
    ]


def test_a_dangerous_call_is_denied_where_nobody_can_be_asked(world: World) -> None:
    protected = world.workspace.parent / "protected"
    protected.mkdir()
    world.server.add(call("terminal", command=f"rm -rf {protected}"), "I may not.")
    done = world.once("-q", "delete it")
    assert done.stdout == "I may not.\n" and "✗ terminal" in done.stderr
    assert protected.is_dir()
    world.server.add(call("terminal", command=f"rm -rf {protected}"), "Gone.")
    assert world.once("-q", "delete it", HERMES_YOLO_MODE="1").stdout == "Gone.\n"
    assert not protected.exists()


def test_one_question_loads_no_heavy_library(world: World) -> None:
    world.server.add("Yes.")
    code = (
        "import sys; from hermes_cli.commands.root import run; status = run(['chat', '-q', 'hi']);"
        "heavy = {'rich', 'asyncio', 'tomlkit', 'xllamacpp'} & set(sys.modules);"
        "assert not heavy, heavy; sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=world.environment,
    )
    assert done.returncode == 0, done.stderr


def test_plugins_hear_the_session_begin_and_end(world: World, home: Home) -> None:
    plugin = home.plugins / "witness"
    plugin.mkdir(parents=True)
    (plugin / "plugin.toml").write_text('name = "witness"\nversion = "1"\ndescription = "x"\n')
    log = world.workspace / "heard.txt"
    (plugin / "__init__.py").write_text(
        "def register(ctx):\n"
        "    def note(word):\n"
        f"        with open({str(log)!r}, 'a') as f: f.write(word + '\\n')\n"
        "    ctx.hook('on_session_start', lambda session_id: note('start'))\n"
        "    ctx.hook('on_session_end', lambda completed, interrupted:"
        " note(f'end {completed} {interrupted}'))\n"
        "    ctx.hook('on_session_finalize', lambda session_id: note('finalize'))\n"
        "    ctx.tool('answer', lambda: 'forty-two', description='Knows.', parameters={"
        "'type': 'object', 'properties': {}}, read_only=True)\n"
    )
    world.server.add(call("call_tool", name="answer", arguments={}), say("Good."))
    done = world.once("-q", "hi", HERMES_PLUGINS_ENABLED="witness")
    assert done.stdout == "Good.\n", done.stderr
    assert log.read_text().split("\n")[:-1] == ["start", "end True False", "finalize"]
    assert "forty-two" in json.dumps(world.model_messages())


CHATTY = """
import click
print("said when imported")

def register(ctx):
    click.echo("said when loaded")

    @ctx.hook("on_session_start")
    def called():
        print("said when called")
"""


def test_what_a_plugin_prints_is_no_part_of_the_answer_for_a_program(
    world: World, home: Home
) -> None:
    enable(home, "chatty", CHATTY)
    world.server.add("hello")
    done = world.once("-q", "hi", "--json")
    assert json.loads(done.stdout)["final_response"] == "hello"
    for moment in ("imported", "loaded", "called"):
        assert f"said when {moment}" in done.stderr
    listed = world.hermes("--json", "plugins", "list")
    assert "chatty" in [row["name"] for row in json.loads(listed)]
    assert "said" not in world.hermes("plugins", "list"), "neither in the answer for a person"
    exported = world.hermes("sessions", "export", "--json").splitlines()
    assert [json.loads(line) for line in exported]


def test_a_plugin_that_raises_what_is_no_error_everywhere_changes_nothing(
    world: World, home: Home
) -> None:
    code = """
import asyncio
from hermes_cli import hookspecs
def fail():
    raise asyncio.CancelledError
def register(ctx):
    for hook in hookspecs.SPECS:
        ctx.hook(hook, fail)
"""
    enable(home, "deadly", code)
    enable(home, "unloadable", "raise KeyboardInterrupt")
    world.server.add(call("read_file", path="a.txt"), say("Good."))
    done = world.once("-q", "hi")
    assert (done.returncode, done.stdout) == (0, "Good.\n"), done.stderr
    assert "Traceback" not in done.stderr
    [row] = world.sessions()
    assert row["end_reason"] == "cli_close"
    log = (home.logs / "hermes.log").read_text()
    assert "Plugin deadly failed in hook on_session_finalize" in log
    assert "Plugin unloadable failed to load" in log


def test_a_plugin_that_hangs_at_the_end_does_not_keep_the_process(world: World, home: Home) -> None:
    plugin = home.plugins / "sleeper"
    plugin.mkdir(parents=True)
    (plugin / "plugin.toml").write_text('name = "sleeper"\nversion = "1"\ndescription = "x"\n')
    (plugin / "__init__.py").write_text(
        "import threading\n"
        "def register(ctx):\n"
        "    ctx.hook('on_session_finalize', lambda session_id: threading.Event().wait())\n"
    )
    world.server.add("Answer.")
    world.command = [str(HERMES)]
    done = world.once("-q", "hi", HERMES_PLUGINS_ENABLED="sleeper")
    assert (done.returncode, done.stdout) == (0, "Answer.\n")


def test_a_message_to_a_busy_conversation_is_not_stored_and_can_be_sent_again(
    world: World,
) -> None:
    quiet = Quiet()
    world.server.add(silence(quiet, then="Done."), "The second.")
    process = start(world, "-q", "first")
    assert quiet.started.wait(TIMEOUT_S)
    done = world.once("-q", "second", "--continue")
    assert done.returncode == 75 and "was not stored" in done.stderr
    assert world.sessions()[0]["ended_at"] is None
    quiet.release()
    assert process.communicate(timeout=TIMEOUT_S)[0] == "Done.\n"
    assert world.once("-q", "second", "--continue").stdout == "The second.\n"
    assert [turn["state"] for turn in world.turns()] == ["answered", "answered"]
    assert world.model_messages() == ["first", "Done.", "second"]


def test_a_question_leaves_the_open_turns_of_other_conversations_alone(world: World) -> None:
    quiet = Quiet()
    world.server.add(silence(quiet), "The second answer.", "The first answer.")
    process = start(world, "-q", "the first question")
    assert quiet.started.wait(TIMEOUT_S)
    process.kill()
    process.communicate(timeout=TIMEOUT_S)
    assert world.once("-q", "another question").stdout == "The second answer.\n"
    with world.store() as store:
        (open_turn,) = store.read(turn_ledger.unfinished)
    assert open_turn["state"] == "running"
    done = world.once("-q", "and the first?", "-r", open_turn["session_id"])
    assert done.returncode == 1, "its second answer is not scripted"
    assert "no answer yet" in done.stderr


MEASURE = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
print(os.wait4(child.pid, 0)[2].ru_maxrss)
"""
"""A small process between: what is counted for a child begins with the size of its parent."""


def test_the_process_stays_small(world: World) -> None:
    world.server.add("Yes.")
    command = [sys.executable, "-c", MEASURE, str(HERMES), "chat", "-q", "hi"]
    done = subprocess.run(
        command,
        env=world.environment,
        cwd=world.workspace,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert int(done.stdout) < 80_000, "kilobytes; the goal of the benchmark is 60,000"
