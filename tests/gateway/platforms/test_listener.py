"""A listener that strangers cannot exhaust, over real sockets."""

import asyncio
import json
import logging
import os
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

import gateway.platforms.listener as listener
from hermes_core import log
from tests.gateway.platforms.scripted_ingress import TIMEOUT_S, Loop
from tests.gateway.platforms.test_api_server import Server, ask, serving

_BEGINNING = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path) as running_server:
        yield running_server


def dial(server: Server, *data: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S)
    for chunk in data:
        connection.sendall(chunk)
    return connection


def status(connection: socket.socket) -> bytes:
    """Read one answer; returns its status line, empty when the connection is closed without one."""
    try:
        with connection.makefile("rb", buffering=0) as file:
            first = length = b""
            while line := file.readline().strip():
                first = first or line
                if line.lower().startswith(b"content-length:"):
                    length = line.partition(b":")[2]
            file.read(int(length or 0))
            return first
    except ConnectionResetError:
        return b""


def test_headers_that_do_not_end_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HEADER_TIMEOUT_S", 0.2)
    with serving(tmp_path) as server:
        for data in (b"", _BEGINNING):
            with dial(server, data) as connection:
                assert status(connection) == b"HTTP/1.1 408 Request Timeout"
        with dial(server, _BEGINNING, b"\r\n") as connection:
            assert status(connection) == b"HTTP/1.1 200 OK"
            connection.sendall(_BEGINNING)  # another request on the same connection
            assert status(connection) == b"HTTP/1.1 408 Request Timeout"


def test_what_is_refused_before_it_is_a_request_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HEADER_TIMEOUT_S", 0.2)
    with (
        serving(tmp_path) as server,
        dial(server, _BEGINNING) as connection,
        connection.makefile("rb") as file,
    ):
        head, _, body = file.read().partition(b"\r\n\r\n")
    assert b"Connection: close" in head
    assert json.loads(body)["error"]["code"] == "header_timeout"


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"])
@pytest.mark.parametrize("line", [b"X-%d: y\r\n" % 7, b"y" * 40])
def test_headers_that_are_too_large_are_refused(server: Server, line: bytes, end: bytes) -> None:
    many = line * (listener.MAX_HEADER_BYTES // len(line) * 2)
    head = _BEGINNING + (b"" if line.startswith(b"X") else b"X-Long: ")
    with dial(server, head) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(many + end)
        assert status(connection) in (b"HTTP/1.1 431 Request Header Fields Too Large", b"")
    assert ask(server).choices[0].message.content


def test_the_oldest_connection_that_waits_makes_room_for_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MAX_CONNECTIONS", 8)
    with serving(tmp_path) as server, ExitStack() as held:
        used = held.enter_context(dial(server, _BEGINNING, b"\r\n"))
        assert status(used) == b"HTTP/1.1 200 OK"
        half_open = [held.enter_context(dial(server, _BEGINNING)) for _ in range(7)]
        with dial(server, _BEGINNING, b"\r\n") as connection:
            assert status(connection) == b"HTTP/1.1 200 OK"
        assert half_open[0].recv(1) == b"", (
            "the oldest of those that never sent a request is closed"
        )
        for connection in (used, *half_open[1:]):
            connection.sendall(b"\r\n" if connection is not used else _BEGINNING + b"\r\n")
            assert status(connection) == b"HTTP/1.1 200 OK"


class Busy:
    """An application that answers when it is told to, on a listener."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.release = asyncio.Event()
        self.request_count = threading.Semaphore(0)
        self.listener = listener.Listener(self._answer, "127.0.0.1", 0)
        self.loop.run(self.listener.start())

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.request_count.release()
        await self.release.wait()
        await Response("done")(scope, receive, send)

    def dial(self, source: str = "127.0.0.1") -> socket.socket:
        address = ("127.0.0.1", self.listener.port)
        connection = socket.create_connection(address, TIMEOUT_S, (source, 0))
        connection.sendall(_BEGINNING + b"\r\n")
        return connection

    def close(self) -> None:
        self.loop.run(self.listener.stop())
        self.loop.close()


@pytest.fixture
def busy() -> Iterator[Busy]:
    with closing(Busy()) as busy_server:
        yield busy_server


def test_requests_that_are_being_answered_are_not_closed_for_others(
    busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MAX_CONNECTIONS", 8)
    with ExitStack() as held:
        answered = [held.enter_context(busy.dial()) for _ in range(8)]
        for _ in answered:
            assert busy.request_count.acquire(timeout=TIMEOUT_S)
        with busy.dial() as connection:
            assert status(connection) == b"HTTP/1.1 503 Service Unavailable"
        busy.loop.call(busy.release.set)
        assert {status(connection) for connection in answered} == {b"HTTP/1.1 200 OK"}


def test_one_client_from_elsewhere_has_only_its_share(
    busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MAX_CONNECTIONS_PER_CLIENT", 3)
    monkeypatch.setattr(listener.request_host, "is_loopback", lambda _host: False)
    with ExitStack() as held:
        for _ in range(3):
            held.enter_context(busy.dial("127.0.0.2"))
            assert busy.request_count.acquire(timeout=TIMEOUT_S)
        with busy.dial("127.0.0.2") as connection:
            assert status(connection) == b"HTTP/1.1 503 Service Unavailable"
        other = held.enter_context(busy.dial("127.0.0.3"))
        assert busy.request_count.acquire(timeout=TIMEOUT_S)
        busy.loop.call(busy.release.set)
        assert status(other) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::1", "::2", False),
    ],
)
def test_a_client_of_ipv6_is_its_network(first: str, second: str, is_one: bool) -> None:
    assert (listener._network_of(first) == listener._network_of(second)) is is_one


def test_without_free_descriptors_the_log_is_not_flooded(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    clients = [socket.socket() for _ in range(20)]
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, before[1]))
    try:
        for client in clients:
            client.connect(("127.0.0.1", server.port))
        server.loop.run(asyncio.sleep(0.5))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for client in clients:
            client.close()
    assert 1 <= len([record for record in caplog.records if "accept" in record.getMessage()]) <= 3
    assert ask(server).choices[0].message.content


def test_a_library_that_repeats_itself_is_quoted_a_few_times(tmp_path: Path) -> None:
    before = logging.getLogger().handlers[:]
    level = logging.getLogger().level
    try:
        log.set_up(tmp_path, "info")
        for number in range(1000):
            logging.getLogger("asyncio").error("Exception in callback %s", number)
            logging.getLogger("gateway.turns").info("turn %s answered", number)
        logging.getLogger("asyncio").error("something else")
    finally:
        logging.getLogger().handlers[:] = before
        logging.getLogger().setLevel(level)
    lines = (tmp_path / log.FILE).read_text().splitlines()
    assert len([line for line in lines if "Exception in callback" in line]) == 5
    assert len([line for line in lines if '"turn ' in line]) == 1000
    assert "something else" in lines[-1]
