"""Models as a client chooses them: what is listed can be chosen, under the name it is listed with."""

import pytest

from hermes_agent.testing.server import ScriptedServer
from hermes_core import config
from hermes_core.paths import Home
from tests.rpc.harness import Client, Inside, RefusedError, World

OWN = ("OPENAI_BASE_URL", "OPENAI_API_KEY", "HERMES_MODEL")


@pytest.fixture
def settled(
    client: Inside, home: Home, model: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> Inside:
    """A client of a server whose settings name a model and its address."""
    for name in OWN:
        monkeypatch.delenv(name)
    config.change(home, "model.base_url", model.openai_url)
    config.change(home, "model.name", "scripted")
    return client


def listed(client: Client, sid: str) -> dict[str, bool]:
    models = client.call("model.options", session_id=sid)["models"]
    return {model["name"]: model["used"] for model in models}


@pytest.mark.parametrize("name", ["scripted", "local/scripted"])
def test_the_model_of_the_settings_is_chosen_by_either_name(
    settled: Inside, model: ScriptedServer, name: str
) -> None:
    sid = settled.open()
    assert listed(settled, sid) == {"local/scripted": True}
    result = settled.call("config.set", key="model", value=name, session_id=sid)
    assert result["value"] == "scripted"
    opened = settled.open(model=name)
    for number in (sid, opened):
        model.add("Here I am.")
        assert settled.say(number)["text"] == "Here I am."
        assert listed(settled, number) == {"local/scripted": True}


def test_the_model_of_the_settings_stays_listed_when_another_cannot_be_had(settled: Inside) -> None:
    sid = settled.open(model="anthropic/claude")
    assert listed(settled, sid) == {"local/scripted": False}
    settled.call("config.set", key="model", value="local/scripted", session_id=sid)
    assert listed(settled, sid) == {"local/scripted": True}


def test_what_the_server_of_the_settings_has_is_listed_once_a_provider(
    settled: Inside, model: ScriptedServer
) -> None:
    model.models = {"another": {}, "scripted": {}, "other": {}}
    sid = settled.open()
    for label in ("local/scripted", "local/other"):
        settled.call("config.set", key="model", value=label, session_id=sid)
        result = settled.call("model.options", session_id=sid)
        assert [row["name"] for row in result["models"] if row["used"]] == [label]
        [provider] = result["providers"]
        assert (provider["slug"], provider["total_models"]) == ("local", 3)
        assert provider["models"] == ["local/scripted", "local/another", "local/other"]


def test_a_server_that_is_down_is_listed_with_the_model_of_the_settings(
    settled: Inside, model: ScriptedServer
) -> None:
    model.close()
    result = settled.call("model.options")
    assert [row["name"] for row in result["models"]] == ["local/scripted"]
    assert [row["slug"] for row in result["providers"]] == ["local"]


def test_every_model_at_the_address_of_the_settings_can_be_chosen(
    settled: Inside, home: Home, model: ScriptedServer
) -> None:
    config.change(home, "model.name", "")
    model.models = {"scripted": {}, "other": {}}
    sid = settled.open()
    for label in listed(settled, sid):
        settled.call("config.set", key="model", value=label, session_id=sid)
        model.add("hi")
        settled.say(sid)
        assert model.model_requests[-1].json["model"] == label.removeprefix("local/")


def test_every_model_at_the_address_of_the_environment_can_be_chosen(
    client: Inside, model: ScriptedServer
) -> None:
    model.models = {"scripted": {}, "other": {}}
    sid = client.open()
    assert listed(client, sid) == {"local/scripted": True, "local/other": False}
    client.call("config.set", key="model", value="local/other", session_id=sid)
    model.add("hi")
    client.say(sid)
    assert model.model_requests[-1].json["model"] == "other"
    with pytest.raises(RefusedError, match="No local server has the model third"):
        client.call("config.set", key="model", value="local/third", session_id=sid)


def test_a_process_takes_the_label_too(world: World, home: Home, model: ScriptedServer) -> None:
    config.change(home, "model.base_url", model.openai_url)
    config.change(home, "model.name", "scripted")
    for name in OWN:
        del world.environment[name]
    process = world.start()
    model.add("hi")
    assert process.say(process.open(model="local/scripted"))["text"] == "hi"
