"""The websocket: who is let in, and that clients come and go while sessions live on."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from hermes_agent.testing.scripted import Quiet, call, say, silence
from hermes_agent.testing.server import ScriptedServer
from hermes_core import clock
from hermes_core.paths import Home
from tests.rpc.harness import TIMEOUT_S, Client, Inside, Json, World
from tui_gateway import server, ws
from tui_gateway.ws import Address, Service


class Socket(Client):
    """A client on a websocket."""

    def __init__(self, address: Json) -> None:
        super().__init__()
        headers = {"Authorization": f"Bearer {address['token']}"}
        self._stack = ExitStack()
        self.connection: ClientConnection = self._stack.enter_context(
            connect(address["url"], additional_headers=headers, max_size=None)
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def send(self, data: bytes) -> None:
        self.connection.send(data.decode())

    def _listen(self) -> None:
        with suppress(ConnectionClosed):
            for message in self.connection:
                self.receive(json.loads(message))
        self.over()

    def close(self) -> None:
        self._stack.close()
        self._thread.join(TIMEOUT_S)


@pytest.fixture
def service(client: Inside, home: Home, capfd: pytest.CaptureFixture[str]) -> Iterator[Service]:
    del client  # gives the server its surroundings
    opened = Service(0, ws.token_file())
    opened.start()
    greeting = json.loads(capfd.readouterr().out)
    assert greeting["params"]["payload"]["url"] == opened.address.url
    assert ws.token_file().parent == home.root
    yield opened
    opened.close()


@pytest.fixture
def address(service: Service) -> Json:
    del service
    return json.loads(ws.token_file().read_text())


def test_the_token_is_private_and_opens_the_server(service: Service, address: Json) -> None:
    assert ws.token_file().stat().st_mode & 0o777 == 0o600
    assert Address(**address) == service.address
    client = Socket(address)
    client.event("gateway.ready")
    assert client.open()
    client.close()
    with connect(f"{address['url']}?token={address['token']}") as other:
        assert json.loads(other.recv())["params"]["type"] == "gateway.ready"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer äöü"}, 401),
        ({"Authorization": "Bearer {token}", "Origin": "https://example.com"}, 403),
        ({"Authorization": "Bearer {token}", "Origin": "null"}, 403),
        ({"Authorization": "Bearer {token}", "Host": "evil.example:80"}, 403),
    ],
)
def test_nobody_else_is_let_in(
    service: Service, address: Json, headers: dict[str, str], status: int
) -> None:
    sent_headers = {
        name: value.replace("{token}", address["token"]) for name, value in headers.items()
    }
    host = sent_headers.pop("Host", None)
    how: dict[str, Any] = {"additional_headers": sent_headers}
    url = address["url"]
    if host is not None:
        how |= {"address": ("127.0.0.1", service.port), "proxy": None}
        url = f"ws://{host}/"
    with pytest.raises(InvalidStatus) as refused, connect(url, **how):
        pytest.fail("it was let in")
    assert refused.value.response.status_code == status


@pytest.mark.parametrize("header", ["Host", "Origin", "Authorization"])
def test_a_header_that_comes_twice_is_a_bad_request(
    service: Service, address: Json, header: str, caplog: pytest.LogCaptureFixture
) -> None:
    value = {"Host": f"127.0.0.1:{service.port}", "Origin": "http://localhost"}
    lines = [
        "GET / HTTP/1.1",
        f"Host: {value['Host']}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
        "Origin: http://localhost",
        f"Authorization: Bearer {address['token']}",
        f"{header}: {value.get(header, 'Bearer ' + address['token'])}",
    ]
    with socket.create_connection(("127.0.0.1", service.port), TIMEOUT_S) as raw:
        raw.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = raw.makefile("rb").readline()
    assert answer.split()[1] == b"400"
    assert "Traceback" not in caplog.text


def test_a_page_of_this_machine_is_let_in(service: Service, address: Json) -> None:
    headers = {"Authorization": f"Bearer {address['token']}"}
    with connect(
        address["url"], additional_headers=headers, origin=Origin("http://localhost:3000")
    ) as page:
        assert json.loads(page.recv())["params"]["type"] == "gateway.ready"
    del service


def test_a_turn_goes_on_without_its_client_and_another_one_finds_it(
    address: Json, model: ScriptedServer, world: World
) -> None:
    quiet = Quiet()
    model.add(silence(quiet, after="I was say", then="ing something."))
    first = Socket(address)
    opened = first.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    first.call("prompt.submit", session_id=sid, text="tell me")
    assert quiet.started.wait(TIMEOUT_S)
    first.wait_for_text("I was say")
    first.close()
    second = Socket(address)
    rows = second.call("session.active_list")["sessions"]
    assert [(row["id"], row["status"]) for row in rows] == [(sid, "working")]
    snapshot = second.call("session.activate", session_id=sid)
    assert snapshot["inflight"]["assistant"].startswith("I was say")
    assert snapshot["inflight"]["user"] == "tell me"
    quiet.release()
    assert second.event("message.complete")["text"] == "I was saying something."
    assert world.states(key) == ["answered"]
    second.close()


def test_a_client_that_comes_while_a_tool_runs_is_shown_the_call_and_what_it_has_shown(
    address: Json, model: ScriptedServer, world: World
) -> None:
    gate = world.workspace / "gate"
    os.mkfifo(gate)
    model.add(call("terminal", command=f"echo begun; cat {gate.name}"), say("Ran."))
    first = Socket(address)
    sid = first.call("session.create")["session_id"]
    first.call("prompt.submit", session_id=sid, text="run it")
    progress = first.event("tool.progress")
    second = Socket(address)
    snapshot = second.call("session.activate", session_id=sid)
    [tool] = snapshot["inflight"]["tools"]
    assert (tool["tool_id"], tool["name"]) == (progress["tool_id"], "terminal")
    assert "cat gate" in tool["context"]
    assert tool["text"].startswith("begun")
    gate.write_text("let go\n")
    assert second.event("tool.complete")["tool_id"] == tool["tool_id"]
    assert second.event("message.complete")["text"] == "Ran."
    second.event("session.info", running=False)
    again = second.call("session.activate", session_id=sid)
    assert again["inflight"] is None
    first.close()
    second.close()


def test_sessions_without_a_client_end_after_a_while_unless_they_work(
    address: Json, model: ScriptedServer, world: World
) -> None:
    model.add("hi")
    client = Socket(address)
    opened = client.call("session.create")
    busy = client.call("session.create")
    client.say(opened["session_id"])
    client.event("session.info", running=False)
    quiet = Quiet()
    model.add(silence(quiet))
    client.call("prompt.submit", session_id=busy["session_id"], text="work")
    assert quiet.started.wait(TIMEOUT_S)
    assert server.end_abandoned(clock.now() + 1000, 20) == [], "they have a client"
    client.close()
    _until_detached(opened["session_id"])
    assert server.end_abandoned(clock.now(), 20) == [], "it may come back"
    assert server.end_abandoned(clock.now() + 100, 20) == [opened["session_id"]]
    assert world.row(opened["stored_session_id"])["end_reason"] == "ws_orphan_reap"
    assert list(server._sessions) == [busy["session_id"]]
    quiet.release()


def test_a_session_may_end_with_its_client(
    address: Json, model: ScriptedServer, world: World
) -> None:
    model.add("hi")
    first, two = Socket(address), Socket(address)
    opened = first.call("session.create", close_on_disconnect=True)
    first.say(opened["session_id"])
    two.call("session.activate", session_id=opened["session_id"])
    first.close()
    assert two.call("session.active_list")["sessions"], "the other client is still there"
    two.close()
    _until(lambda: world.row(opened["stored_session_id"])["ended_at"] is not None)
    assert world.row(opened["stored_session_id"])["end_reason"] == "ws_disconnect"


def test_a_client_that_never_reads_is_dropped_and_the_others_are_served(
    client: Inside, tmp_path: Path
) -> None:
    del client  # gives the server its surroundings
    service = Service(0, tmp_path / "address.json", limit_bytes=1_000_000)
    service.start()
    address = json.loads((tmp_path / "address.json").read_text())
    good = Socket(address)
    headers = {"Authorization": f"Bearer {address['token']}"}
    request = json.dumps({"id": 1, "method": "config.show"})
    with (
        connect(address["url"], additional_headers=headers, max_queue=1) as bad,
        pytest.raises(ConnectionClosed),
    ):
        while True:
            bad.send(request)
    assert good.call("session.active_list") == {"sessions": []}
    good.close()
    service.close()


def test_broken_messages_are_answered(address: Json) -> None:
    client = Socket(address)
    client.connection.send("{")
    assert client.wait(lambda frame: frame.get("error", {}).get("code") == -32700)
    client.connection.send(b"\xff\xfe")
    client.connection.send(json.dumps({"id": 5, "method": "nonsense"}))
    assert client.wait(lambda frame: frame.get("id") == 5)["error"]["code"] == -32601
    client.close()


def test_the_server_is_started_from_the_command_line(world: World, tmp_path: Path) -> None:
    file = tmp_path / "address.json"
    process = world.start("--ws", "--token-file", str(file))
    greeting = process.events("gateway.ready")[0]
    assert greeting["token_file"] == str(file)
    client = Socket(json.loads(file.read_text()))
    world.model.add("hi")
    opened = client.call("session.create", cwd=str(world.workspace))
    assert client.say(opened["session_id"])["text"] == "hi"
    process.process.terminate()
    assert process.wait_for_end() == 0
    assert not file.exists()
    assert world.row(opened["stored_session_id"])["end_reason"] == "tui_shutdown"
    client.close()


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--ws", "--port", "{port}", "--token-file", "{folder}/address.json"], 2),
        (["--ws", "--port", "70000", "--token-file", "{folder}/address.json"], 2),
        (["--ws", "--token-file", "{folder}"], 2),
        (["--x"], 2),
    ],
)
def test_what_cannot_be_served_is_said(
    service: Service, world: World, tmp_path: Path, arguments: list[str], status: int
) -> None:
    values = {"port": service.port, "folder": tmp_path}
    command = [argument.format(**values) for argument in arguments]
    done = subprocess.run(
        [sys.executable, "-m", "tui_gateway.entry", *command],
        capture_output=True,
        env=world.environment,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == status
    assert done.stderr
    assert done.stdout == b""
    assert not (tmp_path / "address.json").exists()


def _until_detached(sid: str) -> None:
    _until(lambda: server._live_of(server._sessions[sid]).detached_at is not None)


def _until(is_so: Any) -> None:
    for _ in range(500):
        if is_so():
            return
        threading.Event().wait(0.02)
    raise AssertionError("it did not happen")
