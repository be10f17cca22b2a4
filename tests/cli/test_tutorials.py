"""The README, the quick start and the tutorials do what they say: every command is run, on a terminal.

A block of `sh` is run by a shell that has the folder and the variables of the one before. A block with a
file as its title is written to that file; "(add)" appends. A block of `text` without a title is what the
commands before it print; … stands for anything.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hermes_agent.testing.scripted import call, say
from hermes_agent.testing.server import Play, ScriptedServer
from tests.cli.chat_process import TerminalChat
from tests.gateway.servers.telegram import ANNA, BEN, BotApi

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RUN_PAGES = [
    "start/quick-start.md",
    *(f"tutorials/{name}.md" for name in ("skill", "plugin", "family-bot")),
]

_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TIMEOUT_S = 30.0
CTRL_Q = "\x11"

Dialogue = Callable[[TerminalChat], None]


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str
    text: str


def blocks(page: str) -> list[Block]:
    text = (DOCS / page).read_text("utf-8")
    return [Block(*match) for match in _BLOCK.findall(text)]


@dataclass
class Reader:
    """Somebody who follows a page, with an empty home and a clone of the repository."""

    folder: Path
    environment: dict[str, str]
    dialogues: Mapping[str, Dialogue] = field(default_factory=dict)
    """By a command: what is typed while it runs."""
    values: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    """By a placeholder: what the reader writes in its place."""
    output: str = ""
    """What the last block printed."""

    @property
    def home(self) -> Path:
        return Path(self.environment["HOME"])

    def follow(self, page: str) -> None:
        for block in blocks(page):
            if block.language == "sh":
                self.run(block.text)
            elif block.title.startswith("~"):
                self.write(block)
            elif block.language == "text" and not block.title:
                self.compare(block.text)

    def run(self, commands: str) -> None:
        for placeholder, value in self.values.items():
            if re.search(rf"\b{placeholder}\b", commands):
                commands = re.sub(rf"\b{placeholder}\b", value(), commands)
        state, script = self.folder / "state.sh", self.folder / "block.sh"
        before = f". '{state}'\n" if state.exists() else ""
        script.write_text(
            f'{before}trap \'{{ export -p; printf "cd %q\\n" "$PWD"; }} > {state}\' EXIT\n{commands}'
        )
        with TerminalChat(
            ["bash", "-e", str(script)], self.folder / "hermes", self.environment
        ) as terminal:
            for command, dialogue in self.dialogues.items():
                if re.search(rf"^{re.escape(command)}( *#.*)?$", commands, re.MULTILINE):
                    dialogue(terminal)
            status = terminal.wait()
            terminal.wait_until_over()
            self.output = terminal.text
        assert status == 0, f"{commands}\n{self.output}"

    def prepare_telegram(self, api: BotApi) -> None:
        """Name a server on this machine in the place of Telegram's."""
        config = self.home / ".hermes" / "config.toml"
        config.parent.mkdir(mode=0o700)
        config.write_text(f'[gateway.platforms.telegram]\napi_url = "{api.url}"\npoll_s = 20\n')

    def write(self, block: Block) -> None:
        name, _, how = block.title.partition(" ")
        path = self.home / name.removeprefix("~/")
        assert path.parent.is_dir(), f"{path.parent} does not exist yet"
        before = path.read_text("utf-8") + "\n" if how == "(add)" else ""
        path.write_text(before + block.text, "utf-8")

    def compare(self, text: str) -> None:
        lines = [re.escape(line.strip()).replace("…", ".*") for line in text.splitlines()]
        pattern = r"\s*\n".join(rf"\s*{line}" for line in lines if line)
        assert re.search(pattern, self.output), f"{text}\nis not in:\n{self.output}"


def _clone(folder: Path) -> None:
    """Put everything of this checkout where a clone would have it, with the environment of the tests."""
    folder.mkdir()
    for path in ROOT.iterdir():
        if path.name not in (".git", ".venv", "build", "dist"):
            (folder / path.name).symlink_to(path)
    (folder / ".venv").symlink_to(sys.prefix)


@pytest.fixture
def script() -> list[Play]:
    """What the model says, step by step; a test fills it."""
    return []


@pytest.fixture
def server(script: list[Play]) -> Iterator[ScriptedServer]:
    steps = iter(script)
    with ScriptedServer(lambda _: next(steps, say("All is well."))) as server:
        yield server


@pytest.fixture
def reader(tmp_path: Path, server: ScriptedServer) -> Reader:
    _clone(tmp_path / "hermes")
    home = tmp_path / "home"
    home.mkdir()
    return Reader(
        tmp_path,
        {
            "PATH": f"{home}/.local/bin:{sys.prefix}/bin:{os.defpath}",
            "HOME": str(home),
            "OPENAI_BASE_URL": server.openai_url,
            "OPENAI_API_KEY": "sk-of-a-reader",
            "HERMES_AGENT_TITLES": "false",
            "HERMES_MODEL_SMALL": "off",
            "HERMES_GATEWAY_LOCK_DIR": str(tmp_path / "locks"),
            "MAKEFLAGS": "-o .venv/.ready",
            "PYTEST_ADDOPTS": "-p no:cacheprovider",
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
        },
    )


