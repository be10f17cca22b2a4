"""Several clients in one session: what one of them changes, the others are told."""

from contextlib import suppress
from typing import Any

import pytest

from hermes_agent.testing.scripted import Quiet, say, silence
from hermes_agent.testing.server import ScriptedServer
from tests.rpc.harness import TIMEOUT_S, Inside, RefusedError


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
    payload = other.event("session.changed")
    assert payload["reason"] == reason
    now = other.call("session.activate", session_id=shared)
    assert now["stored_session_id"] == payload["stored_session_id"]
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


def busy(client: Inside, other: Inside, model: ScriptedServer) -> tuple[str, Quiet]:
    """A session that both show, and its turn, which goes on when it is told to."""
    sid, quiet = client.open(), Quiet()
    model.add(silence(quiet, then="Here I am."))
    other.call("session.activate", session_id=sid)
    client.call("prompt.submit", session_id=sid, text="one")
    assert quiet.started.wait(TIMEOUT_S)
    return sid, quiet


def test_every_client_is_told_what_waits_and_when_it_waits_no_more(
    client: Inside, other: Inside, model: ScriptedServer
) -> None:
    sid, quiet = busy(client, other, model)
    two = client.call("prompt.submit", session_id=sid, text="two")["turn_id"]
    three = client.call("prompt.submit", session_id=sid, text="three")["turn_id"]
    first, second = {"turn_id": two, "text": "two"}, {"turn_id": three, "text": "three"}
    for each in (client, other):
        assert each.event("prompt.queue") == {"queued": [first], "dropped": []}
        assert each.event("prompt.queue") == {"queued": [first, second], "dropped": []}
    other.call("prompt.unqueue", session_id=sid, turn_id=three)
    assert client.event("prompt.queue") == {"queued": [first], "dropped": []}
    model.add("second")
    quiet.release()
    assert client.event("prompt.queue") == {"queued": [], "dropped": []}
    assert client.event("message.start")["turn_id"] == two


def test_a_stop_tells_whoever_sent_what_waited_that_it_was_dropped(
    client: Inside, other: Inside, model: ScriptedServer
) -> None:
    sid, _ = busy(client, other, model)
    two = client.call("prompt.submit", session_id=sid, text="two")["turn_id"]
    client.event("prompt.queue")
    other.call("session.interrupt", session_id=sid)
    for each in (client, other):
        assert each.event("prompt.queue", queued=[]) == {"queued": [], "dropped": [two]}


def test_nothing_is_told_of_a_line_in_which_nobody_waits(
    client: Inside, model: ScriptedServer
) -> None:
    sid = client.open()
    model.add("one", "two")
    client.say(sid)
    client.say(sid)
    client.event("session.info", running=False)
    assert client.events("prompt.queue") == []
