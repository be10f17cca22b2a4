"""`hermes chat` as people and programs run it: real processes, on a terminal or on pipes."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

from hermes_agent.testing.server import ScriptedServer
from hermes_core.paths import Home
from hermes_state import SessionDB
from hermes_state.ledger import turns as turn_ledger

HERMES = Path(sys.executable).with_name("hermes")
TIMEOUT_S = 30.0
"""A process on a busy machine takes its time to start."""

PATIENT = (
    "from hermes_engine import closing; from hermes_cli.chat import shutdown;"
    " shutdown._CLOSE_TIMEOUT_S, closing.STOP_TIMEOUT_S = 20.0, 10.0;"
    " from hermes_cli.main import main; main()"
)
"""The program, with time to write its last words: a disk may halt for seconds."""

_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-_=>])")

CTRL_C, CTRL_D, ENTER = "\x03", "\x04", "\r"


class World:
    """A home, a folder to work in, a server, and the environment that leads to them."""

    def __init__(self, home: Home, workspace: Path, server: ScriptedServer) -> None:
        self.home = home
        self.workspace = workspace
        self.server = server
        self.command = [sys.executable, "-c", PATIENT]
        self.environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(workspace.parent),
            "HERMES_HOME": str(home.root),
            "OPENAI_BASE_URL": server.openai_url,
            "OPENAI_API_KEY": "sk-test-of-the-chat",
            "HERMES_AGENT_TITLES": "false",
            "HERMES_MODEL_SMALL": "off",
            "HERMES_TOOLS_SANDBOX": "host",
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
        }

    def once(
        self, *arguments: str, stdin: str | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run `hermes chat` to its end, with pipes."""
        return subprocess.run(
            [*self.command, "chat", *arguments],
            stdin=subprocess.DEVNULL if stdin is None else None,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            cwd=self.workspace,
            env={**self.environment, **environment},
        )

    def hermes(self, *arguments: str) -> str:
        """What another command says."""
        done = subprocess.run(
            [HERMES, *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=self.environment,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def chat(self, *arguments: str, **environment: str) -> "TerminalChat":
        """Run `hermes chat` on a terminal."""
        return self.terminal("chat", *arguments, **environment)

    def terminal(self, *arguments: str, **environment: str) -> "TerminalChat":
        """Run `hermes` on a terminal."""
        return TerminalChat(
            [*self.command, *arguments], self.workspace, {**self.environment, **environment}
        )

    @contextlib.contextmanager
    def store(self) -> Generator[SessionDB]:
        with contextlib.closing(SessionDB(self.home.database)) as store:
            yield store

    def sessions(self) -> list[dict[str, Any]]:
        with self.store() as store:
            return store.list_sessions_rich()

    def turns(self) -> list[dict[str, Any]]:
        """The turns of the latest conversation."""
        with self.store() as store:
            latest = store.list_sessions_rich(limit=1)[0]
            return store.read(turn_ledger.of_session, latest["id"])

    def model_messages(self) -> list[Any]:
        """What the model was shown last, without the system prompt."""
        messages = self.server.model_requests[-1].json["messages"]
        return [message["content"] for message in messages if message["role"] != "system"]


class TerminalChat:
    """A process with a terminal of its own, and what it has written there; killed at the exit."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # type: ignore[arg-type]
        )
        os.close(slave)
        # A terminal whose reader is in the middle of a read stays open when it is closed.
        self._hearing_end, self._ending = os.pipe()
        self._news = threading.Condition()
        self._raw = b""
        self._seen = 0
        self._is_over = False
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def __enter__(self) -> "TerminalChat":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _listen(self) -> None:
        while True:
            ready, _, _ = select.select([self._master, self._hearing_end], [], [])
            try:
                got = os.read(self._master, 65536) if self._master in ready else b""
            except OSError:
                got = b""
            with self._news:
                self._raw += got
                self._is_over = not got
                self._news.notify_all()
            if not got:
                return

    @property
    def raw(self) -> str:
        return self._raw.decode("utf-8", "replace")

    @property
    def text(self) -> str:
        """What was written, without the sequences that move and colour."""
        return _SEQUENCE.sub("", self.raw).replace("\r\n", "\n")

    def wait_for(self, text: str) -> str:
        """Wait until something is written after what was waited for before."""

        def there() -> bool:
            return self.text.find(text, self._seen) >= 0 or self._is_over

        with self._news:
            self._news.wait_for(there, TIMEOUT_S)
            position = self.text.find(text, self._seen)
            assert position >= 0, f"{text!r} was not written in:\n{self.text[self._seen :]}"
            before = self.text[self._seen : position]
            self._seen = position + len(text)
            return before

    def wait_until_over(self) -> None:
        """Wait until all that was written has been read."""
        with self._news:
            self._news.wait_for(lambda: self._is_over, TIMEOUT_S)

    def wait_for_prompt(self) -> str:
        return self.wait_for("\n>")

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def say(self, text: str) -> None:
        """Wait for the prompt and send a message."""
        self.wait_for_prompt()
        self.type(text + ENTER)

    def answer(self, question: str, text: str) -> None:
        """Wait for a question and type the answer."""
        self.wait_for(question)
        self.type(text + ENTER)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def hang_up(self) -> None:
        """Close the terminal, as closing its window does."""
        os.close(self._ending)
        self._thread.join(TIMEOUT_S)
        os.close(self._master)
        os.close(self._hearing_end)
        self._master = -1

    def wait(self) -> int:
        """The exit status."""
        return self.process.wait(TIMEOUT_S)

    def kill(self) -> None:
        """Kill it as the system does when memory is short."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(TIMEOUT_S)
        if self._master >= 0:
            self.hang_up()


def as_json(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    return json.loads(done.stdout)
