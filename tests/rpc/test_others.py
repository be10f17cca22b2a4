"""Several clients in one session: what one of them changes, the others are told."""

from contextlib import suppress
from typing import Any

import pytest

from hermes_agent.testing.scripted import say
from hermes_agent.testing.server import ScriptedServer
from tests.rpc.serving import Inside, RefusedError


@pytest.fixture
def other(client: Inside) -> Inside:
    """A second client of the same server."""
    del client
    return Inside()


@pytest.fixture
def shared(client: Inside, other: Inside, model: ScriptedServer) -> str:
    """A session that both show, with something to take back and to shorten in it."""
    sid = client.open(title="Shared")
    for number in range(6):
        model.add(say("reply " * 300))
        client.say(sid, f"question {number} " * 150)
    other.call("session.activate", session_id=sid)
    return sid


@pytest.mark.parametrize(
    ("method", "params", "reason"),
    [
        ("session.undo", {}, "undo"),
        ("slash.exec", {"command": "/undo 2"}, "undo"),
        ("slash.exec", {"command": "/retry"}, "undo"),
        ("session.compress", {}, "compress"),
        ("slash.exec", {"command": "/compress"}, "compress"),
        ("slash.exec", {"command": "/new"}, "open"),
        ("slash.exec", {"command": "/branch"}, "open"),
        ("command.dispatch", {"name": "branch"}, "open"),
    ],
)
def test_the_others_are_told_that_what_they_show_has_changed(
    client: Inside,
    other: Inside,
    shared: str,
    model: ScriptedServer,
    method: str,
    params: dict[str, Any],
    reason: str,
) -> None:
    model.add(say("## Goal\nTalk about questions.\n## Next step\nGo on."))
    client.call(method, session_id=shared, **params)
    told = other.event("session.changed")
    assert told["reason"] == reason
    now = other.call("session.activate", session_id=shared)
    assert now["stored_session_id"] == told["stored_session_id"]
    assert client.events("session.changed") == [], "who asked has an answer"


def test_the_others_are_told_of_a_prompt_that_replaces_an_earlier_one(
    client: Inside, other: Inside, shared: str, model: ScriptedServer
) -> None:
    model.add("three")
    client.say(shared, "instead", truncate_before_user_ordinal=1)
    assert other.event("session.changed")["reason"] == "undo"
    assert other.event("message.start")["user"] == "instead"


@pytest.mark.parametrize("command", ["/usage", "/undo nonsense", "/compress"])
def test_what_changes_nothing_is_not_told(
    client: Inside, other: Inside, model: ScriptedServer, command: str
) -> None:
    sid = client.open()
    model.add("hi")
    client.say(sid)
    other.call("session.activate", session_id=sid)
    with suppress(RefusedError):
        client.call("slash.exec", session_id=sid, command=command)
    client.call("session.title", session_id=sid, title="That was it")
    other.event("session.title")
    assert other.events("session.changed") == []


def test_a_title_is_told_however_its_conversation_was_named(
    client: Inside, other: Inside, shared: str
) -> None:
    client.call("session.title", session_id="Shared", title="Renamed")
    assert other.event("session.title")["title"] == "Renamed"
    client.call("slash.exec", session_id=shared, command="/title Again")
    assert other.event("session.title")["title"] == "Again"
