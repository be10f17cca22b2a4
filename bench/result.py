"""One row of the table, and how two things are measured side by side on a noisy machine."""

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Unit = Literal["s", "/s", "bytes", "ratio", "count"]


@dataclass(frozen=True)
class Result:
    """What was measured, beside the bare limit of the same run."""

    what: str
    measured: float
    unit: Unit
    must: float
    limit: float | None = None
    """The bare limit in the same unit; without one, `must` is about `measured` itself."""
    at_least: bool = False
    """Whether `must` is a floor and not a ceiling."""
    against: str = ""
    """What the bare limit is."""
    note: str = ""
    peer: float | None = None
    peer_note: str = ""
    failure: str = ""
    """Why the row counts as missed, whatever the numbers say."""
    reason: str = ""
    """Why the target is missed, where that is understood; shown only when it is."""

    @property
    def ratio(self) -> float | None:
        return self.measured / self.limit if self.limit else None

    @property
    def is_meaningful(self) -> bool:
        """Whether anything was measured: less than the smallest unit counts as nothing."""
        least = 1 if self.unit in ("bytes", "count") else 1e-10
        return self.measured >= least and (self.limit is None or self.limit >= least)

    @property
    def verdict(self) -> str:
        """ "ok", or that the target is missed and why."""
        if self.ok:
            return "ok"
        return f"MISSED: {self.failure or self.reason or 'the reason is not known yet'}"

    @property
    def ok(self) -> bool:
        if self.failure or not self.is_meaningful:
            return False
        reached = self.measured if self.ratio is None else self.ratio
        return reached >= self.must if self.at_least else reached <= self.must


@dataclass
class BenchmarkContext:
    """What a row needs to run."""

    folder: Path
    scale: float = 1.0
    peer: Callable[..., dict[str, Any]] | None = None
    """Measures hermes-agent: a verb and its sizes in, numbers out."""
    peer_failures: list[str] = field(default_factory=list)

    def size(self, full: int, least: int = 1) -> int:
        """A number of things, shrunk by --scale."""
        return max(least, round(full * self.scale))

    def rounds(self, full: int) -> int:
        return full if self.scale >= 1 else max(1, min(full, 3))

    def place(self, name: str) -> Path:
        """A folder of its own for one row."""
        path = self.folder / name
        path.mkdir()
        return path

    def ask_peer(self, verb: str, **sizes: int | str) -> dict[str, Any]:
        """The peer's numbers; nothing when there is no peer or it fails at this."""
        if self.peer is None:
            return {}
        try:
            return self.peer(verb, folder=str(self.place(f"peer-{verb}")), **sizes)
        except RuntimeError as error:
            self.peer_failures.append(f"{verb}: {error}")
            return {}


def side_by_side(
    rounds: int, *sides: Callable[[], float], before: Callable[[], object] = lambda: None
) -> list[float]:
    """Run the sides in turn, round after round; the median of each one's own numbers."""
    found: list[list[float]] = [[] for _ in sides]
    for _ in range(rounds):
        for numbers, side in zip(found, sides, strict=True):
            before()
            gc.collect()
            numbers.append(side())
    return [statistics.median(numbers) for numbers in found]


def timed(fn: Callable[[], object], times: int) -> Callable[[], float]:
    """A side that calls `fn` so often and gives the seconds of a call."""

    def side() -> float:
        began = time.perf_counter()
        for _ in range(times):
            fn()
        return (time.perf_counter() - began) / times

    return side


def percentile(numbers: list[float], share: float) -> float:
    """The value that `share` of the numbers do not exceed."""
    return sorted(numbers)[min(len(numbers) - 1, int(len(numbers) * share))]
