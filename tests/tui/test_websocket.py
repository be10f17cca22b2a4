"""The websocket, to the real server and to one that does everything a server may do."""

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from functools import partial
from pathlib import Path

import pytest
from websockets.sync.server import ServerConnection, serve

from hermes_agent.testing.server import ScriptedServer
from hermes_cli.commands import attach
from hermes_core.errors import ConfigError
from hermes_core.paths import Home
from hermes_tui.opening import Opening
from hermes_tui.websocket import WebSocketTransport
from tests.tui.harness import TIMEOUT_S, running

pytestmark = [pytest.mark.e2e, pytest.mark.anyio]

Attend = Callable[[ServerConnection], None]


@contextlib.contextmanager
def serving(attend: Attend) -> Generator[str]:
    """A websocket server that does this with a client."""
    with serve(attend, "127.0.0.1", 0, max_size=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}/"
        server.shutdown()
        thread.join()


@contextlib.asynccontextmanager
async def joined(url: str, token: str = "") -> AsyncGenerator[WebSocketTransport]:
    async with asyncio.timeout(TIMEOUT_S):
        transport = await WebSocketTransport.connect(url, token)
        yield transport
        await transport.close(1.0)


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, 3_000_000])
async def test_messages_of_every_size_go_both_ways(size: int) -> None:
    def echo(connection: ServerConnection) -> None:
        for message in connection:
            connection.send(message)

    with serving(echo) as url:
        async with joined(url) as transport:
            text = ("ä" * size).encode()
            await transport.send(text)
            assert await anext(transport.frames()) == text


async def test_pieces_are_one_message_and_a_ping_is_answered() -> None:
    answered = threading.Event()

    def attend(connection: ServerConnection) -> None:
        connection.ping().wait(TIMEOUT_S)
        answered.set()
        connection.send(["one ", "two ", "three"])
        connection.recv()

    with serving(attend) as url:
        async with joined(url) as transport:
            assert await anext(transport.frames()) == b"one two three"
            assert answered.is_set()
            await transport.send(b"done")


async def test_the_end_of_the_server_ends_the_frames_with_a_reason() -> None:
    def attend(connection: ServerConnection) -> None:
        connection.close(1011, "the disk is full")

    with serving(attend) as url:
        async with joined(url) as transport:
            assert [frame async for frame in transport.frames()] == []
            assert transport.last_words() == "the disk is full"


async def test_what_is_no_websocket_server_is_told() -> None:
    with ScriptedServer([]) as other, pytest.raises(ConnectionError, match="refused"):
        await WebSocketTransport.connect(f"ws://127.0.0.1:{other.port}/", "")


# -- the real server ---------------------------------------------------------------------------------


@contextlib.contextmanager
def gateway(home: Home, model: ScriptedServer, workspace: Path) -> Generator[subprocess.Popen[str]]:
    """A server with a websocket, as it runs beside everything else."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(workspace),
        "HERMES_HOME": str(home.root),
        "OPENAI_BASE_URL": model.openai_url,
        "OPENAI_API_KEY": "sk-test-of-the-interface",
        "HERMES_AGENT_TITLES": "false",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tui_gateway.entry", "--ws"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=workspace,
        env=environment,
    )
    assert process.stdout is not None
    assert "gateway.ready" in process.stdout.readline()
    try:
        yield process
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)
        process.stdout.close()


async def test_two_terminals_see_the_same_conversation(home: Home, tmp_path: Path) -> None:
    with ScriptedServer() as model, gateway(home, model, tmp_path):
        address = attach.find(home)
        connect = partial(WebSocketTransport.connect, address.url, address.token)
        async with (
            running(tmp_path, home, connect=connect, opening=Opening(live="")) as first,
            running(tmp_path, home, connect=connect, opening=Opening(live="")) as two,
        ):
            await first.send("hello from one")
            await first.until(lambda: first.state == "ready" and first.replies)
            await two.until(lambda: two.replies == first.replies and two.state == "ready")
            assert two.prompts == ["hello from one"]
            await first.send("not this")
            await two.until(lambda: len(two.replies) == 2 and two.state == "ready")
            await first.send("/undo")
            await two.until(lambda: two.prompts == ["hello from one"] and len(two.replies) == 1)
            await first.app.action_leave()
            await two.send("hello from two")
            await two.until(lambda: two.prompts[-1] == "hello from two" and len(two.replies) == 2)


async def test_a_server_that_is_started_again_is_joined_again(home: Home, tmp_path: Path) -> None:
    with ScriptedServer() as model:
        with gateway(home, model, tmp_path) as first:
            opened = running(
                tmp_path, home, connect=partial(attach.connect, home), opening=Opening(live="")
            )
            ui = await opened.__aenter__()
            await ui.say("hello")
            ui.type("half a sent")
            first.kill()
            await ui.until(lambda: "reconnecting to the server" in ui.picture())
        with gateway(home, model, tmp_path):
            await ui.until(lambda: ui.state == "ready")
            ui.type("ence")
            await ui.press("enter")
            await ui.until(
                lambda: ui.prompts == ["hello", "half a sentence"] and len(ui.replies) == 2
            )
            await opened.__aexit__(None, None, None)


async def test_a_wrong_token_is_refused(home: Home, tmp_path: Path) -> None:
    with (
        ScriptedServer() as model,
        gateway(home, model, tmp_path),
        pytest.raises(ConnectionError, match="401"),
    ):
        await WebSocketTransport.connect(attach.find(home).url, "wrong")


def test_without_a_server_attach_says_how_to_start_one(home: Home) -> None:
    with pytest.raises(ConfigError, match="No server is running.*Start one"):
        attach.find(home)


@pytest.mark.parametrize("text", ["{", json.dumps({"url": "ws://127.0.0.1:1/", "token": "t"})])
def test_a_server_that_is_gone_is_told(home: Home, text: str) -> None:
    (home.create().root / "tui_gateway.json").write_text(text)
    with pytest.raises(ConfigError):
        attach.find(home)
