"""What `hermes` alone starts: the interface on a terminal, and elsewhere what is sensible there."""

import contextlib
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_agent.testing.server import ScriptedServer
from hermes_core.paths import Home
from tests.tui.multiplexer import TIMEOUT_S, Tmux

HERMES = "from hermes_cli.main import main; main()"
WITHOUT_TEXTUAL = f"import sys; sys.modules['textual'] = None; {HERMES}"

needs_tmux = pytest.mark.skipif(
    shutil.which("tmux") is None, reason="needs tmux: apt-get install tmux"
)

Start = Callable[..., Tmux]


@pytest.fixture
def surroundings(tmp_path: Path, home: Home) -> Iterator[dict[str, str]]:
    with ScriptedServer() as model:
        yield {
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "HERMES_HOME": str(home.root),
            "OPENAI_BASE_URL": model.openai_url,
            "OPENAI_API_KEY": "sk-test-of-the-start",
            "HERMES_AGENT_TITLES": "false",
            "TERM": "screen-256color",
            "LANG": "C.UTF-8",
        }


@pytest.fixture
def start(tmp_path: Path, surroundings: dict[str, str]) -> Iterator[Start]:
    with contextlib.ExitStack() as stack:

        def run(program: str, *arguments: str, **values: str) -> Tmux:
            command = [sys.executable, "-c", program, *arguments]
            tmux = Tmux(tmp_path, command, surroundings | values)
            stack.callback(tmux.close)
            return tmux

        yield run


def piped(surroundings: dict[str, str], text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HERMES],
        input=text,
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.e2e
@needs_tmux
def test_on_a_terminal_it_is_the_interface_and_continue_goes_on(start: Start) -> None:
    terminal = start(HERMES)
    terminal.wait_for("● ready", "Ask anything", "Keyboard shortcuts")
    terminal.type("remember me")
    terminal.press("Enter")
    terminal.wait_for("You said: remember me", "● ready")
    terminal.press("C-q")
    terminal.wait_for("left with 0")
    terminal.type(f"clear; {terminal.line} --continue")
    terminal.press("Enter")
    terminal.wait_for("You said: remember me", "● ready")
    terminal.press("C-q")


@pytest.mark.e2e
@needs_tmux
def test_on_a_dumb_terminal_it_is_the_line_chat(start: Start) -> None:
    terminal = start(HERMES, TERM="dumb")
    terminal.wait_for("Type /help for commands.", "\n>")
    terminal.press("C-d")
    terminal.wait_for("left with 0")


@pytest.mark.e2e
@needs_tmux
def test_without_the_extra_it_says_so_and_is_the_line_chat(start: Start) -> None:
    terminal = start(WITHOUT_TEXTUAL)
    terminal.wait_for(
        "This is line mode", "pip install -e '.[tui]'", "Type /help for commands.", "\n>"
    )
    terminal.press("C-d")
    terminal.wait_for("left with 0")


@pytest.mark.e2e
@needs_tmux
def test_without_the_extra_the_interface_itself_says_how_to_get_it(start: Start) -> None:
    terminal = start(WITHOUT_TEXTUAL, "tui")
    terminal.wait_for("is not installed", "pip install -e '.[tui]'", "left with")


def test_with_something_piped_in_it_answers_once(surroundings: dict[str, str]) -> None:
    done = piped(surroundings, "what is this?")
    assert done.returncode == 0
    assert "You said: what is this?" in done.stdout


def test_with_nothing_to_read_it_says_what_to_write(surroundings: dict[str, str]) -> None:
    done = piped(surroundings, "")
    assert done.returncode != 0
    assert "hermes chat -q" in done.stderr


def test_what_is_to_be_opened_is_not_taken_before_another_command(
    surroundings: dict[str, str],
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HERMES, "--continue", "sessions", "list"],
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 2
    assert "Put these options after the command." in done.stderr


def test_it_leaves_when_its_terminal_goes_away_without_a_signal(
    surroundings: dict[str, str],
) -> None:
    master, slave = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", HERMES],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=surroundings,
        start_new_session=True,
    )
    os.close(slave)
    output = b""
    while b"F1" not in output:
        output += os.read(master, 1 << 16)
    os.close(master)
    assert child.wait(TIMEOUT_S) is not None


@pytest.mark.e2e
@needs_tmux
def test_a_new_person_gets_from_nothing_to_an_answer(
    start: Start, surroundings: dict[str, str]
) -> None:
    address = surroundings["OPENAI_BASE_URL"]
    bare = f"import os; del os.environ['OPENAI_API_KEY'], os.environ['OPENAI_BASE_URL']; {HERMES}"
    terminal = start(bare)
    terminal.wait_for("Set it up now?")
    terminal.type("n")
    terminal.press("Enter")
    terminal.wait_for("There is no model yet", "no model, F4")
    terminal.type("hello")
    terminal.press("Enter")
    terminal.wait_for("waiting for a model")
    terminal.press("F4")
    terminal.wait_for("No model can answer yet.")
    terminal.press("Enter")
    terminal.wait_for("The model that answers", "Choose [")
    terminal.type("Another server")
    terminal.press("Enter")
    terminal.wait_for("Address")
    terminal.type(address)
    terminal.press("Enter")
    terminal.wait_for("Model [1]")
    terminal.press("Enter")
    terminal.wait_for("Where it works", "Choose [1]:")
    terminal.press("Enter")
    terminal.wait_for("A messenger", "None for now")
    terminal.press("Enter")
    terminal.wait_for("scripted answers now.", "You said: hello", "ready")
