"""Plugins hear once that a conversation began, whatever made it: a message, a title or a branch."""

from collections.abc import Iterator

import pytest

from hermes_agent.testing.scripted import Quiet, say, silence
from hermes_agent.testing.server import ScriptedServer
from hermes_cli import plugins
from hermes_core.paths import Home
from hermes_state.ledger import turns
from hermes_state.values import NewSession
from tests.rpc.harness import TIMEOUT_S, Inside, World
from tests.support.faults import eventually
from tests.support.plugins import DEADLY, enable

Starts = list[tuple[str, str]]


@pytest.fixture
def starts() -> Iterator[Starts]:
    calls: Starts = []
    plugins.register_hook(
        "on_session_start", lambda session_id, model: calls.append((session_id, model))
    )
    yield calls


def test_a_title_begins_a_conversation_and_its_first_message_not_again(
    client: Inside, model: ScriptedServer, starts: Starts
) -> None:
    model.add("hello")
    opened = client.call("session.create")
    client.call("session.title", session_id=opened["session_id"], title="Tea")
    assert starts == [(opened["stored_session_id"], "scripted")]
    client.call("session.title", session_id=opened["session_id"], title="Coffee")
    client.say(opened["session_id"])
    assert len(starts) == 1


def test_a_branch_begins_a_conversation(
    client: Inside, model: ScriptedServer, starts: Starts
) -> None:
    model.add("one", "two")
    sid = client.open()
    client.say(sid)
    branch = client.call("session.branch", session_id=sid)
    client.say(branch["session_id"])
    assert starts[1:] == [(branch["stored_session_id"], "scripted")]


def test_a_first_prompt_that_is_stopped_before_it_runs_has_begun_its_conversation(
    client: Inside, model: ScriptedServer, starts: Starts
) -> None:
    quiet = Quiet()
    model.add(silence(quiet), "and now")
    opened = client.call("session.create")
    sid = opened["session_id"]
    client.call("prompt.submit", session_id=sid, text="no, wait")
    client.call("session.interrupt", session_id=sid)
    client.event("message.complete", status="interrupted")
    quiet.release()
    client.event("session.info", running=False)
    eventually(lambda: bool(starts), "the hook, which an interrupt does not wait for")
    assert [session_id for session_id, _ in starts] == [opened["stored_session_id"]]
    client.say(sid, "now")
    assert len(starts) == 1


def test_a_first_prompt_of_a_process_that_is_gone_begins_its_conversation(
    client: Inside, world: World, model: ScriptedServer, starts: Starts
) -> None:
    model.add("here I am")
    with world.store() as store:
        message = {"role": "user", "content": "anybody?"}
        store.write(
            turns.accept,
            "left",
            message,
            new_session=NewSession("tui", {"cwd": str(world.workspace)}),
        )
    client.call("session.resume", session_id="left")
    client.event("message.complete", text="here I am")
    assert starts == [("left", "scripted")]


def test_a_kill_before_the_first_run_does_not_hide_the_beginning(world: World, home: Home) -> None:
    path = home.root / "began.txt"
    enable(home, "deadly", DEADLY.format(path=str(path)))
    first = world.start()
    opened = first.call("session.create")
    key = opened["stored_session_id"]
    first.call("prompt.submit", session_id=opened["session_id"], text="hello")
    assert first.process.wait(TIMEOUT_S) == 9
    world.model.add(say("here I am"))
    second = world.start()
    second.call("session.resume", session_id=key)
    second.event("message.complete", text="here I am")
    assert path.read_text().split() == [key, key]
