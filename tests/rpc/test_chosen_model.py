"""The model that was chosen for a conversation: it goes on with it, whatever happened to the server."""

import pytest

from hermes_agent.testing.server import ScriptedServer
from tests.rpc.harness import Client, Inside, World


def requested_model(model: ScriptedServer) -> str:
    return model.model_requests[-1].json["model"]


@pytest.fixture
def choice(model: ScriptedServer) -> ScriptedServer:
    """A server with two models, of which the settings name the first."""
    model.models = {"scripted": {}, "other": {}}
    return model


def spoken(client: Client, served: ScriptedServer, **params: str) -> tuple[str, str]:
    """A conversation with something in it: its session and its id in the store."""
    opened = client.call("session.create", **params)
    served.add("hi")
    client.say(opened["session_id"])
    return opened["session_id"], opened["stored_session_id"]


def test_a_conversation_goes_on_with_its_model_after_a_kill(
    world: World, choice: ScriptedServer
) -> None:
    process = world.start()
    sid, key = spoken(process, choice)
    process.call("config.set", key="model", value="local/other", session_id=sid)
    process.kill()
    again = world.start()
    resumed = again.call("session.resume", session_id=key)
    choice.add("still me")
    again.say(resumed["session_id"])
    assert requested_model(choice) == "other"
    value = again.call("config.get", key="model", session_id=resumed["session_id"])["value"]
    assert value == "local/other"


def test_a_model_that_is_chosen_before_the_first_message_is_remembered_too(
    client: Inside, world: World, choice: ScriptedServer
) -> None:
    sid = client.open()
    client.call("config.set", key="model", value="local/other", session_id=sid)
    opened = client.call("session.create", model="local/other")
    for number in (sid, opened["session_id"]):
        choice.add("hi")
        client.say(number)
        key = client.call("session.activate", session_id=number)["stored_session_id"]
        client.call("session.close", session_id=number)
        resumed = client.call("session.resume", session_id=key)
        assert resumed["info"]["model"] == "local/other"
        choice.add("still me")
        client.say(resumed["session_id"])
        assert requested_model(choice) == "other"
    assert world.row(key)["model"] == "other"


def test_a_command_that_opens_another_conversation_follows_that_one(
    client: Inside, choice: ScriptedServer
) -> None:
    sid, key = spoken(client, choice, model="local/other")
    plain, _ = spoken(client, choice)
    client.call("session.close", session_id=sid)
    for command, name in ((f"/resume {key}", "other"), ("/branch", "other")):
        client.call("slash.exec", session_id=plain, command=command)
        choice.add("hi")
        client.say(plain)
        assert requested_model(choice) == name


def test_a_model_that_is_gone_is_told_and_the_one_of_the_settings_answers(
    world: World, choice: ScriptedServer
) -> None:
    process = world.start()
    _, key = spoken(process, choice, model="local/other")
    process.kill()
    both = dict(choice.models)
    for models, name in (({"scripted": {}}, "scripted"), (both, "other")):
        choice.models = models
        again = world.start()
        resumed = again.call("session.resume", session_id=key)
        choice.add("hi")
        again.say(resumed["session_id"])
        assert requested_model(choice) == name, "it is remembered until another one is chosen"
        again.kill()
        notices = [event["text"] for event in again.events("notification.show")]
        assert ["local/other" in text for text in notices] == [True] * (name == "scripted")
