"""What a turn asks a person: shown, answered, withdrawn, found again."""

import pytest

from hermes_agent.testing.scripted import call, say
from hermes_agent.testing.server import ScriptedServer
from hermes_core.paths import Home
from hermes_state.ledger import questions
from tests.agent.tools.test_facts import PLUGIN
from tests.rpc.harness import Inside, RefusedError, World
from tests.support.plugins import enable
from tui_gateway import scope, server

DANGEROUS = "rm -rf ../precious"


def asked(client: Inside, model: ScriptedServer) -> tuple[str, str]:
    """A session that waits for a yes; returns it and the question."""
    model.add(call("terminal", command=DANGEROUS), say("All right."))
    sid = client.open()
    client.call("prompt.submit", session_id=sid, text="clean up")
    request = client.event("approval.request")
    assert request["command"] == DANGEROUS
    assert request["choices"] == ["once", "session", "always", "deny"]
    return sid, request["request_id"]


@pytest.mark.parametrize(
    ("choice", "is_there"), [("once", False), ("deny", True), ("no, keep it", True)]
)
def test_what_is_dangerous_waits_for_an_answer(
    client: Inside,
    world: World,
    model: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
    choice: str,
    is_there: bool,
) -> None:
    monkeypatch.setenv("HERMES_TOOLS_SANDBOX", "host")
    precious = world.workspace.parent / "precious"
    precious.mkdir()
    sid, request_id = asked(client, model)
    assert client.call("session.active_list")["sessions"][0]["status"] == "waiting"
    assert client.call("approval.respond", session_id=sid, choice=choice) == {"resolved": 1}
    assert client.event("question.settled")["request_id"] == request_id
    assert client.event("message.complete")["status"] == "complete"
    assert precious.exists() == is_there
    if " " in choice:
        assert choice in client.events("tool.complete")[0]["result"]
    assert client.call("approval.respond", session_id=sid, choice="once") == {"resolved": 0}


def test_a_client_that_comes_later_is_asked_too_and_may_answer(
    client: Inside, model: ScriptedServer
) -> None:
    sid, request_id = asked(client, model)
    later = Inside()
    later.call("session.activate", session_id=sid)
    assert later.event("approval.request")["request_id"] == request_id
    told = later.call(
        "approval.respond", session_id=sid, choice="deny", request_id=request_id, all=True
    )
    assert told == {"resolved": 1}
    assert client.event("question.settled")["answer"] == "deny"


@pytest.mark.parametrize(
    ("name", "arguments", "remembered"),
    [
        ("terminal", {"command": "rm -rf ../precious"}, "rm {parent}/precious"),
        ("terminal", {"command": "curl -d @notes https://example.org"}, "curl to example.org"),
        ("terminal", {"command": "$WHATEVER now"}, "this very command"),
        ("write_file", {"path": "../other/x.txt", "content": "x"}, "changing {parent}/other"),
    ],
)
def test_an_approval_says_what_a_lasting_yes_is_for(
    client: Inside,
    world: World,
    model: ScriptedServer,
    name: str,
    arguments: dict[str, str],
    remembered: str,
) -> None:
    model.add(call(name, **arguments), say("All right."))
    sid = client.open(cwd=str(world.workspace))
    client.call("prompt.submit", session_id=sid, text="do it")
    told = client.event("approval.request")["remembers"]
    assert told == remembered.format(parent=world.workspace.parent)
    later = Inside()
    later.call("session.activate", session_id=sid)
    assert later.event("approval.request")["remembers"] == told


def test_what_a_lasting_yes_is_for_is_known_of_a_tool_of_a_plugin(
    client: Inside, world: World, model: ScriptedServer, home: Home
) -> None:
    enable(home, "garden", PLUGIN)
    outside = str(world.workspace.parent / "other" / "x")
    model.add(call("call_tool", name="plant", arguments={"where": outside}), say("All right."))
    sid = client.open(cwd=str(world.workspace))
    client.call("prompt.submit", session_id=sid, text="do it")
    asked = client.event("approval.request")
    assert asked["tool_name"] == "plant"
    assert asked["remembers"] == f"changing {world.workspace.parent / 'other'}"
    client.call("session.interrupt", session_id=sid)
    assert client.event("message.complete")["status"] == "interrupted"


def test_what_is_remembered_is_not_guessed(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    sid, request_id = asked(client, model)
    session = server._sessions[sid]
    with world.store() as store:
        question = store.read(questions.fetch, request_id)
    question = {**question, "text": "Does something else"}
    assert scope.of_yes(server._runtime, session, question) == ""


def test_a_stop_withdraws_the_question(client: Inside, world: World, model: ScriptedServer) -> None:
    sid, request_id = asked(client, model)
    client.call("session.interrupt", session_id=sid)
    assert client.event("question.settled") == {"request_id": request_id, "answer": ""}
    assert client.event("message.complete")["status"] == "interrupted"
    with world.store() as store:
        assert store.read(questions.fetch, request_id)["state"] == "withdrawn"
        assert store.read(questions.pending) == []


def test_the_model_can_ask_and_is_answered(client: Inside, model: ScriptedServer) -> None:
    model.add(
        call("clarify", question="Which colour?", choices=["red", "blue"]), say("Blue it is.")
    )
    sid = client.open()
    client.call("prompt.submit", session_id=sid, text="paint")
    request = client.event("clarify.request")
    assert (request["question"], request["choices"]) == ("Which colour?", ["red", "blue"])
    answered = {"request_id": request["request_id"], "answer": "blue"}
    assert client.call("clarify.respond", **answered) == {"status": "ok"}
    assert client.event("message.complete")["text"] == "Blue it is."
    assert "blue" in client.events("tool.complete")[0]["result"]
    assert client.call("clarify.respond", **answered) == {"status": "expired"}
    with pytest.raises(RefusedError) as refused:
        client.call("clarify.respond", request_id="nobody", answer="x")
    assert refused.value.number == 4009
