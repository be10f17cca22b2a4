"""The folders that chats work in: not a person's home, and what guests learn of it."""

from pathlib import Path
from typing import Any

import pytest

from gateway.config import Platform
from gateway.source import SessionSource
from gateway.workspaces import Workspaces
from hermes_agent.testing.scripted import call, say
from hermes_core import config
from hermes_core.errors import ConfigError
from hermes_core.paths import Home
from hermes_core.settings import GatewaySettings, RoleSettings, Settings
from hermes_state.ledger import questions, routes, sessions
from tests.gateway.harness import Inside, World

pytestmark = pytest.mark.promise("P7")

_GUIDE = "Never tell the plumber about the safe."


@pytest.fixture(autouse=True)
def own(home: Home, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home, with Hermes's own in it and instructions for agents."""
    folder = home.root.parent / "ann"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    (folder / "CLAUDE.md").write_text(_GUIDE)
    return folder


def _with_guest(world: World) -> None:
    """Let u2 in as a member who may not do more than talk."""
    text = world.home.config.read_text()
    text = text.replace('["u1", "u2", "u3"]', '["u1"]')
    world.home.config.write_text(f'{text}\n[gateway.allow]\nloopback = ["u2"]\n')


def _prompt(world: World) -> str:
    return str(world.model.model_requests[-1].json["messages"][0]["content"])


def _chat(chat: str = "a") -> SessionSource:
    return SessionSource(Platform.register("loopback"), chat, user_id="u1")


@pytest.mark.parametrize("name", [".xsession", "Documents/thesis.txt", "usercustomize.py"])
def test_a_file_of_the_home_is_not_written_unasked(world: World, own: Path, name: str) -> None:
    target = own / name
    target.parent.mkdir(exist_ok=True)
    world.play(call("write_file", path=str(target), content="evil"), say("done"))
    with Inside(world) as inside:
        world.platform.say("a", "write it")
        world.wait_for_text("a", "Allow this command?")
        assert [row["tool_name"] for row in inside.store.read(questions.pending)] == ["write_file"]
        world.platform.say("a", "/deny")
        world.wait_for_text("a", "done")
    assert not target.exists()


def test_a_chat_works_in_a_folder_of_its_own(world: World, own: Path) -> None:
    world.play(call("write_file", path="plan.txt", content="the plan"), say("done"))
    with Inside(world):
        world.platform.say("a", "write it")
        world.wait_for_text("a", "done")
    assert (world.home.workspace / "plan.txt").read_text() == "the plan"
    assert world.home.workspace.stat().st_mode & 0o777 == 0o700


def test_the_start_log_says_where_chats_work_now(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with Inside(world):
        pass
    assert f"Chats work in {world.home.workspace}" in caplog.text
    assert "no longer work in your home folder" in caplog.text
    caplog.clear()
    with Inside(world):
        pass
    assert "no longer" not in caplog.text


def test_a_chat_and_a_role_may_have_folders_of_their_own(home: Home, tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("all", "chat", "guests")}
    for folder in folders.values():
        folder.mkdir()
    workspaces = Workspaces(
        home,
        Settings(
            gateway=GatewaySettings(
                workspace=str(folders["all"]), workspaces={"loopback:b": str(folders["chat"])}
            ),
            roles=RoleSettings(guest_workspace=str(folders["guests"])),
        ),
    )
    assert workspaces.of(_chat(), "owner") == folders["all"]
    assert workspaces.of(_chat(), "guest") == folders["guests"]
    assert workspaces.of(_chat("b"), "guest") == folders["chat"]
    assert workspaces.of(_chat(), "owner", stored=str(tmp_path)) == folders["all"]
    assert workspaces.of(_chat(), "owner", stored=str(folders["chat"])) == folders["chat"]
    assert workspaces.of(_chat(), "guest", stored=str(folders["chat"])) == folders["guests"]


def _settings(text: str, **more: Any) -> Settings:
    return Settings(gateway=GatewaySettings(workspace=text, **more))


def test_a_home_is_a_workspace_only_after_an_explicit_yes(home: Home, own: Path) -> None:
    (own.parent / "link").symlink_to(own)
    for text in ("~", "/", str(own), str(own.parent), str(own.parent / "link")):
        with pytest.raises(ConfigError, match="contains your home folder") as refused:
            Workspaces(home, _settings(text))
        assert "gateway.broad_workspace = true" in refused.value.fix
        allowed = Workspaces(home, _settings(text, broad_workspace=True))
        assert allowed.broad == [allowed.default]


def test_hermes_own_home_is_never_a_workspace(home: Home, own: Path) -> None:
    home.create()
    home.memories.mkdir()
    for folder in (home.root, home.memories):
        with pytest.raises(ConfigError, match="Hermes's own"):
            Workspaces(home, _settings(str(folder), broad_workspace=True))
    home.workspace.symlink_to(home.root)
    with pytest.raises(ConfigError, match="Hermes's own"):
        Workspaces(home, Settings())


@pytest.mark.parametrize("text", ["relative", "/nowhere/at/all"])
def test_a_folder_that_does_not_exist_is_refused(home: Home, text: str) -> None:
    with pytest.raises(ConfigError, match="not an existing folder"):
        Workspaces(home, _settings(text))


def test_the_gateway_does_not_start_in_a_home(world: World, own: Path) -> None:
    config.change(world.home, "gateway.workspace", str(own))
    inside = Inside(world)
    inside._thread.start()
    with pytest.raises(ConfigError, match="contains your home folder"):
        inside.call(inside.runner.start())
    inside.call(inside.runner.stop())
    inside._loop.call_soon_threadsafe(inside._loop.stop)
    inside._thread.join(10)
    inside._loop.close()
    inside.store.close()


def test_a_chat_in_a_conversation_of_a_terminal_in_the_home_does_not_work_there(
    world: World, own: Path
) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "hello")
        world.wait_for_replies("a", 1)
        (entry,) = inside.runner.session_store.list_sessions()
        inside.store.write(sessions.change, entry.session_id, cwd=str(own))
        world.play(call("write_file", path="plan.txt", content="the plan"), say("done"))
        world.platform.say("a", "write it")
        world.wait_for_text("a", "done")
        assert inside.store.read(routes.keys_of, entry.session_id)
    assert (world.home.workspace / "plan.txt").exists()
    assert not (own / "plan.txt").exists()


# -- what others learn of it ------------------------------------------------------------------------


def test_the_instructions_of_a_project_are_for_its_owner_in_private(
    world: World, own: Path
) -> None:
    _with_guest(world)
    project = own / "project"
    project.mkdir()
    (project / "CLAUDE.md").write_text(_GUIDE)
    config.change(world.home, "gateway.workspace", str(project))
    config.change(world.home, "model.context_window", 200_000)
    with Inside(world):
        for chat, user, kind in (("a", "u1", "dm"), ("b", "u2", "dm"), ("g", "u1", "group")):
            world.platform.say(chat, "hello", user=user, chat_type=kind, mention=True)
            world.wait_for_replies(chat, 1)
            assert (_GUIDE in _prompt(world)) is (chat == "a")
            assert (str(own) in _prompt(world)) is (chat == "a")


def test_a_stored_prompt_of_a_guest_loses_what_is_private(world: World, own: Path) -> None:
    _with_guest(world)
    with Inside(world) as inside:
        world.platform.say("b", "hello", user="u2")
        world.wait_for_replies("b", 1)
        (entry,) = inside.runner.session_store.list_sessions()
        old = (
            f"You are Hermes.\n\nSystem: Linux. Workspace: {own}.\n\n## CLAUDE.md of this project\n"
        )
        inside.store.write(sessions.change, entry.session_id, system_prompt=old + _GUIDE)
        world.platform.say("b", "and now?", user="u2")
        world.wait_for_replies("b", 2)
    assert _GUIDE not in _prompt(world)
    assert str(own) not in _prompt(world)


def test_status_tells_the_folder_to_an_owner_in_private_alone(world: World, own: Path) -> None:
    _with_guest(world)
    with Inside(world):
        for chat, user in (("a", "u1"), ("b", "u2")):
            world.platform.say(chat, "hello", user=user)
            world.wait_for_replies(chat, 1)
            world.platform.say(chat, "/status", user=user)
            status = world.wait_for_text(chat, "Conversation:").text
            assert (str(world.home.workspace) in status) is (chat == "a")
            assert ("Folder" in status) is (chat == "a")
