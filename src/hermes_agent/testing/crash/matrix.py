"""The matrix: agents killed at every write point and at random moments, then left to recover."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from hermes_agent.testing.crash import inspection
from hermes_agent.testing.crash.inspection import Findings
from hermes_state.testing.crash import LANES, Nursery, Victim, in_lanes, listen, nursery
from hermes_state.testing.victim import Order

MODULE = "hermes_agent.testing.crash.victim"
TURNS = 3
"""Turns of a conversation that is killed at every point: enough for a compaction on the way."""
LONG = 1_000
ROUNDS = 4
"""Kills of one store before the last agent is left to recover it."""

COLUMNS = ("kills", "acknowledged", "turns", "answered", "effects", "unknown", "lost", "repeated",
           "mistold", "unfinished", "exceeded", "invalid", "integrity", "errors")  # fmt: skip


class Row(NamedTuple):
    """One line of the table."""

    name: str
    kills: int
    found: Findings
    points: Counter[str]


def at_every_point(
    folder: Path, trap: Literal["statement", "file"], *, step: int = 1, lanes: int = LANES
) -> Row:
    """Kill an agent at every point of its turns, each time on a fresh store, and let it recover."""
    found, names, lock = Findings(), Counter[str](), threading.Lock()

    def lane(first: int) -> None:
        with nursery(MODULE) as victims:
            points = range(first * step, 1_000_000, lanes * step)
            partly, seen = _kill_at_points(victims, folder, trap, points)
        with lock:
            found.add(partly)
            names.update(seen)

    in_lanes(lane, range(1, lanes + 1), lanes)
    return Row(f"every {trap}", names.total(), found, names)


def _kill_at_points(
    victims: Nursery, folder: Path, trap: Literal["statement", "file"], points: Iterable[int]
) -> tuple[Findings, Counter[str]]:
    found, names = Findings(), Counter[str]()
    for point in points:
        database = folder / f"{trap}-{point}" / "state.db"
        database.parent.mkdir()
        order = Order(str(database), ["a"], TURNS, trap=trap, kill_at=point)
        killed = victims.start(order)
        listen([killed], lambda v=killed: v.is_silent)
        victims.bury(killed)
        found.add(_recovered(victims, database, [killed], ["a"], TURNS))
        if killed.is_done:
            break
        names[killed.point] += 1
    return found, names


def _recovered(
    victims: Nursery,
    database: Path,
    killed: Sequence[Victim],
    names: Sequence[str],
    turns: int,
    told: dict[str, int] | None = None,
) -> Findings:
    """Start an agent that nobody kills, and look at what it leaves."""
    told = dict(told or {})
    last = victims.start(Order(str(database), list(names), turns))
    listen([last], lambda: last.is_silent)
    victims.bury(last)
    for victim in (*killed, last):
        for number, steps in victim.steps.items():
            name = names[number]
            told[name] = max(steps, told.get(name, 0))
    found = inspection.inspect(database, told)
    for victim in (*killed, last):
        for error in victim.errors:
            found.note("errors", error)
    if not last.is_done:
        found.note("errors", f"{database.parent.name}: the last agent did not come to its end")
    return found


def at_random_moments(
    folder: Path, processes: int, kills: int, seed: int, lanes: int = LANES
) -> Row:
    """Kill at so many random moments; a store is killed some times over before it may recover."""
    found, lock = Findings(), threading.Lock()
    shares = [kills // lanes + (lane < kills % lanes) for lane in range(lanes)]

    def lane(number: int) -> None:
        dice = random.Random(seed * 1_000 + number)
        with nursery(MODULE) as victims:
            for first in range(0, shares[number], ROUNDS):
                rounds = min(ROUNDS, shares[number] - first)
                place = folder / f"random-{processes}-{seed}-{number}-{first}"
                partly = _one_store(victims, place, processes, rounds, dice)
                if not partly.is_clean:
                    partly.notes.append(f"seed {seed}, lane {number}, store {first}")
                with lock:
                    found.add(partly)

    in_lanes(lane, range(lanes), lanes)
    name = "random, 1 process" if processes == 1 else f"random, {processes} processes"
    return Row(name, kills, found, Counter())


def _one_store(
    victims: Nursery, place: Path, processes: int, rounds: int, dice: random.Random
) -> Findings:
    place.mkdir()
    database = place / "state.db"
    names = [[f"p{process}t{thread}" for thread in range(2)] for process in range(processes)]
    told: dict[str, int] = {}
    found = Findings()
    for _ in range(rounds):
        alive = [victims.start(Order(str(database), own, LONG)) for own in names]
        if dice.random() < 0.9:
            listen(alive, lambda v=alive: any(one.steps or one.errors for one in v))
        listen(alive, lambda: False, time.monotonic() + dice.uniform(0, 0.15))
        victims.kill(alive)
        for victim, own in zip(alive, names, strict=True):
            for number, steps in victim.steps.items():
                told[own[number]] = max(steps, told.get(own[number], 0))
            for error in victim.errors:
                found.note("errors", error)
    everybody = [name for own in names for name in own]
    turns = max((steps + 1) // 2 for steps in told.values()) if told else 1
    found.add(_recovered(victims, database, [], everybody, turns, told))
    return found


def table(rows: Sequence[Row]) -> str:
    """The matrix as text, one line a way of killing and one for all."""
    everything = Findings()
    for row in rows:
        everything.add(row.found)
    lines = [*rows, Row("all", sum(row.kills for row in rows), everything, Counter())]
    width = max(len(row.name) for row in lines)
    text = [" " * width + "".join(f"{name:>13}" for name in COLUMNS)]
    for row in lines:
        numbers = [row.kills, *(getattr(row.found, name) for name in COLUMNS[1:])]
        text.append(f"{row.name:<{width}}" + "".join(f"{n:>13,}" for n in numbers))
    return "\n".join(text)
