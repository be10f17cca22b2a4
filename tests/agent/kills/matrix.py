"""The matrix: agents killed at every write point and at random moments, then left to recover."""

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tests.agent.kills import inspection
from tests.agent.kills.inspection import Findings
from tests.support.findings import Row
from tests.support.fork_server import (
    ForkServer,
    Worker,
    kill_at_every_point,
    kill_randomly,
    listen,
    processes,
)
from tests.support.worker import Order

MODULE = "tests.agent.kills.worker"
TURNS = 3
"""Turns of a conversation that is killed at every point: enough for a compaction on the way."""
LONG = 1_000
ROUNDS = 4
"""Kills of one store before the last agent is left to recover it."""


def at_every_point(
    folder: Path, trap: Literal["statement", "file"], *, step: int = 1
) -> Row[Findings]:
    """Kill an agent at every point of its turns, each time on a fresh store, and let it recover."""

    def kill_at(workers: ForkServer, point: int) -> tuple[Findings, Worker]:
        database = folder / f"{trap}-{point}" / "state.db"
        database.parent.mkdir()
        killed = workers.start(Order(str(database), ["a"], TURNS, trap=trap, kill_at=point))
        listen([killed], lambda: killed.is_silent)
        workers.reap(killed)
        return _recovered(workers, database, [killed], ["a"], TURNS), killed

    return kill_at_every_point(f"every {trap}", MODULE, Findings(), kill_at, step=step)


def _recovered(
    workers: ForkServer,
    database: Path,
    killed: Sequence[Worker],
    names: Sequence[str],
    turns: int,
    acknowledged: dict[str, int] | None = None,
) -> Findings:
    """Start an agent that nobody kills, and look at what it leaves."""
    acknowledged = dict(acknowledged or {})
    last = workers.start(Order(str(database), list(names), turns))
    listen([last], lambda: last.is_silent)
    workers.reap(last)
    for worker in (*killed, last):
        for number, steps in worker.steps.items():
            name = names[number]
            acknowledged[name] = max(steps, acknowledged.get(name, 0))
    found = inspection.inspect(database, acknowledged)
    for worker in (*killed, last):
        for error in worker.errors:
            found.note("errors", error)
    if not last.is_done:
        found.note("errors", f"{database.parent.name}: the last agent did not come to its end")
    return found


def at_random_moments(folder: Path, count: int, kills: int, seed: int) -> Row[Findings]:
    """Kill at random moments; a store is killed some times over before it may recover."""

    def kill(workers: ForkServer, number: int, share: int) -> Findings:
        found, dice = Findings(), random.Random(seed * 1_000 + number)
        for first in range(0, share, ROUNDS):
            rounds = min(ROUNDS, share - first)
            place = folder / f"random-{count}-{seed}-{number}-{first}"
            partly = _one_store(workers, place, count, rounds, dice)
            if not partly.is_clean:
                partly.notes.append(f"seed {seed}, share {number}, store {first}")
            found.add(partly)
        return found

    return kill_randomly(f"random, {processes(count)}", MODULE, Findings(), kill, kills=kills)


def _one_store(
    workers: ForkServer, place: Path, count: int, rounds: int, dice: random.Random
) -> Findings:
    place.mkdir()
    database = place / "state.db"
    names = [[f"p{process}t{thread}" for thread in range(2)] for process in range(count)]
    acknowledged: dict[str, int] = {}
    found = Findings()
    for _ in range(rounds):
        alive = [workers.start(Order(str(database), own, LONG)) for own in names]
        if dice.random() < 0.9:
            listen(alive, lambda v=alive: any(worker.steps or worker.errors for worker in v))
        listen(alive, lambda: False, time.monotonic() + dice.uniform(0, 0.15))
        workers.kill(alive)
        for worker, own in zip(alive, names, strict=True):
            for number, steps in worker.steps.items():
                acknowledged[own[number]] = max(steps, acknowledged.get(own[number], 0))
            for error in worker.errors:
                found.note("errors", error)
    everybody = [name for own in names for name in own]
    turns = max((steps + 1) // 2 for steps in acknowledged.values()) if acknowledged else 1
    found.add(_recovered(workers, database, [], everybody, turns, acknowledged))
    return found
