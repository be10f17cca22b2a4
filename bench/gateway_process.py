"""A gateway as a process, the clients of its HTTP API, and what it costs.

Runs in our environment and in the peer's, and therefore takes nothing but the standard library.
"""

import http.client
import itertools
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bench import rpc

TOKEN = "a-token-for-the-bench-0123456789"
_TIMEOUT_S = 120.0
_LOOK_EVERY_S = 0.05
_numbers = itertools.count()


class Gateway:
    """`hermes gateway run` of the environment that this runs in."""

    def __init__(self, home: Path, environment: dict[str, str] | None = None) -> None:
        self.started_at = time.perf_counter()
        self._child = subprocess.Popen(
            [str(Path(sys.executable).with_name("hermes")), "gateway", "run"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={
                **rpc.plain(), "HOME": str(home), "HERMES_HOME": str(home),
                "HERMES_GATEWAY_LOCK_DIR": str(home / "locks"), **(environment or {}),
            },
        )  # fmt: skip
        self.pid = self._child.pid
        self.up_at = 0.0
        self._is_up = threading.Event()
        self._said: list[bytes] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            if b"gateway is running" in line:
                self.up_at = time.perf_counter()
                self._is_up.set()
            self._said = [*self._said[-20:], line]
        self._is_up.set()

    def wait_until_up(self) -> "Gateway":
        """Wait for it to say that it is; raises RuntimeError."""
        if not self._is_up.wait(_TIMEOUT_S) or not self.up_at:
            raise RuntimeError(f"the gateway does not come up: {self._last_words}")
        return self

    def wait_for_api(self, port: int) -> "Gateway":
        """Wait until its API answers; raises RuntimeError."""
        end = time.monotonic() + _TIMEOUT_S
        while not _answers(port):
            if time.monotonic() > end or self._child.poll() is not None:
                raise RuntimeError(f"the API does not answer: {self._last_words}")
            time.sleep(_LOOK_EVERY_S)
        return self

    @property
    def _last_words(self) -> str:
        return b" ".join(self._said).decode(errors="replace").strip()[-300:]

    @property
    def cpu(self) -> float:
        """Seconds so far, of all its threads."""
        return rpc.cpu_of(self.pid)

    @property
    def memory(self) -> float:
        """Bytes that it and the processes it has started take now."""
        return sum(map(rpc.memory_of, rpc.family(self.pid)))

    @property
    def greatest_memory(self) -> float:
        """The most bytes that it alone has taken so far."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return float(status.partition("VmHWM:")[2].split()[0]) * 1024

    def kill(self) -> None:
        """End it as a power cut does."""
        self._child.kill()
        self._child.wait()

    def __enter__(self) -> "Gateway":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Client:
    """One client of the API, on one connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)

    def ask(self, text: str) -> None:
        """Have something answered, in a conversation of its own; raises RuntimeError."""
        asked = {"model": "scripted", "messages": [{"role": "user", "content": text}]}
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        self._connection.request("POST", "/v1/chat/completions", json.dumps(asked), headers)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"refused with {answer.status}: {body[:200]!r}")
        if text not in json.loads(body)["choices"][0]["message"]["content"]:
            raise RuntimeError(f"answered with something else: {body[:200]!r}")

    def close(self) -> None:
        self._connection.close()


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def words() -> str:
    """Something to say that was not said before, so that every conversation is a new one."""
    return f"hello, this is number {next(_numbers)}."


@contextmanager
def serving(home: Path, environment: dict[str, str], port: int) -> Generator[Gateway]:
    """A gateway whose API has answered a few times: what is made once is made."""
    with Gateway(home, environment) as gateway:
        gateway.wait_for_api(port)
        client = Client(port)
        for _ in range(3):
            client.ask(words())
        client.close()
        yield gateway


def turn(gateway: Gateway, port: int, turns: int, rounds: int) -> float:
    """CPU seconds of the gateway for a request, one after the other."""
    client = Client(port)
    found: list[float] = []
    for _ in range(rounds):
        before = gateway.cpu
        for _ in range(turns):
            client.ask(words())
        found.append((gateway.cpu - before) / turns)
    client.close()
    return statistics.median(found)


def together(port: int, clients: int, turns: int) -> float:
    """Requests a second of so many clients at once; raises RuntimeError when one is not answered."""
    failures: list[str] = []
    gate = threading.Barrier(clients + 1)

    def talk() -> None:
        client = Client(port)
        gate.wait()
        try:
            for _ in range(turns):
                client.ask(words())
        except (OSError, http.client.HTTPException, RuntimeError) as error:
            failures.append(repr(error))
        finally:
            client.close()

    threads = [threading.Thread(target=talk) for _ in range(clients)]
    for thread in threads:
        thread.start()
    gate.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if failures:
        raise RuntimeError(failures[0])
    return clients * turns / seconds
