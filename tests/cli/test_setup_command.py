"""`hermes setup`, `login` and `logout`, by options and as a dialogue on a terminal."""

import io
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from hermes_agent.models import discovery, providers
from hermes_agent.testing.faults import no_quota
from hermes_agent.testing.scripted import TIMEOUT_S
from hermes_agent.testing.server import ScriptedServer
from hermes_cli import interface
from hermes_cli.commands.app import App
from hermes_cli.commands.model_choice import registry_of, try_out
from hermes_core.paths import Home
from tests.cli.chat_process import CTRL_C, ENTER, TerminalChat
from tests.cli.conftest import Shell

KEY = "sk-right-key-of-the-provider-0123"
WRONG = "sk-wrong-key-of-the-provider-4567"

PROGRAM = """
import msgspec
from hermes_agent.models import discovery, providers
providers.BUILT_IN = tuple(
    msgspec.structs.replace(p, base_url={url!r} if p.adapter == "openai" else {url!r}[:-3])
    if p.base_url else p for p in providers.BUILT_IN
)
discovery.PORTS = {{}}
from hermes_cli.commands import root
root.interface.is_installed = lambda: False
from hermes_cli.main import main
main()
"""
"""The program with all providers at one address, no server on the usual ports, and no terminal UI."""


@pytest.fixture
def provider() -> Iterator[ScriptedServer]:
    """The server of every provider; it wants the key."""
    models = {"gpt-6.1-terra": {}, "gpt-6-luna": {}, "text-embedding-3": {}}
    with ScriptedServer(key=KEY, models=models) as server:
        yield server


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, provider: ScriptedServer) -> None:
    """No keys in the environment, no servers on the usual ports, and providers on this machine."""
    for name in providers.OURS.variables():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(discovery, "PORTS", {})
    monkeypatch.setattr(discovery, "PROBE_TIMEOUT_S", TIMEOUT_S)
    near = {"openai": provider.openai_url, "anthropic": provider.url}
    table = tuple(
        msgspec.structs.replace(row, base_url=near[row.adapter]) if row.base_url else row
        for row in providers.BUILT_IN
    )
    monkeypatch.setattr(providers, "BUILT_IN", table)


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{KEY}\n"))


def stored(home: Home) -> dict[str, object]:
    return tomllib.loads(home.config.read_text()).get("model", {}) if home.config.exists() else {}


def ask() -> None:
    """Ask the model that is chosen now."""
    registry = registry_of(App())
    try_out(registry, registry.discovery.chosen())


# -- by options ------------------------------------------------------------------------------


def test_without_a_terminal_the_options_are_named(shell: Shell, home: Home):
    for line in ("setup", "login", "login openai", "model use"):
        shell.run(line, status=2)
    shell.run("setup", status=2)
    for option in ("--provider", "--key-stdin", "--base-url", "--model", "--sandbox", "--yes"):
        assert option in shell.errors
    assert not home.config.exists()


@pytest.mark.usefixtures("pipe")
def test_everything_can_be_set_up_by_options(shell: Shell, home: Home, tmp_path: Path):
    folder = tmp_path / "chats"
    output = shell.run(
        "setup --provider openai --key-stdin --model gpt-6-luna --sandbox host"
        f" --workspace {folder}"
    )
    assert "The key works: gpt-6-luna answered" in output
    assert "Ready: openai/gpt-6-luna answers." in output
    assert stored(home) == {"keys": {"openai": KEY}, "name": "openai/gpt-6-luna"}
    assert shell.json("config show")["gateway.workspace"] == str(folder)
    assert shell.json("config show")["tools.sandbox"] == "host"
    assert stat.S_IMODE(home.config.stat().st_mode) == 0o600


@pytest.mark.usefixtures("pipe")
def test_a_server_is_set_up_by_its_address(shell: Shell, home: Home, provider: ScriptedServer):
    outcome = shell.json(f"setup --base-url {provider.url} --key-stdin")
    assert outcome["model"] == "local/gpt-6.1-terra"
    assert stored(home)["base_url"] == provider.openai_url
    assert len(provider.model_requests) == 1


