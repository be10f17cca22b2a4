"""The loopback server remembers what a gateway may forget."""

import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.config import PlatformConfig
from gateway.platforms.base import Button
from gateway.platforms.testing.background import Background
from gateway.platforms.testing.host import Host
from gateway.platforms.testing.network import Proxy
from tests.support.loopback.manifest import MANIFEST, LoopbackSettings
from tests.support.loopback.server import LoopbackServer
from tests.support.loopback.world import LoopbackWorld

_KILLED_SCRIPT = """
import asyncio, sys
from pathlib import Path
from gateway.config import PlatformConfig
from tests.support.loopback.manifest import MANIFEST, LoopbackSettings

class Ingress:
    async def accept(self, event):
        key = {"key": event.message_id}
        await adapter.send(event.source.chat_id, f"You said: {event.text}", metadata=key)
        print(event.text, flush=True)
        await asyncio.Event().wait()

async def main():
    adapter.set_ingress(Ingress())
    await adapter.connect()
    await asyncio.Event().wait()

adapter = MANIFEST.make(PlatformConfig(), LoopbackSettings(sys.argv[1]), Path("."))
asyncio.run(main())
"""


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as loopback:
        yield loopback


@contextmanager
def client_process(server: LoopbackServer) -> Generator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", _KILLED_SCRIPT, server.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def test_what_a_killed_process_did_not_acknowledge_is_delivered_to_the_next(
    server: LoopbackServer, tmp_path: Path
):
    name = server.say("c1", "hello")
    for _ in range(3):
        with client_process(server) as process:
            assert process.stdout and process.stdout.readline() == "hello\n"
        server.wait_until(lambda: not server.has_listener)
        assert server.unacknowledged() == [name]
    with Host(LoopbackWorld(server, tmp_path)) as host:
        host.ingress.wait_for("hello")
        server.wait_until(lambda: server.unacknowledged() == [])
    assert [message.text for message in server.shown("c1")] == ["You said: hello"]
    assert [message.key for message in server.attempts] == [name] * 3


def test_a_server_without_keys_shows_every_attempt():
    with LoopbackServer(folds_keys=False) as server:
        name = server.say("c1", "hello")
        for _ in range(2):
            with client_process(server) as process:
                assert process.stdout and process.stdout.readline() == "hello\n"
            server.wait_until(lambda: not server.has_listener)
        assert [message.key for message in server.shown("c1")] == [name] * 2


def test_the_newest_listener_gets_what_comes(server: LoopbackServer, tmp_path: Path):
    with client_process(server) as process:
        server.wait_until(lambda: server.has_listener)
        with Host(LoopbackWorld(server, tmp_path)) as host:
            server.say("c1", "for the second")
            host.ingress.wait_for("for the second")
            server.wait_until(lambda: server.unacknowledged() == [])
        assert process.poll() is None


def test_groups_and_threads_are_told(server: LoopbackServer, tmp_path: Path):
    with Host(LoopbackWorld(server, tmp_path)) as host:
        name = server.say("g1", "hi all", user="u7", chat_type="group", thread="t3", mention=False)
        event = host.ingress.wait_for("hi all")
        assert event.source is not None
        assert (event.source.chat_type, event.source.thread_id) == ("group", "t3")
        assert (event.source.user_id, event.is_mention) == ("u7", False)
        server.edit("g1", name, "hello all")
        changed = host.ingress.wait_for("hello all")
        assert changed.source is not None
        assert (changed.source.thread_id, changed.edits) == ("t3", name)
        server.press("g1", "q1", "yes", user="u8")
        pressed = host.ingress.wait_for("yes")
        assert pressed.source is not None
        assert (pressed.source.thread_id, pressed.source.user_id) == ("t3", "u8")


def test_a_reply_shows_everything_that_went_along(server: LoopbackServer, tmp_path: Path):
    with Host(LoopbackWorld(server, tmp_path)) as host:
        host.run(
            host.adapter.send(
                "c1",
                "Which?",
                "m9",
                {"key": "k", "thread_id": "t", "question": "q", "buttons": [Button("A", "a")]},
            )
        )
        (message,) = server.wait_for("c1", lambda seen: len(seen) == 1)
        assert (message.in_reply_to, message.thread, message.question) == ("m9", "t", "q")
        assert message.buttons == (("A", "a"),)
        host.run(host.adapter.edit_message("c1", message.message_id, "This one?"))
        assert server.shown("c1")[0].edits == ("Which?",)
        host.run(host.adapter.announce_commands([("new", "begin anew")]))
        assert server.commands == [("new", "begin anew")]


def test_waiting_in_vain_says_what_is_there(server: LoopbackServer):
    name = server.say("c1", "nobody listens")
    with pytest.raises(TimeoutError, match=name):
        server.wait_for("c1", bool, timeout=0.01)


def test_a_network_that_goes_silent_leaves_a_send_unsure(server: LoopbackServer, tmp_path: Path):
    port = int(server.address.rpartition(":")[2])
    with Proxy("127.0.0.1", port) as proxy, Background("silence") as background:
        settings = LoopbackSettings(proxy.address, timeout_s=3.0)
        adapter = MANIFEST.make(PlatformConfig(), settings, tmp_path)
        background.run(adapter.connect())
        proxy.blackhole()
        result = background.run(adapter.send("c1", "anybody?", metadata={"key": "k"}))
        assert (result.success, result.error_kind) == (False, "unsure")
        proxy.heal()
        server.wait_for("c1", bool)
        assert background.run(adapter.send("c1", "anybody?", metadata={"key": "k"})).success
        background.run(adapter.disconnect())
    assert len(server.shown("c1")) == 1
