"""The command line, driven as from a shell but in this process."""

import contextlib
import fcntl
import json
import os
import shlex
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.models import discovery
from hermes_agent.testing.server import ScriptedServer
from hermes_cli import plugins
from hermes_cli.commands import root
from hermes_core.paths import Home
from tests.cli.chat_process import HERMES, World


class Shell:
    """Runs command lines one after the other, each with fresh plugins as a new process has."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.errors = ""

    def run(self, line: str, *, status: int = 0) -> str:
        plugins.host.reset()
        got = root.run(shlex.split(line))
        output, self.errors = self._capsys.readouterr()
        assert got == status, self.errors
        return output

    def json(self, line: str, *, status: int = 0) -> Any:
        return json.loads(self.run(f"{line} --json", status=status))


def on_terminal(line: str, home: Home, columns: int = 80, **environment: str) -> str:
    """Return what a command writes to a terminal of this width."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    plain = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    with subprocess.Popen(
        [HERMES, *shlex.split(line)],
        env={**plain, "HERMES_HOME": str(home.root), "TERM": "xterm-256color", **environment},
        stdin=theirs,
        stdout=theirs,
    ) as process:
        os.close(theirs)
        output = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while data := os.read(ours, 100_000):
                output += data
        os.close(ours)
    assert process.returncode == 0, output
    return output.decode().replace("\r\n", "\n")


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


@pytest.fixture
def can_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a key, so that `hermes doctor` finds a model, and no servers to look for."""
    monkeypatch.setattr(discovery, "PORTS", {})
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-doctor-tests")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer([]) as server:
        yield server


@pytest.fixture
def world(home: Home, tmp_path: Path, server: ScriptedServer) -> World:
    workspace = tmp_path / "work"
    workspace.mkdir()
    return World(home, workspace, server)
