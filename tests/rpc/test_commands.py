"""Slash commands, completion, settings, models and tools, as a client uses them."""

from typing import Any, cast

import pytest

from hermes_agent.testing.scripted import Quiet, Step, call, say
from hermes_agent.testing.server import ScriptedServer
from hermes_cli import plugins
from hermes_core import config
from hermes_core.paths import Home
from hermes_state import SessionDB
from tests.rpc.harness import TIMEOUT_S, Inside, RefusedError, World
from tests.support.faults import disk_full_at, eventually
from tests.support.plugins import enable
from tui_gateway import server

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)


def test_commands_are_the_same_as_on_every_surface(client: Inside, model: ScriptedServer) -> None:
    sid = client.open()
    model.add("hi")
    client.say(sid)
    result = client.call("slash.exec", session_id=sid, command="/title My talk")
    assert result == {"type": "exec", "output": "This conversation is called 'My talk'."}
    assert "My talk" in client.call("slash.exec", session_id=sid, command="status")["output"]
    result = client.call("command.dispatch", session_id=sid, name="usage", arg="")
    assert "scripted: 1 call," in result["output"]
    result = client.call("command.dispatch", session_id=sid, name="/exit")
    assert result["leave"]


def test_a_command_may_want_something_sent(client: Inside, model: ScriptedServer) -> None:
    sid = client.open()
    model.add("hi")
    client.say(sid, "the question")
    result = client.call("slash.exec", session_id=sid, command="/queue and then")
    assert (result["type"], result["message"]) == ("send", "and then")
    result = client.call("slash.exec", session_id=sid, command="/steer nobody runs")
    assert (result["type"], result["message"]) == ("send", "nobody runs")


