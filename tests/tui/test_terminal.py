"""The whole of it in a real terminal: tmux, `hermes tui`, the real server, a scripted model."""

import contextlib
import os
import select
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_agent.testing.server import ScriptedServer
from hermes_core.paths import Home, make_folder
from hermes_state import SessionDB
from tests.tui.multiplexer import TIMEOUT_S, Tmux, children_of

START = Path(__file__).with_name("start.py")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux: apt-get install tmux"),
]


@pytest.fixture
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def broken(home: Home) -> Path:
    """A configuration that cannot be read; for a test that names it before the terminal."""
    make_folder(home.root)
    home.config.write_text("this is = = no TOML\n")
    return home.config


@pytest.fixture
def terminal(tmp_path: Path, home: Home, model: ScriptedServer) -> Iterator[Tmux]:
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "HERMES_HOME": str(home.root),
        "OPENAI_BASE_URL": model.openai_url,
        "OPENAI_API_KEY": "sk-test-of-the-interface",
        "HERMES_AGENT_TITLES": "false",
        "TERM": "screen-256color",
        "LANG": "C.UTF-8",
    }
    tmux = Tmux(tmp_path, [sys.executable, str(START), "tui"], environment)
    yield tmux
    tmux.close()


def server_of(terminal: Tmux) -> int:
    """The process of the server that the interface in a terminal has started."""
    [server] = [pid for pid in children_of(terminal.pid) if "tui_gateway.entry" in command_of(pid)]
    return server


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def test_a_person_types_resizes_interrupts_kills_the_server_and_quits(
    terminal: Tmux, home: Home
) -> None:
    terminal.wait_for("● ready", "Ask anything")
    terminal.type("hello there")
    terminal.press("Enter")
    terminal.wait_for("You said: hello there", "● ready")
    assert "hello there · Hermes" in terminal.title

    terminal.resize(50, 16)
    narrow = terminal.wait_for("● ready", "╮", without="╭" + "─" * 60)
    assert max(map(len, narrow.splitlines())) <= 50
    terminal.resize(100, 30)
    terminal.wait_for("╭" + "─" * 98 + "╮", "You said: hello there")

    terminal.type('call terminal {"command": "echo begun; sleep 60"}')
    terminal.press("Enter")
    terminal.wait_for("▌ begun")
    terminal.press("C-c")
    terminal.wait_for("Stopped.", "● ready")

    terminal.type("a half sent")
    terminal.wait_for("a half sent")
    os.kill(server_of(terminal), signal.SIGKILL)
    terminal.wait_for("The server stopped", "killed by signal 9", "● ready")
    terminal.type("ence")
    terminal.press("Enter")
    terminal.wait_for("You said: a half sentence", "● ready")

    terminal.press("C-c")
    terminal.wait_for("Press Ctrl+C again to quit")
    terminal.press("C-c")
    terminal.wait_for("left with 0")
    with contextlib.closing(SessionDB(home.database)) as store:
        [row] = store.list_sessions_rich()
        assert row["end_reason"] in ("tui_close", "tui_shutdown")
        contents = [m["content"] for m in store.get_messages_as_conversation(row["id"])]
    assert contents[0] == "hello there" and "a half sentence" in contents


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_as_a_person_would(
    terminal: Tmux, home: Home, number: signal.Signals
) -> None:
    terminal.wait_for("● ready")
    terminal.type("a draft")
    terminal.wait_for("a draft")
    [interface] = [pid for pid in children_of(terminal.pid) if "start.py" in command_of(pid)]
    os.kill(interface, number)
    output = terminal.wait_for(f"left with {128 + number}", without="a draft")
    assert "╭" not in output, "the terminal shows what it showed before"
    assert "a draft" in home.history.read_text("utf-8")


def test_several_lines_a_paste_and_a_completion(terminal: Tmux, model: ScriptedServer) -> None:
    terminal.wait_for("● ready")
    terminal.type("one")
    terminal.press("C-j")
    terminal.type("two")
    terminal.press("M-Enter")
    terminal.paste("three\nfour")
    terminal.wait_for("│ one", "│ two", "│ three", "│ four")
    terminal.press("Enter")
    terminal.wait_for("You said:", "● ready")
    sent = model.model_requests[-1].json["messages"][-1]["content"]
    assert "one\ntwo\nthree\nfour" in str(sent)
    terminal.paste("\n".join(f"line {number}" for number in range(200)))
    terminal.wait_for("[Pasted text #1: 200 lines")
    terminal.press("Enter")
    terminal.wait_for("line 48 line 49", "● ready")
    sent = str(model.model_requests[-1].json["messages"][-1]["content"])
    assert "line 0\nline 1\n" in sent and "\r" not in sent
    terminal.type("/sta")
    terminal.wait_for("/status")
    terminal.press("Tab")
    terminal.press("Enter")
    terminal.wait_for("Nothing is running.")
    terminal.press("F1")
    terminal.wait_for("Input history")
    terminal.press("Escape")
    terminal.wait_for("● ready", without="Input history")
    terminal.type("/exit")
    terminal.press("Enter")
    terminal.press("Enter")
    terminal.wait_for("left with 0")


def test_an_approval_in_a_terminal(terminal: Tmux, tmp_path: Path) -> None:
    doomed = tmp_path / "doomed"
    doomed.mkdir()
    terminal.wait_for("● ready")
    terminal.type(f'call terminal {{"command": "rm -rf {doomed}"}}')
    terminal.press("Enter")
    terminal.wait_for("Allow this command?", "Allow once", "a key, then Enter")
    terminal.press("n", "Enter")
    terminal.wait_for("● ready", without="Allow this command?")
    assert doomed.is_dir()
    terminal.press("C-q")
    terminal.wait_for("left with 0")


def test_a_broken_file_is_told_once_and_what_was_said_is_answered_when_it_is_right(
    broken: Path, terminal: Tmux
) -> None:
    picture = terminal.wait_for("needs attention", "is not valid", "Correct that line.")
    assert picture.count("Correct that line.") == 1
    terminal.type("hello there")
    terminal.press("Enter")
    terminal.wait_for("next  hello there")
    broken.unlink()
    terminal.wait_for("You said: hello there", "● ready", without="next  hello there")
    terminal.press("C-q")
    terminal.wait_for("left with 0")


def test_closing_the_terminal_ends_the_conversation(terminal: Tmux, home: Home) -> None:
    terminal.wait_for("● ready")
    terminal.type("remember this")
    terminal.press("Enter")
    terminal.wait_for("You said: remember this", "● ready")
    server = os.pidfd_open(server_of(terminal))
    for pid in children_of(terminal.pid):
        os.kill(pid, signal.SIGHUP)
    with contextlib.closing(select.epoll()) as ended:
        ended.register(server, select.EPOLLIN)
        assert ended.poll(TIMEOUT_S), "the server did not end"
    os.close(server)
    with contextlib.closing(SessionDB(home.database)) as store:
        [row] = store.list_sessions_rich()
    assert row["message_count"] == 2
    assert row["ended_at"] is not None


def test_a_prompt_in_the_background_is_answered_beside_the_conversation(terminal: Tmux) -> None:
    terminal.wait_for("● ready")
    terminal.type("/background look into it")
    terminal.press("Enter")
    terminal.wait_for("Working on it in the background.", "Background result: You said: look")
    terminal.press("C-q")
    terminal.wait_for("left with 0")
