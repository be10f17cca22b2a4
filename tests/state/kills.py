"""The crash matrix: writers are killed at every write point and at random moments.

After each kill the store is opened and must show, for every writer, all that was acknowledged, in
order, once, and at most the one write that was under way; it must be sound; a rotation is there whole
or not at all. Run it with: python -m tests.state.kills --kills 500
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from tests.state import workload
from tests.state.workload import Expectation, Findings
from tests.support.findings import Row, table
from tests.support.fork_server import (
    ForkServer,
    Worker,
    kill_at_every_point,
    kill_randomly,
    listen,
    processes,
)
from tests.support.worker import Order

MODULE = "tests.state.worker"
ROUNDS_PER_STORE = 5


class Pass(NamedTuple):
    """One scripted pass, killed at every point of a trap."""

    trap: Literal["statement", "file"]
    threads: int


def at_every_point(folder: Path, run: Pass, *, step: int = 1) -> Row[Findings]:
    """Kill at every `step`th point of a pass, each time on a fresh store."""
    expected = Expectation(workload.undisturbed())

    def kill_at(workers: ForkServer, point: int) -> tuple[Findings, Worker]:
        path = folder / f"{run.trap}-{run.threads}-{point}.db"
        threads = [f"r0w0t{number}" for number in range(run.threads)]
        worker = workers.start(Order(str(path), threads, 1, trap=run.trap, kill_at=point))
        found = Findings()
        listen([worker], lambda: worker.is_silent)
        if not worker.is_silent:
            os.kill(worker.pid, signal.SIGKILL)
            found.note("errors", f"point {point} was not reached in time")
        workers.reap(worker)
        found.add(_inspect(path, {0: [worker]}, expected))
        return found, worker

    name = f"every {run.trap}, {run.threads} thread{'s' * (run.threads > 1)}"
    return kill_at_every_point(name, MODULE, Findings(), kill_at, step=step)


def at_random_moments(folder: Path, writers: int, kills: int, seed: int) -> Row[Findings]:
    """Kill at random moments, with several processes writing to one file."""
    expected = Expectation(workload.undisturbed())

    def kill(workers: ForkServer, number: int, share: int) -> Findings:
        return _kill_stores(workers, folder, writers, share, expected, seed * 1_000 + number)

    name = f"random, {processes(writers)}"
    return kill_randomly(name, MODULE, Findings(), kill, kills=kills)


def _kill_stores(
    workers: ForkServer, folder: Path, writers: int, kills: int, expected: Expectation, seed: int
) -> Findings:
    """A store is killed some times over before there is a new one."""
    found, dice = Findings(), random.Random(seed)
    for first in range(0, kills, ROUNDS_PER_STORE):
        path = folder / f"random-{writers}-{seed}-{first}.db"
        history: dict[int, list[Worker]] = {}
        total = Findings()
        for number in range(min(ROUNDS_PER_STORE, kills - first)):
            history[number] = _one_round(workers, path, writers, number, dice, total)
            latest = _inspect(path, history, expected)
            if not latest.is_clean:
                found.notes.append(f"seed {seed}, store {first}, round {number}")
            total.acknowledged = latest.acknowledged
            latest.acknowledged = 0  # counted once per store, at its end
            found.add(latest)
        found.add(total)
        found.add(workload.search_finds_all(path))
    return found


def _one_round(
    workers: ForkServer, path: Path, writers: int, number: int, dice: random.Random, found: Findings
) -> list[Worker]:
    """Start writers, and kill them: all at once, or one first and the rest after they went on."""
    began = time.monotonic()
    alive = [
        workers.start(
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
            found.note("errors", "nothing was acknowledged in time")
        began = time.monotonic()
    longest = 0.04 if dice.random() < 0.9 else 0.4
    listen(alive, lambda: False, began + dice.uniform(0, longest))
    killed = list(alive)
    if writers > 1 and dice.random() < 0.5:
        first = alive.pop(dice.randrange(len(alive)))
        workers.kill([first])
        _continue(alive, found)
    workers.kill(alive)
    return killed


def _continue(survivors: Sequence[Worker], found: Findings) -> None:
    """The locks of a dead writer must not hold up the others."""
    before = [sum(worker.steps.values()) for worker in survivors]

    def all_went_on() -> bool:
        now = [sum(worker.steps.values()) for worker in survivors]
        return all(later > earlier for earlier, later in zip(before, now, strict=True))

    if not listen(survivors, all_went_on):
        found.note("errors", "a writer did not go on after another one was killed")


def _inspect(path: Path, rounds: dict[int, list[Worker]], expected: Expectation) -> Findings:
    """Compare a store with what was acknowledged in all its rounds."""
    acknowledged = {
        f"r{number}w{writer}t{thread}": steps
        for number, killed in rounds.items()
        for writer, worker in enumerate(killed)
        for thread, steps in worker.steps.items()
    }
    found = workload.inspect(path, acknowledged, expected)
    for worker in rounds[max(rounds)]:
        for error in worker.errors:
            found.note("errors", error)
    return found


def shares_of(kills: int, writers: Sequence[int]) -> list[int]:
    """One process gets half of the kills, the others share the rest."""
    if len(writers) == 1:
        return [kills]
    rest = kills // 2 // (len(writers) - 1)
    return [kills - rest * (len(writers) - 1)] + [rest] * (len(writers) - 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the matrix, print it, and say by the exit status whether anything was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.state.kills")
    parser.add_argument("--kills", type=int, default=500, help="random moments (500)")
    parser.add_argument("--writers", default="1,2,4", help="processes on one file (1,2,4)")
    parser.add_argument("--seed", type=int, default=None, help="repeat the dice of an earlier run")
    parser.add_argument("--no-points", action="store_true", help="only random moments")
    chosen = parser.parse_args(arguments)
    seed = random.randrange(1_000_000) if chosen.seed is None else chosen.seed
    writers = [int(number) for number in chosen.writers.split(",")]
    rows: list[Row[Findings]] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hermes-crash-") as name:
        folder = Path(name)
        if not chosen.no_points:
            for run in (Pass("statement", 1), Pass("statement", 3), Pass("file", 1)):
                rows.append(at_every_point(folder, run))
                _print(f"{rows[-1].name}: {rows[-1].kills} kills")
        for count, share in zip(writers, shares_of(chosen.kills, writers), strict=True):
            rows.append(at_random_moments(folder, count, share, seed))
            _print(f"{rows[-1].name}: {rows[-1].kills} kills")
    _print(f"\n{table(rows)}\n\nseed {seed}, {time.monotonic() - began:.0f} s")
    for note in [note for row in rows for note in row.found.notes][:20]:
        _print(f"  {note}")
    return 0 if all(row.found.is_clean for row in rows) else 1


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