def test_what_is_asked_again_replaces_what_was_asked_with_all_that_went_along(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    opened = client.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    model.add("a poor answer", "a better one")
    picture = world.workspace / "a.png"
    picture.write_bytes(PNG)
    client.say(sid, "what\tis it?", images=[str(picture)])
    first = model.model_requests[-1].json["messages"][-1]
    result = client.call("slash.exec", session_id=sid, command="/retry")
    assert result["session"]["messages"] == []
    running = result["session"]["inflight"]
    assert (running["user"], running["images"]) == ("what\tis it?", [str(picture)])
    assert running["assistant"] == "", "nothing was streamed of it yet"
    client.event("message.complete", text="a better one")
    assert model.model_requests[-1].json["messages"][-1] == first
    assert [role for role, _ in world.transcript(key)] == ["user", "assistant"]


def _store() -> SessionDB:
    return cast("SessionDB", server._get_db())


def test_what_cannot_be_asked_again_is_still_there(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    opened = client.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    model.add("hi")
    client.say(sid, "hello")
    before = world.transcript(key)
    with disk_full_at(_store(), "INSERT ON turns"), pytest.raises(RefusedError):
        client.call("slash.exec", session_id=sid, command="/retry")
    with disk_full_at(_store(), "INSERT ON turns"), pytest.raises(RefusedError):
        client.call("prompt.submit", session_id=sid, text="x", truncate_before_user_ordinal=0)
    assert world.transcript(key) == before


def test_where_all_is_taken_back_the_commands_say_that_there_is_nothing(
    client: Inside, model: ScriptedServer
) -> None:
    sid = client.open()
    model.add("hi")
    client.say(sid)
    client.call("slash.exec", session_id=sid, command="/undo")
    for command, complaint in (("/retry", "nothing to retry"), ("/undo", "nothing to undo")):
        with pytest.raises(RefusedError, match=complaint) as refused:
            client.call("slash.exec", session_id=sid, command=command)
        assert refused.value.number == 4008
        assert "compress" not in refused.value.data.get("fix", ""), "nothing was compacted"


def test_steering_by_command_is_told_when_it_was_heard(
    client: Inside, model: ScriptedServer
) -> None:
    sid = client.open()
    quiet = Quiet()
    model.add(Step(calls=call("todo").calls, quiet=quiet), say("In blue."))
    client.call("prompt.submit", session_id=sid, text="paint")
    assert quiet.started.wait(TIMEOUT_S)
    number = client.post("slash.exec", session_id=sid, command="/steer in blue")
    eventually(lambda: bool(server._live_of(server._sessions[sid]).steers), "the words")
    with pytest.raises(RefusedError):
        client.call("slash.exec", session_id=sid, command="/new")
    quiet.release()
    assert client.answer(number) == {"type": "exec", "output": "steered"}


def test_a_command_can_open_another_conversation_under_the_same_session(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    opened = client.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    model.add("one", "two", "three")
    client.say(sid, "first")
    result = client.call("slash.exec", session_id=sid, command="/new")
    fresh = result["session"]["stored_session_id"]
    assert result["session"]["session_id"] == sid
    assert result["session"]["messages"] == []
    assert world.row(key)["end_reason"] == "new_session"
    assert client.say(sid, "second")["text"] == "two"
    assert [text for _, text in world.transcript(fresh)] == ["second", "two"]
    result = client.call("slash.exec", session_id=sid, command=f"/resume {key}")
    assert [m["text"] for m in result["session"]["messages"]] == ["first", "one"]
    assert world.row(fresh)["end_reason"] == "resumed_other"
    assert world.row(key)["ended_at"] is None
    assert client.say(sid, "third")["text"] == "three"
    other = client.call("session.resume", session_id=fresh)
    with pytest.raises(RefusedError) as refused:
        client.call("slash.exec", session_id=other["session_id"], command=f"/resume {key}")
    assert refused.value.number == 4023


def test_the_catalogue_has_every_command_and_those_of_plugins(client: Inside, home: Home) -> None:
    enable(
        home,
        "greeter",
        "def register(ctx):\n"
        "    ctx.command('greet', lambda who: f'Hello, {who}.', description='Greets.')\n",
    )
    sid = client.open()
    catalog = client.call("commands.catalog")
    pairs = dict(catalog["pairs"])
    assert pairs["/greet"] == "Greets.", plugins.failures()
    assert pairs["/undo"]
    assert catalog["canon"]["/compact"] == "/compress"
    result = client.call("slash.exec", session_id=sid, command="/greet you")
    assert result == {"type": "plugin", "output": "Hello, you."}
    resolved = client.call("command.resolve", name="/fork")
    assert resolved["canonical"] == "branch"
    assert client.call("command.resolve", name="greet")["category"] == "Plugins"
    items = client.call("complete.slash", text="/gr")["items"]
    assert items == [{"text": "greet", "display": "/greet", "meta": "Greets."}]


@pytest.mark.parametrize(
    ("method", "params", "number"),
    [
        ("slash.exec", {"command": ""}, 4004),
        ("slash.exec", {"command": "/ "}, 4004),
        ("slash.exec", {"command": "/nonsense"}, 4011),
        ("slash.exec", {"command": "/approve maybe"}, 5030),
        ("slash.exec", {"command": "/steer"}, 4004),
        ("command.dispatch", {"name": ""}, 4004),
        ("command.resolve", {"name": "nonsense"}, 4011),
    ],
)
def test_a_command_that_cannot_be_says_why(
    client: Inside, method: str, params: dict[str, Any], number: int
) -> None:
    with pytest.raises(RefusedError) as refused:
        client.call(method, session_id=client.open(), **params)
    assert refused.value.number == number


def test_paths_are_completed_by_their_beginning_and_by_any_part_of_their_name(
    client: Inside, world: World
) -> None:
    for name in ("src/deep/engine.py", "src/main.py", "notes.txt", ".hidden", ".git/HEAD"):
        path = world.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * 2000)
    sid = client.open()

    def complete(word: str) -> list[str]:
        found = client.call("complete.path", session_id=sid, word=word)
        return [item["text"] for item in found["items"]]

    assert complete("") == ["src/", "notes.txt"]
    assert complete("src/ma") == ["src/main.py"]
    assert complete(".h") == [".hidden"]
    assert complete(f"{world.workspace}/no") == [f"{world.workspace}/notes.txt"]
    assert complete("@engine") == ["@src/deep/engine.py"]
    assert complete("@file:main") == ["@src/main.py"]
    assert complete("@smpy") == ["@src/main.py"]
    assert complete("@src/m") == ["@src/main.py"]
    assert "@notes.txt" in complete("@")
    assert complete("nowhere/x") == complete("~nobody/x") == complete("\0") == []
    slashes = client.call("complete.slash", text="/resume ")
    assert slashes == {"items": [], "replace_from": 8}
    assert client.call("complete.slash", text="hello")["items"] == []


def test_settings_are_read_and_changed(client: Inside, home: Home) -> None:
    sid = client.open()
    assert client.call("config.get", key="busy")["value"] == "queue"
    assert client.call("config.set", key="busy", value="steer") == {"key": "busy", "value": "steer"}
    assert config.load(home).terminal.busy == "steer"
    assert client.call("config.get", key="terminal.busy")["value"] == "steer"
    result = client.call("config.set", key="approvals.mode", value="off", session_id=sid)
    assert result["value"] == "allow"
    assert "from now on" in result["warning"]
    result = client.call("config.set", key="model", value="other", scope="global")
    assert "environment" in result["warning"]
    assert client.call("config.get", key="full")["config"]["agent"]["max_steps"] == 90
    assert client.call("config.get", key="mtime")["mtime"] > 0
    assert client.call("config.get", key="profile")["value"] == "default"
    assert client.call("config.get", key="model", session_id=sid)["value"] == "scripted"
    client.call("config.set", key="agent.max_steps", value=12)
    assert client.call("config.get", key="agent.max_steps")["value"] == 12
    names = [section["name"] for section in client.call("config.show")["sections"]]
    assert "compaction" in names
    assert client.call("config.set", key="verbose", session_id=sid)["value"] == "verbose"
    assert client.call("config.get", key="verbose", session_id=sid)["value"] == "verbose"
    client.call("config.set", key="reasoning", value="hide", session_id=sid)
    assert client.call("config.get", key="reasoning", session_id=sid)["display"] == "hide"


def test_settings_are_told_without_their_secrets(client: Inside, home: Home) -> None:
    table = {"mailer": {"bot": {"token": "tok-AAAA"}, "url": "https://ann:AAAA@mail.example"}}
    config.change(home, "plugins.settings", table)
    client.call("config.set", key="tools.search_url", value="https://ann:AAAA@search.example")
    result = [
        client.call("config.get", key="plugins.settings"),
        client.call("config.get", key="full"),
        client.call("config.show"),
    ]
    assert "AAAA" not in str(result)
    assert "https://ann:********@mail.example" in str(result)
    masked = result[0]["value"]
    with pytest.raises(RefusedError, match="masked secret"):
        client.call("config.set", key="plugins.settings", value=masked)
    assert config.load(home).plugins.settings == table


@pytest.mark.parametrize(
    ("params", "number"),
    [
        ({"key": "nonsense", "value": 1}, 4002),
        ({"key": "busy", "value": "sometimes"}, 4002),
        ({"key": "agent.max_steps", "value": -1}, 4002),
        ({"key": "model", "value": ""}, 4004),
        ({"key": "verbose", "value": "all"}, 4004),
        ({"key": "reasoning", "value": "show"}, 4004),
    ],
)
def test_a_setting_that_cannot_be_is_refused(
    client: Inside, params: dict[str, Any], number: int
) -> None:
    with pytest.raises(RefusedError) as refused:
        client.call("config.set", **params)
    assert refused.value.number == number


def test_the_folder_of_a_session_is_a_setting_too(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    sid = client.open()
    place = world.workspace / "below"
    place.mkdir()
    result = client.call("config.set", key="cwd", value=str(place), session_id=sid)
    assert result == {"key": "cwd", "value": str(place)}
    assert client.event("session.info", cwd=str(place))
    assert client.call("config.get", key="cwd", session_id=sid)["value"] == str(place)
    assert client.call("config.get", key="cwd")["value"] == str(world.workspace)
    model.add(call("terminal", command="pwd"), "There.")
    client.say(sid)
    assert str(place) in client.events("tool.complete")[0]["result"]
    for value, session, number in (
        (str(place / "no"), sid, 4017),
        ("", sid, 4016),
        ("/", "", 4004),
    ):
        with pytest.raises(RefusedError) as refused:
            client.call("config.set", key="cwd", value=value, session_id=session)
        assert refused.value.number == number


def test_a_key_is_never_told(client: Inside, home: Home, model: ScriptedServer) -> None:
    config.change(home, "model.api_key", "sk-very-secret-value")
    sid = client.open()
    client.event("session.info", lazy=None)
    assert client.call("config.get", key="model.api_key")["value"] == "set"
    client.call("config.get", key="full")
    model.add("You said sk-very-secret-value.")
    client.say(sid, "sk-very-secret-value")
    assert "sk-very-secret-value" not in str(client.frames)
    assert "sk-test-of-the-server" not in str(client.frames)


def test_models_can_be_seen_and_chosen(client: Inside, model: ScriptedServer) -> None:
    model.models = {"scripted": {}, "other": {}}
    sid = client.open()
    options = client.call("model.options", session_id=sid)
    names = {option["name"]: option["used"] for option in options["models"]}
    assert names == {"local/scripted": True, "local/other": False}
    assert client.call("setup.status")["provider_configured"]
    assert client.call("setup.runtime_check")["model"] == "scripted"
    result = client.call("config.set", key="model", value="other", session_id=sid)
    assert result == {"key": "model", "value": "other", "scope": "session"}
    model.add("I am the other one.")
    client.say(sid)
    assert model.model_requests[-1].json["model"] == "other"
    assert client.call("config.get", key="model", session_id=sid)["value"] == "other"
    result = client.call("slash.exec", session_id=sid, command="/model scripted")
    assert "Switched to scripted." in result["output"]


def test_without_a_model_the_client_is_told_what_to_do(
    client: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_MODEL", "anthropic/claude")
    assert not client.call("setup.status")["provider_configured"]
    checked = client.call("setup.runtime_check")
    assert not checked["ok"]
    assert "ANTHROPIC_API_KEY" in checked["error"]
    assert "ANTHROPIC_API_KEY" in client.call("model.options")["error"]


def test_tools_and_background_processes_are_listed_and_ended(
    client: Inside, model: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_APPROVALS_MODE", "allow")
    monkeypatch.setenv("HERMES_TOOLS_SANDBOX", "host")
    sid = client.open()
    core = client.call("tools.list")["toolsets"][0]
    assert "terminal" in [tool["name"] for tool in core["tools"]]
    model.add(call("terminal", command="sleep 1000", background=True), say("Started."))
    model.add(call("terminal", command="sleep 2000", background=True), say("Started."))
    client.say(sid, "wait in the background")
    client.say(sid, "once more")
    first, second = client.call("process.list", session_id=sid)["processes"]
    assert (first["command"], first["status"]) == ("sleep 1000", "running")
    result = client.call("process.kill", session_id=sid, process_id=first["process_id"])
    assert result == {"killed": 1}
    assert client.call("process.stop", session_id=sid) == {"killed": 1}
    statuses = [p["status"] for p in client.call("process.list", session_id=sid)["processes"]]
    assert statuses == ["exited", "exited"]
    assert second["process_id"] != first["process_id"]
    with pytest.raises(RefusedError):
        client.call("process.kill", session_id=sid, process_id="p99")


def test_replies_can_be_had_as_text_for_a_terminal(client: Inside, model: ScriptedServer) -> None:
    sid = client.open(render=True, cols=40)
    text = "# Title\n\nSome *words*.\n\n```\ncode\n\nmore\n```\n\nThe end."
    model.add(say(text))
    done = client.say(sid)
    assert "\x1b[" in done["rendered"]
    pieces = [delta["rendered"] for delta in client.events("message.delta") if "rendered" in delta]
    assert len(pieces) == 3, "a paragraph each, and a block of code is one"
    assert done["text"] == text


def test_a_reply_can_be_rendered_for_a_narrow_terminal() -> None:
    text = server.render_message("word " * 40, 5)
    assert text is not None
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 20


def test_a_conversation_can_be_titled_by_command_before_its_first_message(
    client: Inside, world: World
) -> None:
    opened = client.call(
        "session.create", title="Planned", messages=[{"role": "user", "text": "a"}]
    )
    sid, key = opened["session_id"], opened["stored_session_id"]
    result = client.call("slash.exec", session_id=sid, command="/title")
    assert result["output"] == "This conversation is called 'Planned'."
    result = client.call("slash.exec", session_id=sid, command="/title My talk")
    assert result["output"] == "This conversation is called 'My talk'."
    assert client.event("session.title") == {"session_id": key, "title": "My talk"}
    assert (world.row(key)["title"], world.row(key)["message_count"]) == ("My talk", 1)
    with pytest.raises(RefusedError) as refused:
        client.call("slash.exec", session_id=client.open(), command="/title My talk")
    assert refused.value.number == 4022
    assert world.store().session_count() == 1, "a title that is refused leaves nothing"


def test_a_title_that_a_command_gives_is_told(client: Inside, model: ScriptedServer) -> None:
    model.add("hi")
    sid = client.open()
    client.say(sid)
    client.call("slash.exec", session_id=sid, command="/title A good name")
    client.event("session.info", title="A good name")


def test_the_live_output_of_a_command_comes_in_whole_lines(
    client: Inside, model: ScriptedServer
) -> None:
    model.add(call("terminal", command="echo one; sleep 0.1; echo two"), say("Done."))
    client.say(client.open())
    text = "".join(event["text"] for event in client.events("tool.progress"))
    assert text == "one\ntwo\n"
