"""The crash matrix: writers are killed at every write point and at random moments.

After each kill the store is opened and must show, for every writer, all that was acknowledged, in
order, once, and at most the one write that was under way; it must be sound; a rotation is there whole
or not at all. Run it with: python -m hermes_state.testing.crash --kills 500
"""

import argparse
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from hermes_state.testing import workload
from hermes_state.testing.victim import Order
from hermes_state.testing.workload import Expectation, Findings

PATIENCE_S = 20.0
"""A victim that says nothing for so long is counted as an error."""

ROUNDS_A_STORE = 5
LANES = 2

COLUMNS = ("kills", "acknowledged", "lost", "doubled", "out of order", "integrity", "half-rotated",
           "illegal", "errors")  # fmt: skip


class Victim:
    """A process that writes until it is killed, and what it has reported."""

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid = pid
        self.pipe = pipe
        self.steps: dict[int, int] = {}
        self.point = ""
        self.errors: list[str] = []
        self.is_done = False
        self.is_silent = False
        self._rest = b""

    def listen(self) -> None:
        """Take in what is there; only to be called when something is."""
        data = os.read(self.pipe, 65_536)
        self.is_silent = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._hear(line.decode())

    def _hear(self, line: str) -> None:
        word, _, text = line.partition(" ")
        match word:
            case "point":
                self.point = text
            case "error":
                self.errors.append(text)
            case "done":
                self.is_done = True
            case _:
                self.steps[int(word)] = int(text)


class Nursery:
    """Starts victims quickly, and forgets them."""

    def __init__(self, module: str = "hermes_state.testing.victim") -> None:
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._socket.settimeout(PATIENCE_S)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
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
        """Kill these at once, and hear what they still had to say."""
        for victim in victims:
            os.kill(victim.pid, signal.SIGKILL)
        listen(victims, lambda: all(victim.is_silent for victim in victims))
        for victim in victims:
            self.bury(victim)

    def bury(self, victim: Victim) -> None:
        """Forget a dead one; until then its process id is not given to anybody else."""
        os.close(victim.pipe)
        self._socket.sendall(msgspec.json.encode(Order("", [], 0, reap=victim.pid)))
        self._socket.recv(64)

    def close(self) -> None:
        """Stop starting victims."""
        self._socket.close()
        self._process.wait(PATIENCE_S)


@contextmanager
def nursery(module: str = "hermes_state.testing.victim") -> Generator[Nursery]:
    """A nursery for the length of a block; the module is what its victims live by."""
    opened = Nursery(module)
    try:
        yield opened
    finally:
        opened.close()


def listen(
    victims: Sequence[Victim], enough: Callable[[], bool], until: float | None = None
) -> bool:
    """Listen until there is enough, or until a moment; False when the time was up first."""
    deadline = time.monotonic() + PATIENCE_S if until is None else until
    while not enough():
        speaking = [victim for victim in victims if not victim.is_silent]
        left = deadline - time.monotonic()
        if left <= 0 or not speaking:
            return False
        for pipe in select.select([victim.pipe for victim in speaking], [], [], left)[0]:
            next(victim for victim in speaking if victim.pipe == pipe).listen()
    return True


# -- kill at every write point -------------------------------------------------------------------


class Pass(NamedTuple):
    """One scripted pass, killed at every point of a trap."""

    trap: Literal["statement", "file"]
    threads: int


def kill_at_points(
    victims: Nursery, folder: Path, one: Pass, expected: Expectation, points: Iterator[int]
) -> tuple[Findings, Counter[str]]:
    """Kill at these points, each time on a fresh store, until the pass ends before its point."""
    found, names = Findings(), Counter[str]()
    for point in points:
        path = folder / f"{one.trap}-{one.threads}-{point}.db"
        threads = [f"r0w0t{number}" for number in range(one.threads)]
        victim = victims.start(Order(str(path), threads, 1, trap=one.trap, kill_at=point))
        listen([victim], lambda v=victim: v.is_silent)
        if not victim.is_silent:
            os.kill(victim.pid, signal.SIGKILL)
            found.errors += 1
        victims.bury(victim)
        found.add(_inspect(path, {0: [victim]}, expected))
        if victim.is_done:
            break
        names[victim.point] += 1
    return found, names


