"""The gateway as it lives: in this process, or as a process of its own that can be killed."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from gateway.run import GatewayRunner
from gateway.services import Services
from gateway.session import SessionEntry
from hermes_agent.agent import Agent
from hermes_agent.testing import echo
from hermes_agent.testing.server import Play, Recorded, ScriptedServer
from hermes_core import config
from hermes_core.paths import Home
from hermes_state import SessionDB
from tests.support.loopback.server import LoopbackServer, ShownMessage

TIMEOUT_S = 30.0
T = TypeVar("T")

_PLUGIN = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.support.loopback.manifest import MANIFEST


def register(ctx):
    ctx.platform("loopback", lambda: MANIFEST)
"""
_SETTINGS = """
[model]
name = "scripted"
base_url = "{model}"
api_key = "scripted-key"
retries = 1

[agent]
titles = false

[approvals]
timeout_s = 30.0

[plugins]
enabled = ["loopback"]

[gateway]
drain_s = {drain}
streaming = {streaming}
tool_activity = {streaming}
busy = "{busy}"
{more}
[gateway.owners]
loopback = ["u1", "u2", "u3"]

[gateway.platforms.loopback]
address = "{address}"
resend = "{resend}"
timeout_s = 5.0
"""


class World:
    """A home with a loopback platform and a model that plays what it is given, else repeats."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._steps: deque[Play] = deque()
        self.model = ScriptedServer(self._play)
        self.platform = LoopbackServer()

    def _play(self, request: Recorded) -> Play:
        return self._steps.popleft() if self._steps else echo.step(request)

    def play(self, *steps: Play) -> None:
        """What the model does next; after that it repeats what it is told."""
        self._steps.extend(steps)

    def __enter__(self) -> "World":
        self.model.start()
        self.platform.__enter__()
        self.configure()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.platform.__exit__(None, None, None)
        self.model.close()

    def configure(
        self,
        *,
        resend: str = "same",
        streaming: bool = False,
        busy: str = "queue",
        drain: float = 5.0,
        more: str = "",
    ) -> None:
        self.home.create()
        folder = self.home.plugins / "loopback"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plugin.toml").write_text(
            'name = "loopback"\nversion = "1"\ndescription = "For tests."\n'
        )
        (folder / "__init__.py").write_text(_PLUGIN)
        text = _SETTINGS.format(
            model=self.model.openai_url,
            address=self.platform.address,
            resend=resend,
            streaming=str(streaming).lower(),
            busy=busy,
            drain=drain,
            more=more,
        )
        self.home.config.write_text(text)

    def replies(self, chat: str) -> list[str]:
        return [message.text for message in self.platform.shown(chat)]

    def wait_for_replies(self, chat: str, number: int) -> list[str]:
        self.platform.wait_for(chat, lambda messages: len(messages) >= number, TIMEOUT_S)
        return self.replies(chat)

    def wait_for_text(self, chat: str, text: str) -> ShownMessage:
        messages = self.platform.wait_for(
            chat, lambda messages: any(text in message.text for message in messages), TIMEOUT_S
        )
        return next(message for message in messages if text in message.text)


class Inside:
    """The gateway in a thread of this process."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = SessionDB(world.home.database)
        self.runner = GatewayRunner(world.home, config.load(world.home), self.store)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def call(self, job: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(job, self._loop).result(TIMEOUT_S)

    @property
    def services(self) -> Services:
        assert self.runner._services is not None
        return self.runner._services

    def agent_of(self, entry: SessionEntry) -> Agent | None:
        """The agent that is awake in the conversation of a chat."""
        turns = self.services.turns
        return turns.engine.agents.peek(turns.conversation_of(entry.session_key))

    def open_turns(self) -> set[str]:
        """The turns of chats that run or are queued."""
        rows = self.store.read(
            lambda tx: tx.tuples(
                "SELECT id FROM turns WHERE state IN ('accepted', 'running') AND surface = 'gateway'"
            )
        )
        return {turn_id for (turn_id,) in rows} | {
            running.turn.id for running in self.services.turns.engine.work
        }

    def __enter__(self) -> "Inside":
        self._thread.start()
        assert self.call(self.runner.start()) == ["loopback"]
        return self

    def __exit__(self, *_exception: object) -> None:
        self.call(self.runner.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()
        self.store.close()


class Process:
    """The gateway as `hermes gateway run`."""

    def __init__(self, world: World, *arguments: str, **environment: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "hermes_cli.main", "gateway", "run", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": str(world.home.root.parent),
                "HERMES_HOME": str(world.home.root),
                "HERMES_GATEWAY_LOCK_DIR": str(world.home.root / "locks"),
                **environment,
            },
        )
        self.output = b""
        self.is_up = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self.output += line
            if b"gateway is running" in line:
                self.is_up.set()

    def wait_until_up(self) -> "Process":
        assert self.is_up.wait(TIMEOUT_S), self.output.decode()
        return self

    def kill(self) -> None:
        self.child.kill()
        self._end()

    def terminate(self) -> int:
        self.child.send_signal(signal.SIGTERM)
        return self._end()

    def _end(self) -> int:
        code = self.child.wait(TIMEOUT_S)
        self._thread.join(TIMEOUT_S)
        assert self.child.stdout is not None
        self.child.stdout.close()
        return code

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_exception: object) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self._end()
