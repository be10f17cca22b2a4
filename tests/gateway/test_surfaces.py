"""All surfaces in one conversation: one dies or hangs inside a tool call, another continues.

The model server refuses a transcript with an unanswered tool call, as strict providers do.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hermes_agent.testing.scripted import Step, call, say
from hermes_agent.testing.server import Recorded, ScriptedServer
from hermes_core.paths import Home
from hermes_state import SessionDB
from hermes_state.ledger import lineage, turns
from tests.gateway.chaos.telegram import TelegramSurface
from tests.gateway.harness import TIMEOUT_S, Process
from tests.rpc.harness import PATIENT
from tests.rpc.harness import Process as RpcProcess
from tests.support.faults import eventually

_TOKEN = "a-token-for-the-tests"
_ORDER = re.compile(r"please do (\w)")
_SURFACES = ("cli", "rpc", "api", "telegram")
_IN_GATEWAY = ("api", "telegram")
_PAIRS = [
    (first, second)
    for first in _SURFACES
    for second in _SURFACES
    if {first, second} != set(_IN_GATEWAY)  # these two see no conversation of each other
]
_SETTINGS = """
[model]
name = "scripted"
base_url = "{model}"
api_key = "scripted-key"
retries = 1

[agent]
titles = false

[tools]
sandbox = "host"

[approvals]
mode = "allow"

[gateway]
workspace = "{workspace}"
broad_workspace = true

[gateway.owners]
telegram = [{owners}]

[gateway.platforms.api_server]
token = "{token}"
port = {port}

