"""The server as clients meet it: in this process, and as a process of its own over pipes."""

import itertools
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from hermes_agent.testing.server import ScriptedServer
from hermes_core.paths import Home
from hermes_protocol.events import EVENTS
from hermes_state import SessionDB
from hermes_state.ledger import lineage
from hermes_state.ledger import turns as turn_ledger
from tests.rpc.memory_transport import MemoryTransport
from tui_gateway import server

TIMEOUT_S = 30.0
"""A process on a busy machine takes its time to start."""

Json = dict[str, Any]
PATIENT = (
    "import sys; from hermes_engine import closing; from tui_gateway import closing as ours, entry;"
    " entry._GRACE_S = 20.0; closing.STOP_TIMEOUT_S = ours._LEAVE_TIMEOUT_S = 10.0;"
    " sys.exit(entry.main(sys.argv[1:]))"
)
"""The server, with time to write its last words: a disk may halt for seconds."""


class RefusedError(Exception):
    """The server said no."""

    def __init__(self, error: Json) -> None:
        super().__init__(error["message"])
        self.number: int = error["code"]
        self.data: Json = error.get("data", {})


def check(frame: Json) -> Json:
    """Refuse an event that is not as its page says."""
    params = frame.get("params")
    if params is not None:
        kind = EVENTS[params["type"]]
        payload = params["payload"]
        fields = msgspec.structs.fields(kind)
        unknown = set(payload) - {field.name for field in fields}
        assert not unknown, f"{params['type']} has {unknown}"
        always_sent = {field.name for field in fields if field.default is not None}
        assert always_sent <= set(payload), f"{params['type']} lacks {always_sent - set(payload)}"
        msgspec.convert(payload, kind)
    return frame


class Client:
    """Asks, waits for answers and for events; how frames travel is up to the subclass."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._news = threading.Condition()
        self.frames: list[Json] = []
        self.is_over = False
        self._seen = 0

    def send(self, data: bytes) -> None:
        raise NotImplementedError

    def receive(self, frame: Json) -> None:
        with self._news:
            self.frames.append(check(frame))
            self._news.notify_all()

    def over(self) -> None:
        with self._news:
            self.is_over = True
            self._news.notify_all()

    def post(self, method: str, **params: Any) -> int:
        """Send a request and do not wait for its answer."""
        number = next(self._numbers)
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self.send(json.dumps(request).encode())
        return number

    def answer(self, number: object) -> Json:
        """The result of a request; raises RefusedError."""
        frame = self.wait(lambda f: f.get("id", ...) == number and "method" not in f)
        if "error" in frame:
            raise RefusedError(frame["error"])
        return frame["result"]

    def call(self, method: str, **params: Any) -> Json:
        return self.answer(self.post(method, **params))

    def wait(self, fits: Callable[[Json], bool], start: int = 0) -> Json:
        def found() -> Json | None:
            return next((f for f in self.frames[start:] if fits(f)), None)

        with self._news:
            self._news.wait_for(lambda: found() is not None or self.is_over, TIMEOUT_S)
            frame = found()
        assert frame is not None, f"it did not come; the last were {self.frames[-5:]}"
        return frame

    def event(self, kind: str, /, **expected: Any) -> Json:
        """The payload of the next event of a kind, after the one that was waited for before."""

        def fits(frame: Json) -> bool:
            params = frame.get("params", {})
            payload = params.get("payload", {})
            return params.get("type") == kind and all(
                payload.get(key) == value for key, value in expected.items()
            )

        frame = self.wait(fits, self._seen)
        with self._news:
            self._seen = self.frames.index(frame, self._seen) + 1
        return frame["params"]["payload"]

    def wait_for_text(self, text: str) -> None:
        """Wait until so much of the replies was streamed."""

        def streamed() -> str:
            return "".join(delta["text"] for delta in self.events("message.delta"))

        with self._news:
            assert self._news.wait_for(lambda: text in streamed(), TIMEOUT_S), streamed()

    def events(self, kind: str) -> list[Json]:
        """Every event of a kind so far."""
        with self._news:
            found = [frame["params"] for frame in self.frames if "params" in frame]
        return [params["payload"] for params in found if params["type"] == kind]

    def open(self, **params: Any) -> str:
        """A new session."""
        return self.call("session.create", **params)["session_id"]

    def say(self, sid: str, text: str = "hello", **params: Any) -> Json:
        """Have a prompt answered; returns how the turn ended."""
        self.call("prompt.submit", session_id=sid, text=text, **params)
        return self.event("message.complete")


class Inside(Client):
    """A client in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.transport = _RecordingTransport(self.receive)

    def send(self, data: bytes) -> None:
        server.receive(data, self.transport)


