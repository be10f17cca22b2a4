"""Strangers at the listeners of a running gateway: the API, webhooks and health keep answering."""

import json
import resource
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from gateway.platforms.webhook import signature
from tests.gateway.harness import TIMEOUT_S, Process, World
from tests.gateway.servers.ports import free_port

pytestmark = [pytest.mark.promise("P7"), pytest.mark.xdist_group("floods")]

_TOKEN = "t" * 20
_SECRET = "a secret of a hook"
_HALF_OPEN = 1010
_BEGINNING = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


class Flooded:
    """A gateway with three listeners."""

    def __init__(self, process: Process, ports: dict[str, int]) -> None:
        self.pid = process.child.pid
        self.ports = ports
        self._client = httpx2.Client(timeout=TIMEOUT_S)

    def check(self) -> None:
        """Ask the API, a webhook and health, on new connections; all must answer properly."""
        with httpx2.Client(timeout=TIMEOUT_S) as client:
            models = client.get(
                f"http://127.0.0.1:{self.ports['api']}/v1/models",
                headers={"Authorization": f"Bearer {_TOKEN}"},
            )
            assert models.status_code == 200, models.text
            body = json.dumps({"build": "green"}).encode()
            headers = signature.sign("hermes", _SECRET, "d1", body)
            posted = client.post(
                f"http://127.0.0.1:{self.ports['webhook']}/hooks/build",
                content=body,
                headers=headers,
            )
            assert posted.status_code == 202, posted.text
            health = client.get(f"http://127.0.0.1:{self.ports['health']}/health")
            assert (health.status_code, health.json()["status"]) == (200, "ok")

    def memory_kib(self) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])

    def dial(self, listener: str, data: bytes = _BEGINNING) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.ports[listener]), TIMEOUT_S)
        connection.sendall(data)
        return connection


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    minimum = 4 * _HALF_OPEN
    if hard != resource.RLIM_INFINITY and hard < minimum:
        pytest.skip(f"this machine allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, minimum), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def flooded(world: World) -> Generator[Flooded]:
    ports = {name: free_port() for name in ("api", "webhook", "health")}
    world.configure(
        more=(
            f"health_port = {ports['health']}\n"
            f'[gateway.platforms.api_server]\nport = {ports["api"]}\ntoken = "{_TOKEN}"\n'
            f"[gateway.platforms.webhook]\nport = {ports['webhook']}\n"
            f'[gateway.platforms.webhook.hooks.build]\nsecret = "{_SECRET}"\n'
        )
    )
    with Process(world).wait_until_up() as process:
        yield Flooded(process, ports)


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize(
    ("listener", "data"),
    [
        ("api", _BEGINNING),
        ("webhook", _BEGINNING),
        ("health", _BEGINNING),
        ("webhook", b"POST /hooks/build HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"),
    ],
)
def test_a_thousand_half_sent_requests_keep_nobody_from_an_answer(
    world: World, listener: str, data: bytes
) -> None:
    with flooded(world) as it, ExitStack() as held:
        it.check()
        for _ in range(_HALF_OPEN):
            with suppress(ConnectionError):
                held.enter_context(it.dial(listener, data))
        it.check()


def _pour(connection: socket.socket, piece: bytes, count: int) -> None:
    """Send a piece again and again until the other side has had enough."""
    with suppress(ConnectionError):
        for _ in range(count):
            connection.sendall(piece)


@pytest.mark.parametrize("listener", ["api", "webhook", "health"])
@pytest.mark.parametrize(
    "piece", [b"X-Filling: %s\r\n" % (b"y" * 8000), b"y" * 8000], ids=["many", "one long"]
)
def test_two_hundred_megabytes_of_headers_take_no_memory(
    world: World, listener: str, piece: bytes
) -> None:
    beginning = _BEGINNING if piece.startswith(b"X") else _BEGINNING + b"X-Long: "
    with flooded(world) as it:
        it.check()
        before = it.memory_kib()
        with it.dial(listener, beginning) as connection:
            pouring = threading.Thread(target=_pour, args=(connection, piece, 25_000), daemon=True)
            pouring.start()
            it.check()
            pouring.join(TIMEOUT_S)
            assert not pouring.is_alive(), "it takes all that is sent"
        assert it.memory_kib() - before < 30_000


@pytest.mark.e2e  # it lasts as long as the deadline
@pytest.mark.parametrize("listener", ["api", "webhook", "health"])
def test_headers_that_drip_in_are_given_up(world: World, listener: str) -> None:
    with flooded(world) as it, it.dial(listener) as connection:
        stop = threading.Event()

        def drip() -> None:
            with suppress(OSError):
                while not stop.wait(0.2):
                    connection.sendall(b"X-Drip: y\r\n")

        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        it.check()
        answer = b""
        with suppress(ConnectionError):
            while received := connection.recv(1000):  # a TimeoutError: it waits without end
                answer += received
        stop.set()
        dripping.join(TIMEOUT_S)
        assert answer.startswith(b"HTTP/1.1 408") or not answer
