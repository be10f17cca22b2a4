"""The side of a kill test that kills: starts victims, listens to them, and kills them."""

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
from tests.support.victim import Order

ROOT = Path(__file__).parents[2]
SILENCE_TIMEOUT_S = 20.0
"""A victim that reports nothing for this long counts as an error."""
LANES = 2


class Victim:
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
            self._hear(line.decode())

    def _hear(self, line: str) -> None:
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


class Nursery:
    """Starts victims of one module quickly, and reaps them."""

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

    def start(self, order: Order) -> Victim:
        """A new victim."""
        pipe, other = os.pipe()
        try:
            socket.send_fds(self._socket, [msgspec.json.encode(order)], [other])
            return Victim(int(self._socket.recv(64)), pipe)
        finally:
            os.close(other)

    def kill(self, victims: Sequence[Victim]) -> None:
        """Kill these at once, and read what they still had reported."""
        for victim in victims:
            os.kill(victim.pid, signal.SIGKILL)
        listen(victims, lambda: all(victim.is_silent for victim in victims))
        for victim in victims:
            self.bury(victim)

    def bury(self, victim: Victim) -> None:
        """Reap a dead victim; until then its process id is not used again."""
        os.close(victim.pipe)
        self._socket.sendall(msgspec.json.encode(Order("", [], 0, reap=victim.pid)))
        self._socket.recv(64)

    def close(self) -> None:
        """Stop starting victims."""
        self._socket.close()
        self._process.wait(SILENCE_TIMEOUT_S)


@contextmanager
def nursery(module: str) -> Generator[Nursery]:
    """A nursery for the length of a block; the module has the function that its victims run."""
    opened = Nursery(module)
    try:
        yield opened
    finally:
        opened.close()


def listen(
    victims: Sequence[Victim], enough: Callable[[], bool], until: float | None = None
) -> bool:
    """Listen until there is enough, or until a moment; False when the time was up first."""
    deadline = time.monotonic() + SILENCE_TIMEOUT_S if until is None else until
    while not enough():
        speaking = [victim for victim in victims if not victim.is_silent]
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not speaking:
            return False
        for pipe in select.select([victim.pipe for victim in speaking], [], [], remaining)[0]:
            next(victim for victim in speaking if victim.pipe == pipe).listen()
    return True


def kill_everywhere(
    name: str,
    module: str,
    found: F,
    kill_at: Callable[[Nursery, int], tuple[F, Victim]],
    *,
    step: int = 1,
    lanes: int = LANES,
) -> Row[F]:
    """Kill a victim at every `step`th point, until one ends, or fails, before its point."""
    points, lock = Counter[str](), threading.Lock()

    def lane(first: int) -> None:
        with nursery(module) as victims:
            for point in range(first * step, 1_000_000, lanes * step):
                partly, victim = kill_at(victims, point)
                with lock:
                    found.add(partly)
                    if victim.is_done or victim.errors:
                        break
                    points[victim.point] += 1

    _in_lanes(lane, range(1, lanes + 1))
    return Row(name, points.total(), found, points)


def kill_randomly(
    name: str,
    module: str,
    found: F,
    kill: Callable[[Nursery, int, int], F],
    *,
    kills: int,
    lanes: int = LANES,
) -> Row[F]:
    """Share kills among lanes; `kill` gets a nursery, the number of its lane and its share."""
    lock = threading.Lock()

    def lane(number: int) -> None:
        with nursery(module) as victims:
            partly = kill(victims, number, kills // lanes + (number < kills % lanes))
        with lock:
            found.add(partly)

    _in_lanes(lane, range(lanes))
    return Row(name, kills, found, Counter())


def _in_lanes(work: Callable[[int], None], numbers: Sequence[int]) -> None:
    """Do numbered work at the same time; an error anywhere is raised here."""
    with ThreadPoolExecutor(len(numbers)) as pool:
        for future in [pool.submit(work, number) for number in numbers]:
            future.result()


def processes(number: int) -> str:
    """A number of processes in words."""
    return "1 process" if number == 1 else f"{number} processes"