class _RecordingTransport(MemoryTransport):
    def __init__(self, callback: Callable[[Json], None]) -> None:
        super().__init__()
        self._callback = callback

    def write(self, frame: Json) -> bool:
        super().write(frame)
        self._callback(self.frames[-1])
        return True


class Process(Client):
    """The server as a child over pipes."""

    def __init__(self, world: "World", *arguments: str, **environment: str) -> None:
        super().__init__()
        self.errors = b""
        self.process = subprocess.Popen(
            [*world.command, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=world.workspace,
            env={**world.environment, **environment},
        )
        self._hearing_end, self._ending = os.pipe()
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._hear_errors, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data + b"\n")
        self.process.stdin.flush()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        output, read = self.process.stdout.fileno(), b""
        while True:
            # A pipe whose reader is in the middle of a read stays open when it is closed.
            ready, _, _ = select.select([output, self._hearing_end], [], [])
            data = os.read(output, 1 << 20) if self._hearing_end not in ready else b""
            *lines, read = (read + data).split(b"\n")
            for line in lines:
                self.receive(json.loads(line))
            if not data:
                break
        self.over()

    def stop_reading(self) -> None:
        """Close the pipe from its output."""
        assert self.process.stdout is not None
        os.write(self._ending, b".")
        self._threads[0].join(TIMEOUT_S)
        self.process.stdout.close()

    def _hear_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors += line

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def hang_up(self) -> None:
        """Close the pipe to its input."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait_for_end(self) -> int:
        status = self.process.wait(TIMEOUT_S)
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        return status

    def kill(self) -> None:
        """End it as the system does when memory is short; twice is once."""
        if self._is_closed:
            return
        self._is_closed = True
        if self.process.poll() is None:
            self.process.kill()
        self.wait_for_end()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue
        os.close(self._hearing_end)
        os.close(self._ending)


class World:
    """A home, a folder to work in, a model server, and the environment that leads to them."""

    def __init__(self, home: Home, workspace: Path, model: ScriptedServer) -> None:
        self.home = home
        self.workspace = workspace
        self.model = model
        self.processes: list[Process] = []
        self.command = [sys.executable, "-c", PATIENT]
        self.environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(workspace.parent),
            "HERMES_HOME": str(home.root),
            "OPENAI_BASE_URL": model.openai_url,
            "OPENAI_API_KEY": "sk-test-of-the-server",
            "HERMES_MODEL": "scripted",
            "HERMES_AGENT_TITLES": "false",
            "HERMES_MODEL_SMALL": "off",
            "HERMES_MODEL_CONTEXT_WINDOW": "32000",
        }

    def start(self, *arguments: str, **environment: str) -> Process:
        """Start a server and wait for its greeting."""
        process = Process(self, *arguments, **environment)
        self.processes.append(process)
        process.event("gateway.ready")
        return process

    def store(self) -> SessionDB:
        return SessionDB(self.home.database)

    def row(self, session_id: str) -> Json:
        with self.store() as store:
            found = store.get_session(session_id)
        assert found is not None
        return found

    def transcript(self, session_id: str) -> list[tuple[str, Any]]:
        with self.store() as store:
            found = store.get_messages_as_conversation(store.read(lineage.tip, session_id))
        return [(message["role"], message["content"]) for message in found]

    def turns(self, session_id: str) -> list[Json]:
        with self.store() as store:
            return store.read(turn_ledger.of_session, store.read(lineage.tip, session_id))

    def states(self, session_id: str) -> list[str]:
        return [turn["state"] for turn in self.turns(session_id)]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