# -- kill at random moments ----------------------------------------------------------------------


def kill_at_random(
    victims: Nursery,
    folder: Path,
    writers: int,
    kills: int,
    expected: Expectation,
    seed: int,
) -> Findings:
    """Kill so many times; a store is killed some times over before there is a new one."""
    found, dice = Findings(), random.Random(seed)
    for first in range(0, kills, ROUNDS_A_STORE):
        path = folder / f"random-{writers}-{seed}-{first}.db"
        history: dict[int, list[Victim]] = {}
        total = Findings()
        for number in range(min(ROUNDS_A_STORE, kills - first)):
            history[number] = _one_round(victims, path, writers, number, dice, total)
            latest = _inspect(path, history, expected)
            if not latest.is_clean:
                found.notes.append(f"seed {seed}, store {first}, round {number}")
            total.acknowledged = latest.acknowledged
            found.add(_without_acknowledged(latest))
        found.add(total)
        found.add(workload.search_finds_all(path))
    return found


def _without_acknowledged(findings: Findings) -> Findings:
    """A store is inspected after every round; what it acknowledged is counted once, at its end."""
    findings.acknowledged = 0
    return findings


def _one_round(
    victims: Nursery, path: Path, writers: int, number: int, dice: random.Random, found: Findings
) -> list[Victim]:
    """Start writers, and kill them: all at once, or one first and the rest after they went on."""
    began = time.monotonic()
    alive = [
        victims.start(
            Order(
                str(path),
                [f"r{number}w{writer}t{thread}" for thread in range(dice.randint(1, 3))],
                1_000,
            )
        )
        for writer in range(writers)
    ]
    if dice.random() < 0.8:
        if not listen(alive, lambda: any(v.steps or v.errors for v in alive)):
            found.errors += 1
            found.notes.append("nothing was acknowledged in time")
        began = time.monotonic()
    longest = 0.04 if dice.random() < 0.9 else 0.4
    listen(alive, lambda: False, began + dice.uniform(0, longest))
    killed = list(alive)
    if writers > 1 and dice.random() < 0.5:
        first = alive.pop(dice.randrange(len(alive)))
        victims.kill([first])
        _go_on(alive, found)
    victims.kill(alive)
    return killed


def _go_on(survivors: Sequence[Victim], found: Findings) -> None:
    """Those who are left must not be held up by the dead one's locks."""
    before = [sum(victim.steps.values()) for victim in survivors]

    def all_went_on() -> bool:
        now = [sum(victim.steps.values()) for victim in survivors]
        return all(later > earlier for earlier, later in zip(before, now, strict=True))

    if not listen(survivors, all_went_on):
        found.errors += 1
        found.notes.append("a writer did not go on after another one was killed")


def _inspect(path: Path, rounds: dict[int, list[Victim]], expected: Expectation) -> Findings:
    """Compare a store with what was acknowledged in all its rounds."""
    told = {
        f"r{number}w{writer}t{thread}": steps
        for number, killed in rounds.items()
        for writer, victim in enumerate(killed)
        for thread, steps in victim.steps.items()
    }
    found = workload.inspect(path, told, expected)
    for victim in rounds[max(rounds)]:
        found.errors += len(victim.errors)
        found.notes += victim.errors
    return found


# -- the matrix ----------------------------------------------------------------------------------


class Row(NamedTuple):
    """One line of the table."""

    name: str
    kills: int
    found: Findings
    points: Counter[str]


def at_every_point(folder: Path, one: Pass, *, step: int = 1, lanes: int = LANES) -> Row:
    """Kill at every point of a pass, or at every `step`th."""
    expected = Expectation(workload.undisturbed())
    found, names, lock = Findings(), Counter[str](), threading.Lock()

    def lane(first: int) -> None:
        with nursery() as victims:
            points = iter(range(first * step, 1_000_000, lanes * step))
            partly, seen = kill_at_points(victims, folder, one, expected, points)
        with lock:
            found.add(partly)
            names.update(seen)

    in_lanes(lane, range(1, lanes + 1), lanes)
    name = f"every {one.trap}, {_counted(one.threads, 'thread')}"
    return Row(name, names.total(), found, names)


