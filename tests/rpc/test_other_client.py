"""What the terminal client of hermes-agent 0.19.0 calls, and what it does with the answers."""

import os
from pathlib import Path

import pytest

from hermes_agent.testing.server import ScriptedServer
from tests.agent.test_skills import REVIEW, write
from tests.rpc.harness import Client, Inside, RefusedError, World
from tests.rpc.test_prompt import PIXEL
from tui_gateway.methods import TABLE

CALLED = (
    "approval.respond", "billing.auto_reload", "billing.charge", "billing.charge_status",
    "billing.state", "billing.step_up", "browser.manage", "clarify.respond", "clipboard.paste",
    "command.dispatch", "commands.catalog", "complete.path", "complete.slash", "config.get",
    "config.set", "delegation.pause", "delegation.status", "image.attach", "input.detect_drop",
    "learning.delete", "learning.detail", "learning.edit", "learning.frames", "model.disconnect",
    "model.options", "model.save_key", "paste.collapse", "pet.cells", "pet.gallery", "pet.select",
    "plugins.manage", "process.stop", "prompt.background", "prompt.submit", "reload.env",
    "reload.mcp", "rollback.diff", "rollback.list", "rollback.restore", "secret.respond",
    "session.activate", "session.active_list", "session.branch", "session.close",
    "session.compress", "session.create", "session.delete", "session.interrupt", "session.list",
    "session.most_recent", "session.resume", "session.save", "session.status", "session.steer",
    "session.title", "session.undo", "session.usage", "setup.status", "shell.exec",
    "skills.manage", "skills.reload", "slash.exec", "spawn_tree.list", "spawn_tree.load",
    "spawn_tree.save", "subagent.interrupt", "subscription.change", "subscription.preview",
    "subscription.resume", "subscription.state", "subscription.upgrade", "sudo.respond",
    "terminal.resize", "tools.configure", "voice.record", "voice.toggle",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


def completed(typed: str, item: str, start: int) -> str:
    """What that client makes of a line: it drops the slash of both when both have one."""
    text = item[1:] if typed.startswith("/") and item.startswith("/") else item
    return typed[:start] + text


def shell(client: Client, command: str, **params: str) -> dict[str, object]:
    return client.call("shell.exec", command=command, **params)


@pytest.mark.parametrize("typed", ["/compress", "/comp", "/c"])
def test_a_completed_command_keeps_its_slash(client: Inside, typed: str) -> None:
    found = client.call("complete.slash", text=typed)
    texts = {completed(typed, item["text"], found["replace_from"]) for item in found["items"]}
    assert "/compress" in texts
    assert all(text.startswith("/") and not text.startswith("//") for text in texts)


def test_every_method_it_calls_has_an_answer_that_names_no_missing_method(client: Inside) -> None:
    for name in CALLED:
        if name not in TABLE:
            with pytest.raises(RefusedError) as refused:
                client.call(name)
            assert refused.value.number == -32601
            assert "does not support" in str(refused.value)


def test_what_it_asks_for_again_and_again_is_no_error(client: Inside) -> None:
    for _ in range(3):
        assert client.call("pet.cells", state="idle", graphics=True) == {"enabled": False}
    assert client.call("delegation.status")["active"] == []


def test_a_dropped_picture_goes_along_with_the_next_prompt(
    world: World, model: ScriptedServer, folder: Path
) -> None:
    (folder / "my cat.png").write_bytes(PIXEL)
    client = world.start()
    sid = client.open(cwd=str(folder))
    found = client.call("input.detect_drop", session_id=sid, text=f"'{folder}/my cat.png'")
    assert found["is_image"] and found["name"] == "my cat.png" and found["count"] == 1
    assert str(folder) not in found["text"]
    model.add("A cat.")
    client.say(sid, found["text"])
    content = model.model_requests[-1].json["messages"][-1]["content"]
    assert "my cat.png" in str(content)


def test_a_dropped_file_is_named_in_the_prompt(client: Inside, folder: Path) -> None:
    (folder / "notes.txt").write_text("notes")
    sid = client.open(cwd=str(folder))
    found = client.call(
        "input.detect_drop", session_id=sid, text="file://" + str(folder / "notes.txt")
    )
    assert found["matched"] and not found["is_image"]
    assert str(folder / "notes.txt") in found["text"]
    quoted = str(folder / "notes.txt").replace("notes", "no\\tes")
    assert client.call("input.detect_drop", session_id=sid, text=quoted)["matched"]


@pytest.mark.parametrize(
    "typed", ["'{}'", '"{}"', "{}", "{escaped}", "file://{address}"], ids=lambda typed: typed
)
def test_a_dropped_picture_may_have_a_question_behind_it(
    client: Inside, folder: Path, typed: str
) -> None:
    picture = folder / "my cat.png"
    picture.write_bytes(PIXEL)
    name = str(picture)
    name = typed.format(name, escaped=name.replace(" ", "\\ "), address=name.replace(" ", "%20"))
    sid = client.open(cwd=str(folder))
    found = client.call("input.detect_drop", session_id=sid, text=f"{name} what is\nthis?")
    assert (found["path"], found["count"]) == (str(picture), 1)
    assert found["text"] == "[Picture my cat.png] what is\nthis?"
    attached = client.call("image.attach", session_id=sid, path=f"{name} what is this?")
    assert (attached["name"], attached["remainder"]) == ("my cat.png", "what is this?")


def test_a_prompt_that_begins_with_a_name_is_not_changed(client: Inside, folder: Path) -> None:
    (folder / "notes.txt").write_text("notes")
    sid = client.open(cwd=str(folder))
    for text in ("notes.txt is wrong", f"{folder} is full", "/nowhere/notes.txt is wrong", "/help"):
        assert client.call("input.detect_drop", session_id=sid, text=text) == {"matched": False}


def test_a_pasted_picture_is_attached_by_its_quoted_path(client: Inside, folder: Path) -> None:
    (folder / "my cat.png").write_bytes(PIXEL)
    sid = client.open(cwd=str(folder))
    result = client.call("image.attach", session_id=sid, path=str(folder / "my\\ cat.png"))
    assert result["name"] == "my cat.png"


def test_a_command_runs_in_the_folder_of_the_session(client: Inside, folder: Path) -> None:
    result = shell(client, "pwd; echo oops >&2; exit 3", session_id=client.open(cwd=str(folder)))
    assert result == {"stdout": f"{folder.resolve()}\n", "stderr": "oops\n", "code": 3}


def test_a_command_without_a_session_runs_in_the_folder_of_the_latest(
    client: Inside, folder: Path
) -> None:
    client.open(cwd=str(folder))
    assert shell(client, "pwd")["stdout"] == f"{folder.resolve()}\n"


def test_a_command_gets_no_secrets_and_shows_none(
    client: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-person")
    assert "sk-of-the-person" not in str(shell(client, "env"))


def test_an_empty_command_is_refused(client: Inside) -> None:
    with pytest.raises(RefusedError) as refused:
        shell(client, "  ")
    assert refused.value.number == 4004


def test_a_command_ends_when_its_time_is_over(client: Inside) -> None:
    result = client.call("shell.exec", command="echo begun; sleep 1000", timeout=0.2)
    assert result["stdout"] == "begun\n"
    assert result["code"] == 124
    assert "0.2 s" in result["stderr"]


def test_the_output_of_a_command_is_bounded(client: Inside) -> None:
    result = shell(client, "yes | head -c 3000000; echo the end")
    assert len(str(result["stdout"])) < 200_000
    assert str(result["stdout"]).endswith("the end\n")
    assert "were not kept" in str(result["stdout"])


def test_an_interrupt_stops_a_command(client: Inside, tmp_path: Path) -> None:
    sid, marker = client.open(), tmp_path / "begun"
    os.mkfifo(marker)
    number = client.post("shell.exec", command=f"echo > {marker}; sleep 1000", session_id=sid)
    marker.read_text()  # waits for the command to write it
    client.call("session.interrupt", session_id=sid)
    assert client.answer(number)["code"] == 130


def test_a_prompt_in_the_background_is_answered_beside_and_kept(
    world: World, model: ScriptedServer
) -> None:
    client = world.start()
    sid = client.open()
    model.add("Done beside.")
    task = client.call("prompt.background", session_id=sid, text="look into it")
    payload = client.event("background.complete")
    assert payload["task_id"] == task["task_id"] and payload["text"] == "Done beside."
    assert world.transcript(task["stored_session_id"]) == [
        ("user", "look into it"),
        ("assistant", "Done beside."),
    ]
    assert client.call("session.history", session_id=sid)["messages"] == []
    (row,) = client.call("session.active_list")["sessions"]
    assert row["id"] == sid


def test_skills_are_listed_searched_and_shown(world: World) -> None:
    write(world.home, "review", REVIEW)
    client = world.start()
    assert client.call("skills.manage", action="list")["skills"] == {"Skills": ["code-review"]}
    found = client.call("skills.manage", action="search", query="FRESH")["results"]
    assert found == [{"name": "code-review", "description": "Looks at a change with fresh eyes."}]
    info = client.call("skills.manage", action="inspect", query="code-review")["info"]
    assert info["path"].endswith("SKILL.md")
    assert client.call("skills.manage", action="inspect", query="none")["info"] == {}
    for action in ("install", "browse"):
        with pytest.raises(RefusedError, match="does not support"):
            client.call("skills.manage", action=action, query="x")
    write(world.home, "other", REVIEW.replace("Code Review", "second"))
    assert "2 skills" in client.call("skills.reload")["output"]
    sid = client.open()
    client.call("session.title", session_id=sid, title="so that there is an agent")
    assert client.event("session.info", skills={"Skills": ["code-review", "second"]})


def test_plugins_are_listed_and_switched(world: World) -> None:
    folder = world.home.plugins / "greeter"
    folder.mkdir(parents=True)
    (folder / "plugin.toml").write_text(
        'name = "greeter"\nversion = "1.0"\ndescription = "Greets."\n'
    )
    (folder / "__init__.py").write_text("def register(context):\n    pass\n")
    client = world.start()
    listed = client.call("plugins.manage", action="list")
    row = next(plugin for plugin in listed["plugins"] if plugin["name"] == "greeter")
    assert (row["version"], row["source"], row["status"]) == ("1.0", "user", "disabled")
    assert listed["user_count"] == 1
    result = client.call("plugins.manage", action="toggle", name="greeter", enable=True)
    assert result["plugin"]["status"] == "enabled"
    assert "greeter" in world.home.config.read_text()
    result = client.call("plugins.manage", action="toggle", name="greeter", enable=False)
    assert result["plugin"]["status"] == "disabled"
    with pytest.raises(RefusedError, match="no plugin nowhere"):
        client.call("plugins.manage", action="toggle", name="nowhere", enable=True)
    assert {plugin["name"] for plugin in client.call("plugins.list")["plugins"]} >= {"greeter"}


def test_stopping_processes_needs_no_session(client: Inside) -> None:
    client.open()
    assert client.call("process.stop") == {"killed": 0}
