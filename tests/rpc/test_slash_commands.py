"""The one table of slash commands, and a command that a plugin adds in one file."""

import pytest

from gateway.commands import TABLE, menu
from hermes_agent import commands
from hermes_cli import plugins
from hermes_cli.plugins import PluginContext, PluginError
from hermes_core import slash_commands
from hermes_core.paths import Home
from hermes_core.settings import PluginSettings, Settings
from hermes_core.slash_commands import SURFACES, Surface
from tests.rpc.harness import Inside
from tests.support.plugins import enable

PLUGIN = """
def register(ctx):
    ctx.command(
        "plant", lambda tree: f"A {{tree}}.", description="Plant a tree.", argument="TREE",
        surfaces={surfaces},
    )
"""


def grown(home: Home, surfaces: set[Surface]) -> None:
    home.create()
    enable(home, "garden", PLUGIN.format(surfaces=surfaces))
    plugins.load_enabled(home, Settings(plugins=PluginSettings(enabled=["garden"])))


@pytest.mark.parametrize("surface", sorted(SURFACES))
def test_a_name_leads_to_one_command_of_a_surface(surface: Surface) -> None:
    found = slash_commands.of(surface)
    every = [name for command in found for name in (command.name, *command.aliases)]
    assert len(every) == len(set(every))


def test_an_alias_may_mean_another_command_on_another_surface() -> None:
    assert commands.find("q") is commands.find("exit")
    assert commands.find("q", TABLE) is commands.find("queue", TABLE)
    assert commands.find("exit", TABLE) is None


def test_every_command_says_what_it_does_in_a_sentence() -> None:
    for command in slash_commands.COMMANDS:
        assert command.help[0].isupper() and command.help.endswith("."), command
        assert len(command.help) < 60


def test_a_command_of_a_plugin_is_on_every_surface(home: Home, client: Inside) -> None:
    grown(home, {"line", "rpc", "tui", "chat"})
    assert plugins.failures() == {}
    assert ("plant", "Plant a tree.") in menu()
    sid = client.open()
    assert ["/plant", "Plant a tree."] in client.call("commands.catalog")["pairs"]
    (item,) = client.call("complete.slash", text="/pla")["items"]
    assert item["meta"] == "Plant a tree."
    result = client.call("slash.exec", session_id=sid, command="/help")
    assert "/plant TREE" in result["output"]
    result = client.call("slash.exec", session_id=sid, command="/plant fir")
    assert result["output"] == "A fir."


def test_a_command_of_a_plugin_may_be_for_chats_alone(home: Home) -> None:
    grown(home, {"chat"})
    assert ("plant", "Plant a tree.") in menu()
    assert plugins.commands("rpc") == {}
    assert plugins.commands("line") == {}


@pytest.mark.parametrize("name", ["queue", "bg", "theme", "undo"])
def test_a_name_of_any_surface_belongs_to_hermes(name: str, home: Home) -> None:
    context = PluginContext("thief", home, {})
    with pytest.raises(PluginError, match="is a built-in command"):
        context.command(name, print, description="")


def test_an_unknown_surface_is_an_error(home: Home) -> None:
    context = PluginContext("odd", home, {})
    with pytest.raises(PluginError, match="no surface 'moon'"):
        context.command("plant", print, description="", surfaces={"moon"})  # pyright: ignore[reportArgumentType]
