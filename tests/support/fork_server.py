"""The side of a kill test that kills: starts workers, listens to them, and kills them."""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.support.findings import F, Row
from tests.support.worker import Order

ROOT = Path(__file__).parents[2]
SILENCE_TIMEOUT_S = 20.0
"""A worker that reports nothing for this long counts as an error."""
PARALLEL_WORKERS = 2


class Worker:
    """A process that works until it is killed, and what it has reported."""

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid = pid
        self.pipe = pipe
        self.steps: dict[int, int] = {}
        self.points: list[str] = []
        self.errors: list[str] = []
        self.is_done = False
        self.is_silent = False
        self._rest = b""

    @property
    def point(self) -> str:
        """The last point it reported."""
        return self.points[-1] if self.points else ""

    def listen(self) -> None:
        """Read what it reports; call it only when there is something to read."""
        data = os.read(self.pipe, 65_536)
        self.is_silent = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._handle(line.decode())

    def _handle(self, line: str) -> None:
        word, _, text = line.partition(" ")
        match word:
            case "point":
                self.points.append(text)
            case "error":
                self.errors.append(text)
            case "done":
                self.is_done = True
            case _:
                self.steps[int(word)] = int(text)


class ForkServer:
    """Starts workers of one module quickly, and reaps them."""

    def __init__(self, module: str) -> None:
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._socket.settimeout(SILENCE_TIMEOUT_S)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
            )

    def start(self, order: Order) -> Worker:
        """A new worker."""
        pipe, other = os.pipe()
        try:
            socket.send_fds(self._socket, [msgspec.json.encode(order)], [other])
            return Worker(int(self._socket.recv(64)), pipe)
        finally:
            os.close(other)

    def kill(self, workers: Sequence[Worker]) -> None:
        """Kill these at once, and read what they still had reported."""
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)
        listen(workers, lambda: all(worker.is_silent for worker in workers))
        for worker in workers:
            self.reap(worker)

    def reap(self, worker: Worker) -> None:
        """Reap a dead worker; until then its process id is not used again."""
        os.close(worker.pipe)
        self._socket.sendall(msgspec.json.encode(Order("", [], 0, reap=worker.pid)))
        self._socket.recv(64)

    def close(self) -> None:
        """Stop starting workers."""
        self._socket.close()
        self._process.wait(SILENCE_TIMEOUT_S)


@contextmanager
def fork_server(module: str) -> Generator[ForkServer]:
    """Open a fork server for the length of a block; the module has the function that its workers run."""
    opened = ForkServer(module)
    try:
        yield opened
    finally:
        opened.close()


def listen(
    workers: Sequence[Worker], enough: Callable[[], bool], until: float | None = None
) -> bool:
    """Listen until there is enough, or until a moment; False when the time was up first."""
    deadline = time.monotonic() + SILENCE_TIMEOUT_S if until is None else until
    while not enough():
        speaking = [worker for worker in workers if not worker.is_silent]
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not speaking:
            return False
        for pipe in select.select([worker.pipe for worker in speaking], [], [], remaining)[0]:
            next(worker for worker in speaking if worker.pipe == pipe).listen()
    return True


def kill_at_every_point(
    name: str,
    module: str,
    found: F,
    kill_at: Callable[[ForkServer, int], tuple[F, Worker]],
    *,
    step: int = 1,
    parallel: int = PARALLEL_WORKERS,
) -> Row[F]:
    """Kill a worker at every `step`th point, until one ends, or fails, before its point."""
    points, lock = Counter[str](), threading.Lock()

    def run_share(first: int) -> None:
        with fork_server(module) as workers:
            for point in range(first * step, 1_000_000, parallel * step):
                partly, worker = kill_at(workers, point)
                with lock:
                    found.add(partly)
                    if worker.is_done or worker.errors:
                        break
                    points[worker.point] += 1

    _in_parallel(run_share, range(1, parallel + 1))
    return Row(name, points.total(), found, points)


def kill_randomly(
    name: str,
    module: str,
    found: F,
    kill: Callable[[ForkServer, int, int], F],
    *,
    kills: int,
    parallel: int = PARALLEL_WORKERS,
) -> Row[F]:
    """Share kills among threads; `kill` gets a fork server, its number and its share."""
    lock = threading.Lock()

    def run_share(number: int) -> None:
        with fork_server(module) as workers:
            partly = kill(workers, number, kills // parallel + (number < kills % parallel))
        with lock:
            found.add(partly)

    _in_parallel(run_share, range(parallel))
    return Row(name, kills, found, Counter())


def _in_parallel(work: Callable[[int], None], numbers: Sequence[int]) -> None:
    """Do numbered work at the same time; an error anywhere is raised here."""
    with ThreadPoolExecutor(len(numbers)) as pool:
        for future in [pool.submit(work, number) for number in numbers]:
            future.result()


def processes(number: int) -> str:
    """A number of processes in words."""
    return "1 process" if number == 1 else f"{number} processes"
