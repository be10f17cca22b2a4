"""What a turn asks a person: shown, answered, withdrawn, found again."""

import pytest

from hermes_agent.testing.scripted import call, say
from hermes_agent.testing.server import ScriptedServer
from hermes_state.ledger import questions
from tests.rpc.harness import Inside, RefusedError, World

DANGEROUS = "rm -rf *"


def open_question(client: Inside, model: ScriptedServer) -> tuple[str, str]:
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
    precious = world.workspace / "precious"
    precious.mkdir()
    sid, request_id = open_question(client, model)
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
    sid, request_id = open_question(client, model)
    later = Inside()
    later.call("session.activate", session_id=sid)
    assert later.event("approval.request")["request_id"] == request_id
    result = later.call(
        "approval.respond", session_id=sid, choice="deny", request_id=request_id, all=True
    )
    assert result == {"resolved": 1}
    assert client.event("question.settled")["answer"] == "deny"


@pytest.mark.parametrize(
    ("command", "remembers", "choices"),
    [
        (
            "rm -rf *",
            "exactly this command in {}, for the same reasons",
            ["once", "session", "always", "deny"],
        ),
        ("sudo ls", "", ["once", "deny"]),
    ],
)
def test_an_approval_says_what_a_lasting_yes_is_for(
    client: Inside,
    world: World,
    model: ScriptedServer,
    command: str,
    remembers: str,
    choices: list[str],
) -> None:
    model.add(call("terminal", command=command), say("All right."))
    sid = client.open(cwd=str(world.workspace))
    client.call("prompt.submit", session_id=sid, text="do it")
    payload = client.event("approval.request")
    if remembers:
        remembers = f'"For this conversation" and "always" cover {remembers.format("~/work")}.'
    assert (payload["remembers"], payload["choices"]) == (remembers, choices)
    assert remembers not in payload["description"] or not remembers
    assert payload["allow_permanent"] is bool(remembers)
    later = Inside()
    later.call("session.activate", session_id=sid)
    assert later.event("approval.request")["remembers"] == remembers


def test_a_stop_withdraws_the_question(client: Inside, world: World, model: ScriptedServer) -> None:
    sid, request_id = open_question(client, model)
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
