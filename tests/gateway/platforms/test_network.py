"""The proxy breaks a network in every way that it says."""

import contextlib
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator

import pytest

from gateway.platforms.testing.network import Proxy

TIMEOUT_S = 10.0


class Echo(socketserver.ThreadingTCPServer):
    """Answers every line with itself, and knows what it was told."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), EchoLines)
        self.received: list[bytes] = []
        self.changed = threading.Condition()

    def wait_for(self, line: bytes) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: line in self.received, TIMEOUT_S)


class EchoLines(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Echo)
        with contextlib.suppress(OSError):
            for line in self.rfile:
                with self.server.changed:
                    self.server.received.append(line)
                    self.server.changed.notify_all()
                self.wfile.write(line)


@pytest.fixture
def server() -> Iterator[Echo]:
    with Echo() as echo:
        thread = threading.Thread(target=echo.serve_forever, args=(0.01,))
        thread.start()
        yield echo
        echo.shutdown()
        thread.join(TIMEOUT_S)


@pytest.fixture
def proxy(server: Echo) -> Iterator[Proxy]:
    host, port = server.server_address[:2]
    with Proxy(str(host), int(port)) as tcp_proxy:
        yield tcp_proxy


@contextlib.contextmanager
def connected(proxy: Proxy) -> Generator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), TIMEOUT_S) as connection:
        yield connection


def ask(link: socket.socket, line: bytes) -> bytes:
    link.sendall(line)
    return receive(link, len(line))


def receive(link: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := link.recv(count - len(data))):
        data += more
    return data


def assert_is_broken(link: socket.socket) -> None:
    with pytest.raises(ConnectionResetError):
        link.recv(1)


def test_a_good_network_passes_everything_on(proxy: Proxy):
    large = b"x" * 1_000_000 + b"\n"
    with connected(proxy) as link:
        threading.Thread(target=link.sendall, args=(large,)).start()
        assert receive(link, len(large)) == large


def test_an_end_is_passed_on_too(proxy: Proxy):
    with connected(proxy) as link:
        ask(link, b"a\n")
        link.shutdown(socket.SHUT_WR)
        assert link.recv(1) == b""


def test_a_cut_breaks_those_who_are_connected_and_nobody_else(proxy: Proxy):
    with connected(proxy) as link:
        ask(link, b"a\n")
        proxy.cut()
        assert_is_broken(link)
    with connected(proxy) as link:
        assert ask(link, b"b\n") == b"b\n"


def test_a_refusing_network_keeps_those_who_are_connected(proxy: Proxy):
    with connected(proxy) as link:
        ask(link, b"a\n")
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError), connected(proxy):
            pass
        assert ask(link, b"b\n") == b"b\n"
        proxy.accept()
        with connected(proxy) as other:
            assert ask(other, b"c\n") == b"c\n"


def test_a_server_that_is_not_there_breaks_the_connection():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with Proxy("127.0.0.1", free.getsockname()[1]) as proxy:  # noqa: SIM117 -- one refuses
            with pytest.raises(ConnectionResetError), connected(proxy) as link:
                link.recv(1)


def test_nothing_leaves_a_black_hole_until_it_is_healed(proxy: Proxy, server: Echo):
    with connected(proxy) as link, connected(proxy) as other:
        ask(link, b"a\n")
        proxy.blackhole()
        link.sendall(b"b\n")
        link.settimeout(0.1)
        with pytest.raises(TimeoutError):
            link.recv(1)
        assert server.received == [b"a\n"]
        link.settimeout(TIMEOUT_S)
        proxy.heal()
        assert receive(link, 2) == b"b\n"
        assert ask(other, b"c\n") == b"c\n"


def test_a_delay_holds_back_but_loses_nothing(proxy: Proxy):
    proxy.delay(0.2)
    with connected(proxy) as link:
        began = time.monotonic()
        assert ask(link, b"a\n") == b"a\n"
        assert time.monotonic() - began >= 0.2


def test_a_trickle_arrives_bit_by_bit(proxy: Proxy):
    line = b"0" * 99 + b"\n"
    proxy.trickle(200)
    with connected(proxy) as link:
        began = time.monotonic()
        link.sendall(line)
        first = link.recv(len(line))
        # Ten bytes every twentieth of a second, there and back.
        assert len(first) <= 10 * (1 + 20 * (time.monotonic() - began))
        assert time.monotonic() - began >= 0.5
        proxy.heal()
        assert first + receive(link, len(line) - len(first)) == line


def test_a_half_closed_connection_still_carries_requests(proxy: Proxy, server: Echo):
    with connected(proxy) as link:
        ask(link, b"a\n")
        proxy.half_close()
        assert link.recv(1) == b""
        link.sendall(b"b\n")
        server.wait_for(b"b\n")


def test_an_answer_is_lost_although_the_request_arrived(proxy: Proxy, server: Echo):
    with connected(proxy) as link:
        ask(link, b"a\n")
        happened = proxy.cut_before_response()
        link.sendall(b"b\n")
        assert_is_broken(link)
        assert happened.is_set()
        server.wait_for(b"b\n")
    with connected(proxy) as link:
        assert ask(link, b"c\n") == b"c\n"


def test_an_answer_is_cut_short(proxy: Proxy):
    with connected(proxy) as link:
        proxy.cut_after_response_bytes(3)
        link.sendall(b"hello\n")
        assert receive(link, 6) == b"hel"


def test_only_the_request_that_is_meant_loses_its_answer(proxy: Proxy):
    with connected(proxy) as link, connected(proxy) as other:
        happened = proxy.cut_before_response(b"send")
        assert ask(other, b"poll\n") == b"poll\n"
        link.sendall(b"se")
        link.sendall(b"nd\n")
        assert_is_broken(link)
        assert happened.is_set()
        assert ask(other, b"poll\n") == b"poll\n"


def test_it_runs_as_a_process(server: Echo):
    command = [sys.executable, "-m", "gateway.platforms.testing.network"]
    target = f"127.0.0.1:{server.server_address[1]}"
    with subprocess.Popen(
        [*command, target], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout
        port = int(process.stdout.readline().rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as link:
            assert ask(link, b"a\n") == b"a\n"
            for line, answer in [("cut", "done"), ("explode", "There is no fault 'explode'.")]:
                process.stdin.write(f"{line}\n")
                process.stdin.flush()
                assert process.stdout.readline().strip() == answer
            assert_is_broken(link)
        process.stdin.close()
        assert process.wait(TIMEOUT_S) == 0
