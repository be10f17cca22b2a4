"""The server as a process: its greeting, its pipes, every way it can end, and what is left then."""

import json
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.testing.scripted import Quiet, Step, call, fail, say, silence
from hermes_agent.testing.server import Recorded, ScriptedServer
from hermes_core.errors import ModelError
from hermes_core.paths import Home
from hermes_state.ledger import messages, partials
from tests.rpc import kills
from tests.rpc.harness import TIMEOUT_S, Process, RefusedError, World
from tests.rpc.test_requests import Fuzz
from tests.support.plugins import enable
from tui_gateway.transport import MAX_LINE_BYTES

pytestmark = pytest.mark.e2e

KILLS = 10
"""Ends at random moments in one run of the tests; `make crash` has more."""


def speaking(world: World, process: Process) -> tuple[str, str]:
    """A session whose model has said half a sentence and fallen silent; returns it and its key."""
    quiet = Quiet()
    world.model.add(silence(quiet, after="I was say"))
    opened = process.call("session.create")
    process.call("prompt.submit", session_id=opened["session_id"], text="tell me")
    assert quiet.started.wait(TIMEOUT_S)
    process.wait_for_text("I was say")
    return opened["session_id"], opened["stored_session_id"]


def test_the_first_line_is_the_greeting_and_the_output_is_kept_for_the_protocol(
    world: World, home: Home
) -> None:
    enable(
        home,
        "loud",
        "import os\n"
        "def register(ctx):\n"
        "    print('noise from Python')\n"
        "    os.write(1, b'noise from below\\n')\n",
    )
    process = world.start()
    assert process.frames[0]["params"]["type"] == "gateway.ready"
    assert process.frames[0]["params"]["payload"]["skin"]["name"]
    process.open()
    process.event("session.info", lazy=None)
    process.hang_up()
    assert process.wait_for_end() == 0
    assert b"noise from Python" in process.errors
    assert b"noise from below" in process.errors


def test_a_plugin_that_never_loads_keeps_nobody_but_the_agent(world: World, home: Home) -> None:
    enable(home, "stuck", "import threading\nthreading.Event().wait()\ndef register(ctx): pass\n")
    process = world.start()
    opened = process.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    assert process.call("prompt.submit", session_id=sid, text="hello")["status"] == "streaming"
    assert process.call("session.list")["sessions"][0]["id"] == key
    with pytest.raises(RefusedError):
        process.call("no.such.method")
    process.call("session.interrupt", session_id=sid)
    process.event("message.complete", status="interrupted")
    process.signal(signal.SIGTERM)
    assert process.process.wait(TIMEOUT_S) == 0
    assert world.states(key) == ["interrupted"]


def leave(process: Process, how: str) -> None:
    """Have the server end, by one of the ways out."""
    if how == "closed input":
        process.hang_up()
    elif how == "closed output":
        process.stop_reading()
        process.post("session.active_list")
    elif how == "SIGINT twice":
        process.signal(signal.SIGINT)
        process.event("message.complete", status="interrupted")
        process.signal(signal.SIGINT)
    else:
        process.signal(signal.Signals[how])


WAYS_OUT = ("SIGTERM", "SIGHUP", "SIGINT twice", "closed input", "closed output")


@pytest.mark.parametrize("how", WAYS_OUT)
def test_every_way_out_stores_what_was_streamed_and_ends_the_conversation_in_time(
    world: World, how: str
) -> None:
    process = world.start()
    sid, key = speaking(world, process)
    process.call("prompt.submit", session_id=sid, text="and then")
    leave(process, how)
    assert process.process.wait(TIMEOUT_S) == 0
    assert world.row(key)["end_reason"] == "tui_shutdown"
    assert world.transcript(key)[:2] == [("user", "tell me"), ("assistant", "I was say")]
    with world.store() as store:
        kinds = {
            message["content"]: message["kind"] for message in store.read(messages.of_session, key)
        }
    assert kinds["I was say"] == "partial"
    states = world.states(key)
    assert states[0] == "interrupted"
    assert states[1] == ("interrupted" if how == "SIGINT twice" else "accepted")


def test_what_waited_when_the_process_ended_goes_on_when_it_is_resumed(world: World) -> None:
    process = world.start()
    sid, key = speaking(world, process)
    process.call("prompt.submit", session_id=sid, text="and then")
    process.signal(signal.SIGTERM)
    process.wait_for_end()
    world.model.add("Then this.")
    again = world.start()
    resumed = again.call("session.resume", session_id=key)
    assert again.event("message.complete")["text"] == "Then this."
    assert [message["text"] for message in resumed["messages"]][:2] == ["tell me", "I was say"]
    assert world.states(key) == ["interrupted", "answered"]


def killed_in_a_reply(world: World) -> str:
    """The conversation of a server that was killed in the middle of a long reply."""
    world.model.add(say("one " * 100, delay_s=0.1))
    process = world.start()
    opened = process.call("session.create")
    key: str = opened["stored_session_id"]
    process.call("prompt.submit", session_id=opened["session_id"], text="count")
    with world.store() as store:
        while not store.read(partials.of_session, key):
            process.event("message.delta")
    process.kill()
    return key