def set_up(terminal: TerminalChat) -> None:
    """Take every proposal of `hermes setup`."""
    for number in "123":
        terminal.wait_for(f"\n{number}. ")
        terminal.wait_for("Choose [1]")
        terminal.type("\r")
    terminal.wait_for("Start with: hermes")


def connect(terminal: TerminalChat, api: BotApi) -> None:
    """Answer `hermes gateway setup telegram`, as Anna."""
    terminal.wait_for("token (")
    terminal.type(f"{api.token}\r")
    terminal.wait_for("https://t.me/hermes_test_bot?start=")
    code = terminal.wait_for("\n")
    api.world.write(f"/start {code}")
    terminal.wait_for("Start [")
    terminal.type("background\r")


def requests(server: ScriptedServer) -> str:
    """All that the model was sent."""
    return "\n".join(request.body.decode() for request in server.model_requests)


@pytest.mark.parametrize("page", RUN_PAGES)
def test_a_page_has_commands_in_blocks_that_are_run(page: str) -> None:
    assert {block.language for block in blocks(page)} <= {
        "sh",
        "text",
        "toml",
        "markdown",
        "python",
        "console",
    }
    assert sum(block.language == "sh" for block in blocks(page)) >= 4


def test_the_tutorial_of_the_first_skill(reader: Reader, server: ScriptedServer) -> None:
    reader.follow("tutorials/skill.md")
    assert "mention that it is a first draft" in requests(server)
    assert "Print only the message." in requests(server)
    assert "All is well." in (reader.home / "message.txt").read_text()


def test_the_tutorial_of_the_first_plugin(
    reader: Reader, server: ScriptedServer, script: list[Play]
) -> None:
    script += [call("roll_dice", count=3), say("I rolled three dice.")]
    reader.follow("tutorials/plugin.md")
    assert re.search(r"\[\d, \d, \d\], together \d+", requests(server))


def test_the_tutorial_of_a_bot_for_a_family(reader: Reader) -> None:
    with BotApi() as api:
        reader.prepare_telegram(api)

        def code_of_ben() -> str:
            api.world.write("let me in", person=BEN)
            api.world.wait_for(
                lambda: any("code is" in text for text in api.world.replies(BEN.id)), _TIMEOUT_S
            )
            found = re.search(r"\b[A-Z0-9]{8}\b", "\n".join(api.world.replies(BEN.id)))
            assert found is not None
            return found[0]

        reader.dialogues = {
            "hermes gateway setup telegram": lambda terminal: connect(terminal, api)
        }
        reader.values = {"CODE": code_of_ben}
        try:
            reader.follow("tutorials/family-bot.md")
            api.world.write("are you there?")
            api.world.wait_for(lambda: "All is well." in api.world.replies(ANNA.id)[-1], _TIMEOUT_S)
        finally:
            reader.run("hermes gateway stop")
    assert (reader.home / "family-bot.tar.gz").stat().st_size > 1000


def test_the_quick_start(reader: Reader, server: ScriptedServer, script: list[Play]) -> None:
    haiku = "The tide comes and goes"
    script += [
        say("Yes."),
        call("write_file", path="sea.txt", content=f"{haiku}\n"),
        say("The haiku is in sea.txt."),
    ]
    seen: list[str] = []

    def chat(terminal: TerminalChat) -> None:
        terminal.wait_for("ready")
        terminal.type("Write a haiku about the sea to sea.txt.\r")
        terminal.wait_for("The haiku is in")
        terminal.type(CTRL_Q)
        seen.append((reader.home / "first-steps" / "sea.txt").read_text())

    reader.dialogues = {"hermes setup": set_up, "hermes": chat}
    reader.follow("start/quick-start.md")
    assert seen == [f"{haiku}\n"]
    assert not (reader.home / "first-steps" / "sea.txt").exists(), "undone"
    assert "Which one is the deepest?" in requests(server)
    assert "The sea is calm tonight." in requests(server)
    assert (reader.home / "first-steps" / "french.txt").read_text() == "All is well.\n"


def test_the_commands_of_the_readme(reader: Reader, server: ScriptedServer) -> None:
    """Run them all but `make test`, which is what CI runs."""

    def open_and_quit(terminal: TerminalChat) -> None:
        terminal.wait_for("ready")
        terminal.type(CTRL_Q)

    with BotApi() as api:
        reader.prepare_telegram(api)
        reader.dialogues = {
            "hermes setup": set_up,
            "hermes": open_and_quit,
            "make chat": open_and_quit,
            "hermes gateway setup telegram": lambda terminal: connect(terminal, api),
        }
        lines = "".join(block.text for block in blocks("../README.md")).splitlines()
        commands = [line for line in lines if line and not line.startswith("make test")]
        assert len(commands) >= 6
        try:
            for command in commands:
                reader.run(f"{command}\n")
        finally:
            reader.run("hermes gateway stop")
    assert "What is in this folder?" in requests(server)
    assert "why is the sky blue?" in requests(server)
