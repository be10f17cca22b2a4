"""What plugins hear when the server ends, and what the shipped journal makes of it."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.testing.scripted import Quiet, say, silence
from hermes_core import config
from hermes_core.paths import Home
from tests.rpc.harness import TIMEOUT_S, Process, World
from tests.rpc.test_process import WAYS_OUT, leave, speaking
from tests.support.faults import eventually
from tests.support.plugins import enable

pytestmark = pytest.mark.promise("P6")

LISTENER = """
import json
from pathlib import Path

def register(ctx):
    def note(hook, **told):
        with Path({path!r}).open("a") as file:
            file.write(json.dumps([hook, told]) + "\\n")

    @ctx.hook("on_session_end")
    def ended(session_id, interrupted):
        note("end", session_id=session_id, interrupted=interrupted)
        {trouble}

    @ctx.hook("on_session_finalize")
    def finalized(session_id, platform):
        note("finalize", session_id=session_id, platform=platform)

    @ctx.hook("on_session_lost")
    def lost(session_id, platform):
        note("lost", session_id=session_id, platform=platform)

    class Memory:
        def on_session_end(self, messages):
            note("learn", texts=[message["content"] for message in messages])

    ctx.memory_provider("listener", Memory)
"""


def listening(home: Home, trouble: str = "") -> Path:
    """Enable a plugin that writes down which ends it hears; returns the file."""
    journal = home.root / "told.jsonl"
    enable(home, "listener", LISTENER.format(path=str(journal), trouble=trouble or "pass"))
    return journal


def ends_of(journal: Path) -> list[list[object]]:
    return [json.loads(line) for line in journal.read_text().splitlines()]


def shortened(world: World, process: Process) -> tuple[str, str, str]:
    """A conversation that was moved by a compaction; returns it, its former id and the present one."""
    opened = process.call("session.create")
    sid, old = opened["session_id"], opened["stored_session_id"]
    for number in range(4):
        world.model.add(say("reply " * 300))
        process.say(sid, f"question {number} " * 150)
    world.model.add(say("## Goal\nTalk about questions.\n## Next step\nGo on."))
    result = process.call("session.compress", session_id=sid)
    return sid, old, result["info"]["stored_session_id"]


@pytest.mark.parametrize("how", WAYS_OUT)
def test_plugins_hear_the_end_once_and_of_the_session_the_agent_is_in_now(
    world: World, home: Home, how: str
) -> None:
    journal = listening(home)
    process = world.start()
    sid, old, new = shortened(world, process)
    assert new != old
    quiet = Quiet()
    world.model.add(silence(quiet, after="I was say"))
    process.call("prompt.submit", session_id=sid, text="tell me")
    assert quiet.started.wait(TIMEOUT_S)
    process.wait_for_text("I was say")
    process.open()  # nothing was said in it, so there is nothing to end
    leave(process, how)
    assert process.process.wait(TIMEOUT_S) == 0
    assert [event for event in ends_of(journal) if event[0] != "learn"] == [
        ["end", {"session_id": new, "interrupted": True}],
        ["finalize", {"session_id": new, "platform": "tui"}],
    ]
    assert world.row(new)["end_reason"] == "tui_shutdown"
    assert world.row(old)["end_reason"] == "compression"
    with world.store() as store:
        assert store.session_count() == 1, "nothing is left of the empty one"


@pytest.mark.parametrize("trouble", ["raise ZeroDivisionError", "import os; os.read(0, 1)"])
def test_a_plugin_that_fails_or_hangs_does_not_keep_the_server(
    world: World, home: Home, trouble: str
) -> None:
    journal = listening(home, trouble)
    world.command = [sys.executable, "-m", "tui_gateway.entry"]
    process = world.start()
    _, key = speaking(world, process)
    process.signal(signal.SIGTERM)
    assert process.process.wait(TIMEOUT_S) == 0
    assert world.transcript(key) == [("user", "tell me"), ("assistant", "I was say")]
    is_over = trouble.startswith("raise")
    assert [hook for hook, _ in ends_of(journal)] == ["learn", "end", *["finalize"] * is_over]
    assert world.row(key)["end_reason"] == "tui_shutdown"


def server_told_of_a_cat(world: World) -> tuple[Process, Any]:
    """A server, and the session in which it was told something worth remembering."""
    world.model.add("Noted.")
    process = world.start()
    opened = process.call("session.create")
    process.say(opened["session_id"], "My cat is called Tom.")
    return process, opened


def test_what_a_dead_process_left_open_is_closed_as_on_every_surface(
    world: World, home: Home
) -> None:
    path = listening(home)
    process, opened = server_told_of_a_cat(world)
    process.kill()
    assert not path.exists()
    world.start()
    eventually(lambda: path.exists() and len(ends_of(path)) == 4)
    key = opened["stored_session_id"]
    assert ends_of(path) == [
        ["lost", {"session_id": key, "platform": "tui"}],
        ["learn", {"texts": ["My cat is called Tom.", "Noted."]}],
        ["end", {"session_id": key, "interrupted": True}],
        ["finalize", {"session_id": key, "platform": "tui"}],
    ]
    assert world.row(key)["end_reason"] == "tui_orphan"


def test_a_conversation_that_no_agent_could_be_made_for_is_closed_as_all_others(
    world: World, home: Home
) -> None:
    path = listening(home)
    process, opened = server_told_of_a_cat(world)
    process.call("session.close", session_id=opened["session_id"])
    before, key = ends_of(path), opened["stored_session_id"]
    assert [hook for hook, _ in before] == ["learn", "end", "finalize"]
    without_model = world.start(OPENAI_BASE_URL="", OPENAI_API_KEY="", HERMES_MODEL="")
    resumed = without_model.call("session.resume", session_id=key)
    without_model.event("session.info", lazy=True)
    without_model.call("session.close", session_id=resumed["session_id"])
    assert ends_of(path) == [*before, *before]


@pytest.mark.parametrize(
    "trouble", ["raise ZeroDivisionError", "import threading; threading.Event().wait()"]
)
def test_a_plugin_that_fails_or_hangs_at_what_was_left_does_not_keep_the_server(
    world: World, home: Home, trouble: str
) -> None:
    path = listening(home, trouble)
    process = world.start()
    keys: list[str] = []
    for _ in range(2):
        world.model.add("Noted.")
        opened = process.call("session.create")
        process.say(opened["session_id"], "hello")
        keys.append(opened["stored_session_id"])
    process.kill()
    again = world.start()
    eventually(lambda: path.exists() and "end" in [hook for hook, _ in ends_of(path)])
    assert [world.row(key)["end_reason"] for key in keys] == ["tui_orphan"] * 2
    world.model.add("Here I am.")
    resumed = again.call("session.resume", session_id=keys[0])
    assert again.say(resumed["session_id"])["text"] == "Here I am."


def journal(world: World) -> dict[str, str]:
    """What `hermes recovery` tells a person: the session, and how it was cut off."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("hermes")), "recovery", "list", "--json"],
        capture_output=True,
        env=world.environment,
        timeout=TIMEOUT_S,
        check=True,
    )
    return {row["session_id"]: row["how"] for row in json.loads(done.stdout)}


@pytest.mark.parametrize("how", [*WAYS_OUT, "SIGKILL"])
def test_the_shipped_journal_lists_what_was_lost_and_nothing_that_could_still_end(
    world: World, home: Home, how: str
) -> None:
    config.change(home, "plugins.enabled", ["crash_recovery"])
    process = world.start()
    _, _, new = shortened(world, process)
    _, cut = speaking(world, process)
    assert journal(world) == {}, "they are open in a process that lives"
    if how == "SIGKILL":
        process.kill()
    else:
        leave(process, how)
        assert process.process.wait(TIMEOUT_S) == 0
    if how != "SIGKILL":
        assert journal(world) == {}, "the end was orderly: nothing has to be recovered"
        return
    assert journal(world) == {new: "lost", cut: "lost"}, "each under the id it has now"
    world.model.add("What I meant to say.")
    again = world.start()
    again.call("session.resume", session_id=cut)
    assert again.event("message.complete")["text"] == "What I meant to say."
    assert journal(world) == {new: "lost"}
    again.call("session.resume", session_id=new)
    again.signal(signal.SIGTERM)
    assert again.process.wait(TIMEOUT_S) == 0
    assert journal(world) == {}