def test_what_was_streamed_when_the_server_was_killed_is_there_and_marked(world: World) -> None:
    key = killed_in_a_reply(world)
    again = world.start()
    result = again.call("session.history", session_id=key)
    user, partial = result["messages"]
    assert result["count"] == 2
    assert user["text"] == "count"
    assert partial["text"].startswith("one one one")
    assert partial["kind"] == "partial"
    world.model.add("One, two.")
    again.call("session.resume", session_id=key)
    assert again.event("message.complete")["text"] == "One, two."
    assert world.transcript(key) == [("user", "count"), ("assistant", "One, two.")]


def test_what_was_streamed_when_the_server_was_killed_stays_when_it_cannot_go_on(
    world: World,
) -> None:
    key = killed_in_a_reply(world)
    world.model.add(fail(ModelError("No more of that.")))
    again = world.start()
    again.call("session.resume", session_id=key)
    assert again.event("message.complete")["status"] == "error"
    (_, user), (role, partial) = world.transcript(key)
    assert (user, role) == ("count", "assistant")
    assert partial.startswith("one one one")
    with world.store() as store:
        assert store.read(messages.of_session, key)[-1]["kind"] == "partial"


def test_a_prompt_that_came_before_the_agent_was_there_outlives_the_process(world: World) -> None:
    answering = threading.Event()

    class SlowList(dict[str, Any]):
        def items(self) -> Any:
            answering.wait(TIMEOUT_S)
            return super().items()

    world.model.models = SlowList(scripted={})
    process = world.start(HERMES_MODEL_CONTEXT_WINDOW="0")  # so that the model's server is asked
    opened = process.call("session.create")
    process.call("prompt.submit", session_id=opened["session_id"], text="tell me")
    process.signal(signal.SIGTERM)
    assert process.wait_for_end() == 0
    key = opened["stored_session_id"]
    assert world.states(key) in (["accepted"], ["running"])  # open, whether it had begun or not
    assert world.row(key)["end_reason"] == "tui_shutdown"
    answering.set()
    world.model.add("Here it is.")
    again = world.start()
    again.call("session.resume", session_id=key)
    assert again.event("message.complete")["text"] == "Here it is."
    assert world.states(key) == ["answered"]


def test_a_single_interrupt_stops_the_turn_and_the_server_goes_on(world: World) -> None:
    process = world.start()
    sid, _ = speaking(world, process)
    process.signal(signal.SIGINT)
    assert process.event("message.complete")["status"] == "interrupted"
    world.model.add("still here")
    assert process.say(sid)["text"] == "still here"


def test_a_kill_in_the_middle_of_a_turn_loses_nothing_and_the_turn_is_answered_after_resuming(
    world: World,
) -> None:
    process = world.start()
    sid, key = speaking(world, process)
    process.call("prompt.submit", session_id=sid, text="and then")
    process.kill()
    assert world.states(key) == ["running", "accepted"]
    world.model.add("What I meant to say.", "Then this.")
    again = world.start()
    resumed = again.call("session.resume", session_id=key)
    texts = [again.event("message.complete")["text"] for _ in range(2)]
    assert texts == ["What I meant to say.", "Then this."]
    assert world.transcript(key) == [
        ("user", "tell me"),
        ("assistant", "What I meant to say."),
        ("user", "and then"),
        ("assistant", "Then this."),
    ]
    again.call("session.close", session_id=resumed["session_id"])
    assert world.row(key)["end_reason"] == "tui_close"


def test_a_tool_that_a_kill_cut_off_is_not_run_again(world: World) -> None:
    world.environment |= {"HERMES_APPROVALS_MODE": "allow", "HERMES_TOOLS_SANDBOX": "host"}
    mark = world.workspace / "mark"
    world.model.add(call("terminal", command=f"echo once >> {mark}; sleep 1000"))
    process = world.start()
    opened = process.call("session.create")
    process.call("prompt.submit", session_id=opened["session_id"], text="do it")
    process.event("tool.start")
    _until(mark.exists)
    process.kill()
    world.model.add("I do not know whether it ran.")
    again = world.start()
    again.call("session.resume", session_id=opened["stored_session_id"])
    assert again.event("message.complete")["status"] == "complete"
    assert mark.read_text() == "once\n"
    messages = [m for m in world.model.model_requests[-1].json["messages"] if m["role"] == "tool"]
    assert "unknown" in messages[0]["content"]


def _until(is_so: Any) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < end
        threading.Event().wait(0.02)


@pytest.mark.promise("P2")
@pytest.mark.parametrize("count", [3, pytest.param(KILLS, marks=pytest.mark.proof)])
def test_kills_at_random_moments_lose_nothing_that_was_acknowledged(
    tmp_path: Path, count: int
) -> None:
    found = kills.kill(tmp_path, count, seed=7)
    assert found.notes == []
    assert found.kills == count
    assert found.acknowledged > count


def _echo(recorded: Recorded) -> Step:
    last = recorded.json["messages"][-1]
    return say(f"answer to {last['content']}")


