"""The terminal goes away, or a signal ends the interface: it ends at once, and nothing is lost.

A real pseudo terminal, the real interface, the real server and a scripted model.
"""

import contextlib
import os
import pty
import re
import select
import shutil
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_agent.testing.server import ScriptedServer
from hermes_core.paths import Home
from hermes_state import SessionDB
from tests.tui.multiplexer import TIMEOUT_S, Tmux, children_of

pytestmark = pytest.mark.e2e

_STYLE = re.compile(r"\x1b\[[\d;]*[a-zA-Z]")
_SYNC_QUERY = b"\x1b[?2026$p"
_SYNC_SUPPORTED = b"\x1b[?2026;2$y"
"""With this answer, as of a modern terminal, every picture takes several writes."""
START = str(Path(__file__).with_name("start.py"))
_END_TIMEOUT_S = 8.0
"""The interface promises one second; a machine that others use as well gets more."""


class Terminal:
    """A terminal with the interface in it; the test is what people look at."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            there = {"TMPDIR": os.environ["TMPDIR"], **environment}
            os.execve(sys.executable, [sys.executable, START, "tui"], there)
        self.process = os.pidfd_open(self.pid)
        termios.tcsetwinsize(self._master, (40, 120))
        self._unread = ""
        self._is_closed = False

    def wait_for(self, *texts: str) -> None:
        """Read until each of these has been written since the last wait."""
        seen, deadline = "", time.monotonic() + TIMEOUT_S
        while not all(text in seen for text in texts):
            ready, _, _ = select.select([self._master], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"{texts} did not come: {seen[-2000:]!r}"
            written = os.read(self._master, 65536)
            if _SYNC_QUERY in written:
                os.write(self._master, _SYNC_SUPPORTED)
            self._unread += written.decode("utf-8", "replace")
            seen = _STYLE.sub("", self._unread)
        self._unread = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def hang_up(self) -> None:
        """Close the window."""
        os.close(self._master)
        self._is_closed = True

    def servers(self) -> list[int]:
        """Descriptors of the server processes."""
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in children_of(self.pid)}
        return [os.pidfd_open(pid) for pid, line in commands.items() if "tui_gateway" in line]

    def status(self) -> int:
        """The exit status of the interface; a signal counts negative."""
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            signal.pidfd_send_signal(self.process, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.process)
        if not self._is_closed:
            os.close(self._master)


def ends(process: int, timeout_s: float = _END_TIMEOUT_S) -> bool:
    """Whether a process ends in time."""
    return bool(select.select([process], [], [], timeout_s)[0])


@pytest.fixture
def environment(tmp_path: Path, home: Home) -> Iterator[dict[str, str]]:
    with ScriptedServer() as model:
        yield {
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "HERMES_HOME": str(home.root),
            "OPENAI_BASE_URL": model.openai_url,
            "OPENAI_API_KEY": "sk-test-of-the-terminal",
            "HERMES_AGENT_TITLES": "false",
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
        }


@pytest.fixture
def terminal(environment: dict[str, str]) -> Iterator[Terminal]:
    with contextlib.closing(Terminal(environment)) as opened:
        yield opened


def while_starting(terminal: Terminal) -> None:
    terminal.wait_for("\x1b[?1049h")  # the terminal is taken, nothing else is there yet


def while_idle(terminal: Terminal) -> None:
    terminal.wait_for("ready")


def after_an_answer(terminal: Terminal) -> None:
    terminal.wait_for("ready")
    terminal.type("remember this\r")
    terminal.wait_for("You said: remember this", "ready")


def in_a_turn(terminal: Terminal) -> None:
    terminal.wait_for("ready")
    terminal.type('call terminal {"command": "echo begun; sleep 60"}\r')
    terminal.wait_for("▌ begun")


def with_an_open_approval(terminal: Terminal) -> None:
    terminal.wait_for("ready")
    terminal.type('call terminal {"command": "rm -rf /nowhere/at/all"}\r')
    terminal.wait_for("Allow")


def with_an_open_dialog(terminal: Terminal) -> None:
    terminal.wait_for("ready")
    terminal.type("\x1bOP")  # F1
    terminal.wait_for("Esc closes")


MOMENTS = (
    while_starting,
    while_idle,
    after_an_answer,
    in_a_turn,
    with_an_open_approval,
    with_an_open_dialog,
)
at_every_moment = pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)
Moment = Callable[[Terminal], None]


@at_every_moment
def test_closing_the_terminal_ends_the_interface_and_its_server(
    terminal: Terminal, moment: Moment
) -> None:
    moment(terminal)
    servers = terminal.servers()
    terminal.hang_up()
    assert ends(terminal.process), "the interface did not end"
    assert all(map(ends, servers)), "the server did not end"
    for server in servers:
        os.close(server)


@at_every_moment
def test_sigterm_ends_the_interface_and_its_server(terminal: Terminal, moment: Moment) -> None:
    moment(terminal)
    servers = terminal.servers()
    os.kill(terminal.pid, signal.SIGTERM)
    assert ends(terminal.process), "the interface did not end"
    assert terminal.status() == 128 + signal.SIGTERM
    assert all(map(ends, servers)), "the server did not end"
    for server in servers:
        os.close(server)


def test_sigterm_ends_it_while_nothing_reads_what_it_writes(terminal: Terminal) -> None:
    terminal.wait_for("ready")
    for _ in range(200):  # more output than the terminal and the queue before it hold
        terminal.type("/keys\r\x1b\x1b")
    os.kill(terminal.pid, signal.SIGTERM)
    assert ends(terminal.process), "the interface did not end"


def test_what_was_said_is_kept_when_the_terminal_is_closed(terminal: Terminal, home: Home) -> None:
    after_an_answer(terminal)
    [server] = terminal.servers()
    terminal.hang_up()
    assert ends(server)
    os.close(server)
    with contextlib.closing(SessionDB(home.database)) as store:
        [row] = store.list_sessions_rich()
        messages = store.get_messages_as_conversation(row["id"])
    contents = [message["content"] for message in messages]
    assert contents[0] == "remember this"
    assert contents[1].startswith("You said: remember this")
    assert row["end_reason"] in ("tui_close", "tui_shutdown")


def test_a_turn_that_the_terminal_leaves_is_kept(terminal: Terminal, home: Home) -> None:
    in_a_turn(terminal)
    [server] = terminal.servers()
    terminal.hang_up()
    assert ends(server)
    os.close(server)
    with contextlib.closing(SessionDB(home.database)) as store:
        [row] = store.list_sessions_rich()
        roles = [message["role"] for message in store.get_messages_as_conversation(row["id"])]
    assert roles[:2] == ["user", "assistant"]
    assert row["ended_at"] is not None


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux: apt-get install tmux")
@pytest.mark.parametrize("kind", ["kill-window", "kill-server"])
def test_closing_a_tmux_window_ends_the_interface_and_its_server(
    tmp_path: Path, environment: dict[str, str], kind: str
) -> None:
    tmux = Tmux(tmp_path, [sys.executable, START, "tui"], environment)
    tmux.wait_for("● ready")
    processes = [os.pidfd_open(pid) for pid in children_of(tmux.pid)]
    tmux.kill(kind)
    assert all(map(ends, processes))
    for process in processes:
        os.close(process)
