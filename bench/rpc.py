"""A server on its pipes and what it costs; speaks the protocol alone, so it measures any server of it.

Runs in our environment and in the peer's, and therefore takes nothing but the standard library.
"""

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]

_TIMEOUT_S = 120.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    """`python -m tui_gateway.entry` of the environment that this runs in, and its only client."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.began = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tui_gateway.entry"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**plain(), **environment},
        )  # fmt: skip
        self._news = threading.Condition()
        self._answers: dict[int, Json] = {}
        self._events: dict[tuple[str, str], list[Json]] = {}
        self._number = 0
        threading.Thread(target=self._listen, daemon=True).start()
        self.event("gateway.ready")

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            frame = json.loads(line)
            with self._news:
                if "id" in frame:
                    self._answers[frame["id"]] = frame
                else:
                    params = frame["params"]
                    key = params["type"], params.get("session_id") or ""
                    self._events.setdefault(key, []).append(params.get("payload") or {})
                self._news.notify_all()

    def call(self, method: str, **params: Any) -> Json:
        """The result of a request; raises RuntimeError when it is refused."""
        assert self._process.stdin is not None
        with self._news:
            self._number += 1
            number = self._number
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._wait(lambda: self._answers.pop(number, None))
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def event(
        self, kind: str, sid: str = "", wanted: Callable[[Json], bool] = lambda _payload: True
    ) -> Json:
        """The next event of a kind that was not asked for before."""

        def found() -> Json | None:
            waiting = self._events.get((kind, sid), [])
            while waiting:
                payload = waiting.pop(0)
                if wanted(payload):
                    return payload or {"": None}
            return None

        return self._wait(found)

    def _wait(self, found: Callable[[], Json | None]) -> Json:
        with self._news:
            got = self._news.wait_for(found, _TIMEOUT_S)
        if got is None:
            raise RuntimeError("the server does not answer")
        return got

    def open(self) -> str:
        """A new session, usable: its agent is there."""
        sid = self.call("session.create", cols=80)["session_id"]
        self.event("session.info", sid, lambda told: not told.get("lazy"))
        return sid

    def say(self, sid: str, text: str = "hello") -> None:
        """Have a prompt answered; raises RuntimeError when it was not."""
        self.call("prompt.submit", session_id=sid, text=text)
        told = self.event("message.complete", sid)
        if told.get("status") != "complete":
            raise RuntimeError(f"the turn ended as {told.get('status')}: {told.get('text')}")

    @property
    def cpu(self) -> float:
        """Seconds so far, of all its threads."""
        return cpu_of(self._process.pid)

    @property
    def memory(self) -> float:
        """Bytes that it and the processes it has started take now."""
        return sum(map(memory_of, family(self._process.pid)))

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def plain() -> dict[str, str]:
    """The environment without what would lead to another home."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("HERMES_", "PYTHON"))}


def cpu_of(pid: int) -> float:
    """Seconds that a process has worked so far."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    exact = sum(map(_worked, threads)) / 1e9
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    # The threads that are over count only here, in ticks.
    return max(exact, (int(fields[11]) + int(fields[12])) / _TICKS)


def _worked(thread: Path) -> int:
    """Nanoseconds of a thread; nothing when it has ended since we looked."""
    try:
        return int(thread.read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def memory_of(pid: int) -> float:
    """Bytes of memory that a process takes now."""
    status = Path(f"/proc/{pid}/status").read_text()
    return float(status.partition("VmRSS:")[2].split()[0]) * 1024


def family(pid: int) -> list[int]:
    """A process and all that it has started."""
    listed = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for path in listed for child in path.read_text().split()]
    return [pid, *(one for child in children for one in family(child))]


def start(environment: dict[str, str]) -> tuple[float, float]:
    """CPU seconds and memory from the start to the greeting."""
    with Server(environment) as server:
        return server.cpu, server.memory


def usable(environment: dict[str, str]) -> float:
    """Seconds from the wish for the first session of a process until it can be talked to."""
    with Server(environment) as server:
        began = time.perf_counter()
        server.open()
        return time.perf_counter() - began


def turn(environment: dict[str, str], turns: int, rounds: int) -> float:
    """CPU seconds of the server for a turn."""
    with Server(environment) as server:
        found: list[float] = []
        for _ in range(rounds):
            sid = server.open()
            server.say(sid)
            before = server.cpu
            for _ in range(turns):
                server.say(sid)
            found.append((server.cpu - before) / turns)
    return statistics.median(found)


def together(environment: dict[str, str], sessions: int, turns: int) -> float:
    """Turns a second of so many sessions at once; raises RuntimeError when one fails."""
    failures: list[str] = []
    with Server(environment) as server:
        sids = [server.open() for _ in range(sessions)]
        gate = threading.Barrier(sessions + 1)

        def talk(sid: str) -> None:
            gate.wait()
            try:
                for _ in range(turns):
                    server.say(sid)
            except RuntimeError as error:
                failures.append(str(error))

        threads = [threading.Thread(target=talk, args=(sid,)) for sid in sids]
        for thread in threads:
            thread.start()
        gate.wait()
        began = time.perf_counter()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - began
    if failures:
        raise RuntimeError(failures[0])
    return sessions * turns / seconds


def further(environment: dict[str, str], before: int, sessions: int) -> float:
    """Bytes that one more session takes, with a turn in it, when there are some already."""
    with Server(environment) as server:
        for _ in range(before):
            server.say(server.open())
        had = server.memory
        for _ in range(sessions):
            server.say(server.open())
        return (server.memory - had) / sessions