def test_conversations_that_a_dead_process_left_open_are_ended_at_the_next_start(
    world: World, model: ScriptedServer
) -> None:
    model.add("one", "two", "three")
    dead, alive = world.start(), world.start()
    abandoned, other = dead.call("session.create"), alive.call("session.create")
    dead.say(abandoned["session_id"])
    alive.say(other["session_id"])
    unfinished = dead.call("session.create")
    quiet = Quiet()
    model._steps.clear()
    model.add(silence(quiet))
    dead.call("prompt.submit", session_id=unfinished["session_id"], text="tell me")
    assert quiet.started.wait(TIMEOUT_S)
    dead.kill()
    assert world.row(abandoned["stored_session_id"])["ended_at"] is None
    again = world.start()
    for orphan in (abandoned, unfinished):
        _until(lambda key=orphan["stored_session_id"]: world.row(key)["ended_at"] is not None)
        assert world.row(orphan["stored_session_id"])["end_reason"] == "tui_orphan"
    assert world.row(other["stored_session_id"])["ended_at"] is None, "it is open elsewhere"
    pending = {row["id"]: row["pending"] for row in again.call("session.list")["sessions"]}
    assert pending[unfinished["stored_session_id"]] == 1, "who looks for it sees that it waits"
    assert pending[abandoned["stored_session_id"]] == 0
    model.add("Here it is.")
    again.call("session.resume", session_id=unfinished["stored_session_id"])
    assert again.event("message.complete")["text"] == "Here it is."
    assert world.row(unfinished["stored_session_id"])["ended_at"] is None, "it is open again"


def test_a_line_of_ten_megabytes_is_dealt_with_and_a_longer_one_refused(world: World) -> None:
    process = world.start()
    sid = process.open()
    process.send(b"{" + b"x" * 10_000_000)
    assert process.wait(lambda f: f.get("error", {}).get("code") == -32700)
    process.send(
        json.dumps(
            {
                "id": "big",
                "method": "prompt.submit",
                "params": {"session_id": sid, "text": "x" * 10**7},
            }
        ).encode()
    )
    assert process.wait(lambda f: f.get("id") == "big")["error"]["code"] == 4004
    start = len(process.frames)
    process.send(b"y" * (MAX_LINE_BYTES + 10))
    assert process.wait(lambda f: f.get("error", {}).get("code") == -32700, start)
    assert process.call("session.active_list")["sessions"]


def test_thousands_of_broken_lines_do_not_end_the_process(world: World) -> None:
    process = world.start()
    fuzz = Fuzz(11, [process.open(), process.open()])
    for _ in range(3000):
        process.send(fuzz.line().replace(b"\n", b" ") or b" ")
    number = process.post("session.create")
    assert process.answer(number)["session_id"]
    process.hang_up()
    assert process.wait_for_end() == 0
    assert b"gateway-crash" not in process.errors


def test_a_client_that_never_reads_does_not_keep_the_server_from_ending(world: World) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "tui_gateway.entry"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=world.workspace,
        env=world.environment,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    request = json.dumps({"id": 1, "method": "x" * 150}).encode() + b"\n"
    for _ in range(20_000):
        child.stdin.write(request)
    child.stdin.flush()
    assert select.select([child.stdout], [], [], TIMEOUT_S)[0]
    child.stdin.close()
    assert child.wait(TIMEOUT_S) == 0
    child.stdout.close()


def test_what_was_asked_before_the_input_was_closed_is_still_answered(world: World) -> None:
    process = world.start()
    opened = process.call("session.create")
    world.model.add("hi")
    process.say(opened["session_id"])
    close = process.post("session.close", session_id=opened["session_id"])
    listing = process.post("session.list")
    process.hang_up()
    assert process.wait_for_end() == 0
    assert process.answer(close) == {"closed": True}
    assert len(process.answer(listing)["sessions"]) == 1
    assert world.row(opened["stored_session_id"])["end_reason"] == "tui_close"


def test_several_sessions_run_at_the_same_time(world: World) -> None:
    world.model._make = _echo
    process = world.start()
    opened = [process.call("session.create") for _ in range(8)]
    for turn in range(3):
        for session in opened:
            process.post("prompt.submit", session_id=session["session_id"], text=f"turn {turn}")
    _until(lambda: len(process.events("message.complete")) == 24)
    for session in opened:
        messages = world.transcript(session["stored_session_id"])
        assert [text for _, text in messages[1::2]] == [f"answer to turn {n}" for n in range(3)]


def test_what_nobody_caught_is_written_down(world: World, home: Home) -> None:
    code = (
        "import sys, threading\n"
        "from tui_gateway import entry\n"
        "def serve():\n"
        "    thread = threading.Thread(target=lambda: 1 / 0)\n"
        "    thread.start()\n"
        "    thread.join()\n"
        "    entry._exit_requests.put('done')\n"
        "sys.exit(entry._supervise(serve, lambda: None))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=world.environment, timeout=TIMEOUT_S
    )
    assert done.returncode == 0
    assert b"[gateway-crash] ZeroDivisionError" in done.stderr
    log = home.logs / "tui_gateway_crash.log"
    assert "division by zero" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