{telegram}
"""


def _reply(recorded: Recorded) -> Step:
    """Leave one file per order, and hang in the tool call of A."""
    messages: list[dict[str, Any]] = recorded.json["messages"]
    texts = [str(m["content"]) if m["role"] == "user" else "" for m in messages]
    position = max(i for i, text in enumerate(texts) if text)
    order = _ORDER.search(texts[position])
    if order is None:
        return say("hello")
    if any(message.get("tool_calls") for message in messages[position:]):
        return say(f"answer to {order[1]}")
    then = "; sleep 600" if order[1] == "A" else ""
    return call("terminal", command=f": > effects/{order[1]}.$$ {then}")


class World:
    """A home with a gateway on the Bot API double and the HTTP API, and a strict model server."""

    def __init__(self, home: Home, telegram: TelegramSurface, model: ScriptedServer) -> None:
        self.home = home
        self.telegram = telegram
        self.model = model
        (self.talk,) = telegram.begin(1)
        self.folder = home.root.parent
        self.effects = self.folder / "effects"
        self.effects.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        home.create()
        owners = ", ".join(f'"{owner}"' for owner in telegram.owners())
        home.config.write_text(
            _SETTINGS.format(
                model=model.openai_url,
                owners=owners,
                token=_TOKEN,
                port=self.port,
                telegram=telegram.settings(),
                workspace=home.root.parent,
            )
        )
        self.environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.folder),
            "HERMES_HOME": str(home.root),
            "HERMES_GATEWAY_LOCK_DIR": str(home.root / "locks"),
        }
        self.command = [sys.executable, "-c", PATIENT]
        self.workspace = self.folder
        self.ends: list[Callable[[], object]] = []
        self.gateway = self.start_gateway()
        self.session_id = ""

    def start_gateway(self) -> Process:
        self.gateway = gateway = Process(self)  # type: ignore[arg-type]
        self.ends.append(lambda: gateway.__exit__())
        return gateway.wait_until_up()

    def begin(self, surface: str) -> None:
        """Begin the conversation over the API or in the chat."""
        _MAKE[surface](self, "good morning").wait_for_text("hello")
        with self.store() as store:
            (row,) = store.list_sessions_rich()
        self.session_id = row["id"]

    def store(self) -> SessionDB:
        return SessionDB(self.home.database)

    def sees(self, text: str) -> int:
        """How many messages of the chat contain a text."""
        return sum(text in message.text for message in self.telegram.seen(self.talk))

    def turn(self, order: str) -> dict[str, Any]:
        with self.store() as store:
            found = [
                row
                for row in store.read(turns.of_session, store.read(lineage.tip, self.session_id))
                if f"please do {order}" in store.read(turns.user_text, row["id"])
            ]
        (row,) = found or [{}]
        return row

    def count(self, order: str) -> int:
        """How often the tool of an order took effect."""
        return len(list(self.effects.glob(f"{order}.*")))

    def expire_lease(self) -> None:
        """As if the holder had not renewed its lease for a minute."""
        with self.store() as store:
            store.write(lambda c: c.run("UPDATE leases SET expires_at = 1"))
            store.write(lambda c: c.run("UPDATE workers SET seen_at = 1"))

    def close(self) -> None:
        for end in reversed(self.ends):
            end()


class Cli:
    """`hermes chat -r ID -q TEXT`."""

    def __init__(self, world: World, text: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "hermes_cli.main", "chat", "-r", world.session_id, "-q", text],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=world.folder,
            env=world.environment,
        )
        self.pid = self.child.pid
        world.ends.append(self._end)

    def _end(self) -> None:
        self.child.kill()
        self.child.communicate()

    def wait_for_text(self, text: str) -> None:
        output, errors = self.child.communicate(timeout=TIMEOUT_S)
        assert text in output.decode(), errors.decode()


class Rpc:
    """The JSON-RPC server over pipes."""

    def __init__(self, world: World, text: str) -> None:
        self.client, sid = self.opened(world)
        self.pid = self.client.process.pid
        self.client.call("prompt.submit", session_id=sid, text=text)

    @staticmethod
    def opened(world: World) -> tuple[RpcProcess, str]:
        """A server that has the conversation open, and the id that it has there."""
        client = RpcProcess(world)  # type: ignore[arg-type]
        world.ends.append(client.kill)
        client.event("gateway.ready")
        sid = client.call("session.resume", session_id=world.session_id)["session_id"]
        return client, sid

    def wait_for_text(self, text: str) -> None:
        self.client.event("message.complete", text=text)


class Api:
    """A request to the HTTP API of the gateway."""

    def __init__(self, world: World, text: str) -> None:
        self.pid = world.gateway.child.pid
        body = {"model": "hermes", "messages": [{"role": "user", "content": text}]}
        self._request = urllib.request.Request(
            f"http://127.0.0.1:{world.port}/v1/chat/completions",
            json.dumps(body).encode(),
            {
                "Authorization": f"Bearer {_TOKEN}",
                "Content-Type": "application/json",
                **({"X-Hermes-Session-Id": world.session_id} if world.session_id else {}),
            },
        )
        self._answer = ""
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        try:
            with urllib.request.urlopen(self._request, timeout=TIMEOUT_S) as answer:
                self._answer = answer.read().decode()
        except OSError as error:
            self._answer = repr(error)

    def wait_for_text(self, text: str) -> None:
        self._thread.join(TIMEOUT_S)
        assert text in self._answer


class Telegram:
    """A message in the chat."""

    def __init__(self, world: World, text: str) -> None:
        self.pid = world.gateway.child.pid
        self._world = world
        world.telegram.say(world.talk, text)

    def wait_for_text(self, text: str) -> None:
        eventually(lambda: self._world.sees(text) == 1, f"{text!r} in the chat")


pytestmark = [pytest.mark.promise("P2"), pytest.mark.promise("P3")]

Surface = Cli | Rpc | Api | Telegram
_MAKE: dict[str, Callable[[World, str], Surface]] = {
    "cli": Cli, "rpc": Rpc, "api": Api, "telegram": Telegram
}  # fmt: skip


@pytest.fixture
def world(home: Home) -> Iterator[World]:
    with TelegramSurface() as telegram, ScriptedServer(_reply, strict_transcripts=True) as model:
        assert isinstance(telegram, TelegramSurface)
        running_world = World(home, telegram, model)
        try:
            yield running_world
        finally:
            running_world.close()


def _hang_in_a(world: World, surface: str, second: str) -> Surface:
    world.begin("api" if "api" in (surface, second) else "telegram")
    first = _MAKE[surface](world, "please do A")
    eventually(lambda: world.count("A") == 1, "the effect of A")
    return first


def _tiered(pairs: list[tuple[str, str]], *default: tuple[str, str]) -> list[Any]:
    """The pairs, of which only some are in the default tier."""
    return [
        pytest.param(*pair, marks=() if pair in default else pytest.mark.proof) for pair in pairs
    ]


def _check(world: World) -> None:
    """Check that A has its end before B, nothing took effect twice, and no request was refused."""
    a, b = world.turn("A"), world.turn("B")
    assert (a["state"], b["state"]) == ("answered", "answered"), (a["reason"], b["reason"])
    assert a["final_message_id"] < b["final_message_id"]
    assert (world.count("A"), world.count("B")) == (1, 1)
    assert world.model.refused == []


@pytest.mark.parametrize(("first", "second"), _tiered(_PAIRS, ("cli", "telegram"), ("rpc", "api")))
def test_a_turn_of_a_killed_surface_is_completed_before_the_next(
    world: World, first: str, second: str
) -> None:
    killed = _hang_in_a(world, first, second)
    if first in _IN_GATEWAY:
        world.gateway.kill()
        if second in _IN_GATEWAY:
            world.start_gateway()
    else:
        os.kill(killed.pid, signal.SIGKILL)
    _MAKE[second](world, "please do B").wait_for_text("answer to B")
    _check(world)
    if first == "telegram":
        if second not in _IN_GATEWAY:
            world.start_gateway()
        killed.wait_for_text("answer to A")
    else:
        assert world.sees("answer to A") == 0


@pytest.mark.parametrize(
    ("first", "second"),
    _tiered([pair for pair in _PAIRS if not set(pair) <= set(_IN_GATEWAY)], ("rpc", "rpc")),
)
def test_a_turn_of_a_hung_surface_is_completed_before_the_next(
    world: World, first: str, second: str
) -> None:
    hung = _hang_in_a(world, first, second)
    os.kill(hung.pid, signal.SIGSTOP)
    try:
        world.expire_lease()
        following = _MAKE[second](world, "please do B")
        following.wait_for_text("answer to B")
    finally:
        os.kill(hung.pid, signal.SIGCONT)
    _check(world)


@pytest.mark.parametrize(
    ("first", "second"),
    _tiered(
        [("cli", "rpc"), ("rpc", "rpc"), ("cli", "telegram"), ("rpc", "telegram"), ("cli", "api")],
        ("rpc", "telegram"),
    ),
)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_an_abandoned_turn_is_completed_without_a_new_message(
    world: World, first: str, second: str, number: signal.Signals
) -> None:
    abandoned = _hang_in_a(world, first, second)
    client: RpcProcess | None = None
    if second == "rpc":
        world.gateway.kill()
        client, _ = Rpc.opened(world)
    os.kill(abandoned.pid, number)
    try:
        if number == signal.SIGSTOP:
            world.expire_lease()
        eventually(lambda: world.turn("A")["state"] == "answered", "the end of A")
    finally:
        if number == signal.SIGSTOP:
            os.kill(abandoned.pid, signal.SIGCONT)
    assert world.count("A") == 1
    assert world.sees("answer to A") == 0, "its reply is for nobody here"
    if client is not None:
        client.event("message.complete", text="answer to A")
