"""`hermes model`, with servers of this machine in the place of providers."""

from collections.abc import Iterator

import pytest

from hermes_agent.models import discovery
from hermes_agent.models.embedded import model_files
from hermes_agent.models.providers import OURS
from hermes_agent.testing.scripted import TIMEOUT_S
from hermes_agent.testing.server import ScriptedServer
from hermes_cli.commands import root
from hermes_cli.commands.group import Entry
from hermes_core.paths import Home
from tests.cli.conftest import Shell


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No keys in the environment and no servers on the usual ports."""
    for name in OURS.variables():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(discovery, "PORTS", {})
    monkeypatch.setattr(discovery, "PROBE_TIMEOUT_S", TIMEOUT_S)
    monkeypatch.setitem(root.COMMANDS, "model", Entry("model", "Show and switch the model."))


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    with ScriptedServer([], models={"big-8b": {"max_model_len": 9000}, "tiny-1b": {}}) as server:
        monkeypatch.setattr(discovery, "PORTS", {server.port: "Ollama"})
        yield server


def test_nothing_found_says_how_to_get_a_model(shell: Shell):
    shell.run("model", status=3)
    assert "hermes model pull" in shell.errors
    assert "OPENAI_API_KEY" in shell.errors
    assert "No model found" in shell.run("model list")
    assert shell.json("model list") == []


def test_what_was_found_is_shown_with_the_reason(
    shell: Shell, local: ScriptedServer, monkeypatch: pytest.MonkeyPatch
):
    output = shell.run("model")
    assert f"Using local/big-8b: Ollama answers on port {local.port}." in output
    assert "window 9,000 tokens" in output
    assert "and 1 more" in output
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")
    output = shell.run("model")
    assert "ANTHROPIC_API_KEY is set." in output
    assert "local/big-8b" in output
    assert "sk-ant-of-the-test" not in output


def test_a_program_gets_the_same_as_json(shell: Shell, local: ScriptedServer):
    output = shell.json("model")
    assert output["used"]["name"] == "local/big-8b"
    assert output["used"]["facts"]["window"] == 9000
    assert [found["base_url"] for found in output["found"]] == [local.openai_url]
    assert shell.json("model show") == output


def test_models_are_listed_one_to_the_line(shell: Shell, local: ScriptedServer):
    assert shell.run("model list").splitlines() == ["* local/big-8b", "  local/tiny-1b"]
    assert shell.json("model list")[1] == {"name": "local/tiny-1b", "used": False}


@pytest.mark.parametrize("name", ["tiny-1b", "local/tiny-1b"])
def test_another_model_is_used_from_then_on(shell: Shell, local: ScriptedServer, name: str):
    output = shell.run(f"model use {name}")
    assert "Using local/tiny-1b" in output
    assert "small: " in output
    assert shell.json("model")["used"]["model"] == "tiny-1b"
    assert "Using local/big-8b" in shell.run("model use auto")
    assert shell.json("config show")["model.name"] == ""


def test_a_model_that_is_not_there_is_not_switched_to(shell: Shell, local: ScriptedServer):
    shell.run("model use mistake", status=3)
    assert "big-8b, tiny-1b" in shell.errors
    shell.run("model use anthropic/claude-opus-4-5", status=3)
    assert "ANTHROPIC_API_KEY" in shell.errors
    assert shell.json("config show")["model.name"] == ""


def test_a_service_is_used_by_its_name(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")
    output = shell.run("model use claude-opus-4-5")
    assert "Using anthropic/claude-opus-4-5" in output
    assert "$5 / $25 per million" in output
    assert shell.json("config show")["model.name"] == "anthropic/claude-opus-4-5"


def test_the_variable_in_the_environment_still_wins_and_that_is_told(
    shell: Shell, local: ScriptedServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HERMES_MODEL", "local/big-8b")
    shell.run("model use tiny-1b", status=2)
    assert "HERMES_MODEL" in shell.errors


def test_an_address_that_was_set_is_kept_for_its_models_and_left_for_others(
    shell: Shell, local: ScriptedServer
):
    with ScriptedServer([], models={"one": {}, "two": {}}) as mine:
        shell.run(f"config set model.base_url {mine.openai_url}")
        assert "Using local/one: model.base_url is set" in shell.run("model")
        shell.run("model use two")
        assert shell.json("config show")["model.base_url"] == mine.openai_url
        assert shell.json("model")["used"]["model"] == "two"
        shell.run("model use big-8b")
    assert shell.json("config show")["model.base_url"] == ""
    assert shell.json("model")["used"]["base_url"] == local.openai_url


def test_an_address_where_nobody_answers_can_be_left(shell: Shell, local: ScriptedServer):
    with ScriptedServer([]) as stopped_server:
        shell.run(f"config set model.base_url {stopped_server.openai_url}")
    shell.run("model", status=3)
    assert stopped_server.openai_url in shell.errors
    assert "Using local/big-8b" in shell.run("model use big-8b")


def test_the_embedded_model_says_what_it_is_good_for(shell: Shell, home: Home):
    home.models.mkdir(parents=True)
    model_files.file_of(home, "tiny").write_bytes(b"GGUF")
    model_files.put_record(home, "tiny", sha256="0", source="test", notice="")
    output = shell.run("model")
    assert "Using embedded/tiny: it is downloaded." in output
    assert "this process" in output
    assert "ANTHROPIC_API_KEY" in output
    assert "Using embedded/tiny" in shell.run("model use embedded")


def test_models_of_plugins_are_offered(shell: Shell, home: Home):
    folder = home.plugins / "mine"
    folder.mkdir(parents=True)
    (folder / "plugin.toml").write_text('name = "mine"\nversion = "1"\ndescription = "x"\n')
    (folder / "__init__.py").write_text(
        "def register(ctx):\n    ctx.model('theirs', lambda: None, description='x')\n"
    )
    shell.run("config set plugins.enabled mine")
    assert "plugin/theirs" in shell.run("model list")
    assert "Using plugin/theirs" in shell.run("model use theirs")


def test_pulling_is_part_of_the_command(shell: Shell):
    assert "pull" in shell.run("model --help")