def test_what_is_there_is_used_without_a_question(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    with ScriptedServer(models={"here-8b": {}}) as server:
        monkeypatch.setattr(discovery, "PORTS", {server.port: "Ollama"})
        assert "Ready: local/here-8b answers." in shell.run("setup --yes")


def test_a_wrong_key_is_not_stored(shell: Shell, home: Home, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(WRONG))
    shell.run("setup --provider openai --key-stdin", status=77)
    assert "does not accept the key" in shell.errors
    assert WRONG not in shell.errors
    assert not home.config.exists()


@pytest.mark.usefixtures("pipe")
def test_without_a_network_a_key_is_stored_only_untested(
    shell: Shell, home: Home, provider: ScriptedServer
):
    provider.close()
    shell.run("login openai --key-stdin", status=69)
    assert not home.config.exists()
    sys.stdin.seek(0)
    assert "Using openai/gpt-6.1-terra" in shell.run("login openai --key-stdin --no-test")
    assert stored(home) == {"keys": {"openai": KEY}}


@pytest.mark.usefixtures("pipe")
def test_a_stored_key_is_masked_used_and_removed(
    shell: Shell, home: Home, provider: ScriptedServer
):
    shell.run("login anthropic --key-stdin")
    assert KEY not in shell.run("config show") + shell.run("config show --json")
    used = shell.json("model")["used"]
    assert (used["provider"], used["reason"]) == ("anthropic", "hermes login stored a key")
    ask()
    assert provider.model_requests[-1].headers["x-api-key"] == KEY
    output = shell.run("logout anthropic")
    assert "Removed the key for anthropic." in output
    assert "No model can answer now." in output
    assert stored(home) == {}
    shell.run("logout anthropic", status=2)


@pytest.mark.usefixtures("pipe")
def test_a_stored_key_goes_to_no_other_address(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, provider: ScriptedServer
):
    shell.run("login anthropic --key-stdin")
    with ScriptedServer() as other:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", other.url)
        ask()
        assert "x-api-key" not in other.model_requests[0].headers


# -- on a terminal ---------------------------------------------------------------------------


Start = Callable[..., TerminalChat]


@pytest.fixture
def environment(home: Home, tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "HERMES_HOME": str(home.root),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "COLUMNS": "80",
    }


@pytest.fixture
def start(tmp_path: Path, provider: ScriptedServer, environment: dict[str, str]) -> Start:
    def run(*arguments: str, url: str = provider.openai_url) -> TerminalChat:
        program = PROGRAM.format(url=url)
        return TerminalChat([sys.executable, "-c", program, *arguments], tmp_path, environment)

    return run


def interrupt(terminal: TerminalChat) -> int:
    """Press Ctrl+C and return the exit status.

    Again if nothing happens: Python does not notice one that comes right before it reads a line.
    """
    for _ in range(10):
        terminal.type(CTRL_C)
        with suppress(subprocess.TimeoutExpired):
            return terminal.process.wait(2)
    raise AssertionError(terminal.text)


def test_a_wrong_key_is_asked_for_again_and_no_key_is_shown(start: Start, home: Home):
    with start("setup") as terminal:
        terminal.answer("Choose [", "OpenAI")
        terminal.answer("API key for OpenAI", WRONG)
        terminal.wait_for("does not accept the key")
        terminal.answer("API key for OpenAI", KEY)
        terminal.wait_for("The key works: gpt-6.1-terra answered")
        terminal.answer("Where it works", ENTER)
        terminal.answer("A messenger", ENTER)
        terminal.wait_for("Ready: openai/gpt-6.1-terra answers.")
        assert terminal.wait() == 0
        assert KEY not in terminal.text
        assert WRONG not in terminal.text
    assert stored(home) == {"keys": {"openai": KEY}, "name": "openai/gpt-6.1-terra"}


def test_ctrl_c_keeps_what_was_confirmed_and_leaves_no_half_file(start: Start, home: Home):
    with start("setup") as terminal:
        terminal.answer("Choose [", "Anthropic")
        terminal.answer("API key for Anthropic", KEY)
        terminal.wait_for("Where it works")
        terminal.wait_for("Choose [1]: ")
        assert interrupt(terminal) == 130
        terminal.wait_for("What you confirmed is kept.")
    assert stored(home)["name"] == "anthropic/claude-sonnet-5-5"
    assert [path.name for path in home.root.iterdir() if path.name.startswith(".")] == []
    with start("setup") as terminal:
        terminal.answer("Choose [", "OpenRouter")
        terminal.wait_for("API key for OpenRouter")
        assert interrupt(terminal) == 130
    assert stored(home)["keys"] == {"anthropic": KEY}


def test_an_account_without_credit_has_a_right_key(start: Start, home: Home):
    with (
        ScriptedServer(lambda _request: no_quota()) as poor,
        start("login", "openai", url=poor.openai_url) as terminal,
    ):
        terminal.answer("API key for OpenAI", KEY)
        terminal.wait_for("has no quota left")
        terminal.answer("Store the key all the same? [Y/n]", "")
        assert terminal.wait() == 0
    assert stored(home) == {"keys": {"openai": KEY}}


def test_a_server_is_asked_for_its_models_and_wants_its_key(
    start: Start, home: Home, provider: ScriptedServer
):
    with start("model") as terminal:
        terminal.answer("Choose [", "Another server")
        terminal.answer("Address", "not an address")
        terminal.wait_for("is not an address")
        terminal.answer("Address", provider.url)
        terminal.wait_for("wants an API key")
        terminal.answer("API key for this server", WRONG)
        terminal.wait_for("does not accept this key")
        terminal.answer("API key for this server", KEY)
        terminal.answer("Model [1]", "luna")
        terminal.wait_for("It works: gpt-6-luna answered")
        terminal.wait_for("Using local/gpt-6-luna: model.base_url is set.")
        assert terminal.wait() == 0
        assert "text-embedding-3" not in terminal.text
    assert stored(home)["api_key"] == KEY


def test_the_models_of_a_provider_are_listed_to_choose_from(start: Start, home: Home):
    with start("login", "openai") as terminal:
        terminal.answer("API key for OpenAI", KEY)
        assert terminal.wait() == 0
    with start("model") as terminal:
        terminal.answer("Choose [1]", "")
        terminal.answer("Model [1]", "2")
        terminal.wait_for("Using openai/gpt-6-luna")
        assert terminal.wait() == 0
    assert stored(home)["name"] == "openai/gpt-6-luna"


def test_the_first_start_offers_the_set_up_once(start: Start, home: Home):
    assert interface.is_first_run()
    with start() as terminal:
        terminal.answer("Set it up now?", "n")
        terminal.wait_for("This is line mode")
    with start() as terminal:
        terminal.answer("Set it up now?", "")
        terminal.answer("Choose [", "OpenAI")
        terminal.answer("API key for OpenAI", KEY)
        terminal.answer("Where it works", ENTER)
        terminal.answer("A messenger", ENTER)
        terminal.wait_for("This is line mode")
        terminal.say("hello")
        terminal.wait_for("hello")
    assert not interface.is_first_run()
    with start() as terminal:
        terminal.wait_for("This is line mode")
        assert "Set it up" not in terminal.text


def test_a_provider_named_by_an_option_is_asked_for_its_key(start: Start, home: Home):
    with start("setup", "--provider", "openai", "--model", "gpt-6-luna") as terminal:
        terminal.answer("API key for OpenAI", KEY)
        terminal.answer("Where it works", ENTER)
        terminal.answer("A messenger", ENTER)
        terminal.wait_for("Ready: openai/gpt-6-luna answers.")
        assert terminal.wait() == 0
    assert stored(home)["name"] == "openai/gpt-6-luna"


def test_a_wrong_option_is_told_before_anything_is_asked(shell: Shell, home: Home):
    shell.run("setup --yes --sandbox nowhere", status=78)
    assert "bubblewrap" in shell.errors
    assert not home.config.exists()