def at_random_moments(folder: Path, writers: int, kills: int, seed: int, lanes: int = LANES) -> Row:
    """Kill at so many random moments, with so many processes writing to one file."""
    expected = Expectation(workload.undisturbed())
    found, lock = Findings(), threading.Lock()
    shares = [kills // lanes + (lane < kills % lanes) for lane in range(lanes)]

    def lane(number: int) -> None:
        with nursery() as victims:
            partly = kill_at_random(
                victims, folder, writers, shares[number], expected, seed * 1_000 + number
            )
        with lock:
            found.add(partly)

    in_lanes(lane, range(lanes), lanes)
    return Row(f"random, {_counted(writers, 'process')}", kills, found, Counter())


def in_lanes(work: Callable[[int], None], numbers: Sequence[int], lanes: int) -> None:
    """Do numbered work at so many places at once; an error anywhere is raised here."""
    with ThreadPoolExecutor(lanes) as pool:
        for done in [pool.submit(work, number) for number in numbers]:
            done.result()


def _counted(number: int, noun: str) -> str:
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{number} {noun if number == 1 else plural}"


def table(rows: Sequence[Row]) -> str:
    """The matrix as text, one line a way of killing and one for all."""
    everything = Findings()
    for row in rows:
        everything.add(row.found)
    lines = [*rows, Row("all", sum(row.kills for row in rows), everything, Counter())]
    width = max(len(row.name) for row in lines)
    text = [" " * width + "".join(f"{name:>14}" for name in COLUMNS)]
    text += [f"{row.name:<{width}}" + "".join(f"{n:>14,}" for n in _numbers(row)) for row in lines]
    return "\n".join(text)


def _numbers(row: Row) -> tuple[int, ...]:
    f = row.found
    return (
        row.kills, f.acknowledged, f.lost, f.doubled, f.disordered, f.integrity, f.half_rotations,
        f.illegal, f.errors,
    )  # fmt: skip


def shares_of(kills: int, writers: Sequence[int]) -> list[int]:
    """One process gets half of the kills, the others share the rest."""
    if len(writers) == 1:
        return [kills]
    rest = kills // 2 // (len(writers) - 1)
    return [kills - rest * (len(writers) - 1)] + [rest] * (len(writers) - 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the matrix, print it, and say by the exit status whether anything was lost."""
    parser = argparse.ArgumentParser(prog="python -m hermes_state.testing.crash")
    parser.add_argument("--kills", type=int, default=500, help="random moments (500)")
    parser.add_argument("--writers", default="1,2,4", help="processes on one file (1,2,4)")
    parser.add_argument("--seed", type=int, default=None, help="repeat the dice of an earlier run")
    parser.add_argument("--no-points", action="store_true", help="only random moments")
    chosen = parser.parse_args(arguments)
    seed = random.randrange(1_000_000) if chosen.seed is None else chosen.seed
    writers = [int(number) for number in chosen.writers.split(",")]
    rows: list[Row] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hermes-crash-") as name:
        folder = Path(name)
        if not chosen.no_points:
            for one in (Pass("statement", 1), Pass("statement", 3), Pass("file", 1)):
                rows.append(at_every_point(folder, one))
                _say(f"{rows[-1].name}: {rows[-1].kills} kills")
        for count, share in zip(writers, shares_of(chosen.kills, writers), strict=True):
            rows.append(at_random_moments(folder, count, share, seed))
            _say(f"{rows[-1].name}: {rows[-1].kills} kills")
    _say(f"\n{table(rows)}\n\nseed {seed}, {time.monotonic() - began:.0f} s")
    for note in [note for row in rows for note in row.found.notes][:20]:
        _say(f"  {note}")
    return 0 if all(row.found.is_clean for row in rows) else 1


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
