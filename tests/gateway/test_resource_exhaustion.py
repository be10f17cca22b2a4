"""A gateway whose store is taken away, or that is short of memory or descriptors, says just that."""

import resource
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from hermes_agent.testing.scripted import Quiet, silence
from hermes_state import SessionDB
from tests.gateway.harness import TIMEOUT_S, Process, World

pytestmark = [pytest.mark.proof, pytest.mark.timeout(120)]

TOKEN = "a-token-for-the-tests"


class Running(NamedTuple):
    """A gateway in a process of its own, with its API and its health port."""

    world: World
    process: Process
    port: int
    health_port: int

    def ask(self, key: str) -> httpx2.Response:
        return httpx2.post(
            f"http://127.0.0.1:{self.port}/v1/chat/completions",
            json={"model": "hermes", "messages": [{"role": "user", "content": key}]},
            headers={"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": key},
            timeout=TIMEOUT_S,
        )

    def try_to_ask(self, key: str) -> tuple[int, str]:
        """The status and the error code of an answer; 0 when none came."""
        try:
            answer = self.ask(key)
        except httpx2.HTTPError:
            return 0, ""
        error = answer.json().get("error") or {}
        return answer.status_code, error.get("code", "")

    def health(self) -> set[tuple[int, str]]:
        urls = (f":{self.port}/health", f":{self.port}/v1/health", f":{self.health_port}/health")
        answers = [httpx2.get(f"http://127.0.0.1{url}", timeout=TIMEOUT_S) for url in urls]
        return {(answer.status_code, answer.json()["status"]) for answer in answers}

    def limit(self, kind: int, value: int) -> None:
        _, hard = resource.prlimit(self.process.child.pid, kind)
        resource.prlimit(self.process.child.pid, kind, (value, hard))

    @property
    def log(self) -> str:
        return (self.world.home.root / "logs" / "hermes.log").read_text()


@pytest.fixture
def running(world: World) -> Iterator[Running]:
    port, health_port = free_port(), free_port()
    more = (
        f"health_port = {health_port}\n"
        f'[gateway.platforms.api_server]\ntoken = "{TOKEN}"\nport = {port}\n'
    )
    world.configure(more=more)
    with Process(world) as process:
        process.wait_until_up()
        yield Running(world, process, port, health_port)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_store_that_is_taken_away_is_told_to_who_waits_and_by_health(
    running: Running, is_replaced: bool
) -> None:
    assert running.health() == {(200, "ok")}
    assert running.ask("before").status_code == 200
    quiet = Quiet()
    running.world.play(silence(quiet, then="too late"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(running.try_to_ask, "during")
        assert quiet.started.wait(TIMEOUT_S)
        database = running.world.home.database
        for file in database.parent.glob(f"{database.name}*"):
            file.unlink()
        if is_replaced:
            SessionDB(database).close()
        assert waiting.result(TIMEOUT_S) == (503, "store.gone")
        quiet.release()
    assert running.health() == {(503, "unhealthy")}
    assert running.try_to_ask("after") == (503, "store.gone")


def test_a_gateway_without_free_descriptors_refuses_for_a_while(running: Running) -> None:
    assert running.ask("before").status_code == 200
    in_use = len(list(Path(f"/proc/{running.process.child.pid}/fd").iterdir()))
    running.limit(resource.RLIMIT_NOFILE, in_use + 3)
    answers: set[tuple[int, str]] = set()
    with ThreadPoolExecutor(12) as pool:
        keys = [f"key {number}" for number in range(12)]
        answers |= set(pool.map(running.try_to_ask, keys))
    running.limit(resource.RLIMIT_NOFILE, 1024)
    temporary = {"store.files", "exhausted", "store.busy", "store.memory", ""}
    assert {status for status, _ in answers} <= {0, 200, 502, 503}, answers
    assert {code for status, code in answers if status == 503} <= temporary, answers
    assert "may not be opened" not in running.log
    assert len([line for line in running.log.splitlines() if '"asyncio"' in line]) < 50
    assert until(lambda: running.try_to_ask("after")[0] == 200)
    for key in keys:
        assert until(lambda key=key: running.try_to_ask(key)[0] in (200, 502)), key


def test_a_gateway_without_memory_speaks_of_no_deleted_conversation(running: Running) -> None:
    assert running.ask("before").status_code == 200
    pages = int(Path(f"/proc/{running.process.child.pid}/statm").read_text().split()[0])
    running.limit(resource.RLIMIT_AS, pages * resource.getpagesize() + (1 << 20))
    keys = [f"key {number}" for number in range(24)]
    with ThreadPoolExecutor(16) as pool:
        answers = set(pool.map(running.try_to_ask, keys))
    running.limit(resource.RLIMIT_AS, resource.RLIM_INFINITY)
    assert running.process.child.poll() is None, running.process.output.decode()[-2000:]
    assert {status for status, _ in answers} <= {0, 200, 502, 503}, answers
    for key in keys:
        assert until(lambda key=key: running.try_to_ask(key)[0] in (200, 502)), key


def until(is_so: Any) -> bool:
    """Look until something is so; False when it does not come."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        if is_so():
            return True
        time.sleep(0.1)  # another process has nothing else to wait on
    return False
