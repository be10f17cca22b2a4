"""Checkpoints of a large workspace of which a few files changed: their time, and their size."""

import itertools
import os
import statistics
import time
from pathlib import Path

from bench.result import BenchmarkContext, Result
from hermes_agent.checkpoints.shadow import Shadow
from hermes_core.paths import Home
from hermes_core.settings import ToolSettings

FILES, CHANGED = 50_000, 10
_PER_FOLDER = 100
_MAX_BYTES_PER_FILE = 20_000
"""Of a small file that changed: itself and the folders above it, each in a block of the disk."""


def checkpoint(bench: BenchmarkContext) -> list[Result]:
    place, total = bench.place("checkpoint"), bench.size(FILES, _PER_FOLDER * CHANGED)
    work = place / "work"
    _fill(work, total)
    shadow = Shadow(Home(place / "home").create(), work, ToolSettings())
    try:
        began = time.perf_counter()
        shadow.snapshot()
        first_s, first_bytes = time.perf_counter() - began, shadow.size()
        seconds: list[float] = []
        sizes = [shadow.size()]
        for number in range(bench.rounds(15)):
            _change(work, total, number)
            began = time.perf_counter()
            shadow.snapshot()
            seconds.append(time.perf_counter() - began)
            sizes.append(shadow.size())
        # The median, because the first files are packed in between.
        taken = statistics.median(after - before for before, after in itertools.pairwise(sizes))
        began = time.perf_counter()
        shadow.snapshot()
        idle_s = time.perf_counter() - began
    finally:
        shadow.close()
    what = f"checkpoint of {total:,} files, {CHANGED} changed"
    return [
        Result(
            what, statistics.median(seconds), "s", 0.15,
            note=f"slowest {max(seconds) * 1e3:.0f} ms; nothing changed {idle_s * 1e3:.0f} ms; the first"
            f" one {first_s:.1f} s and {first_bytes / 1e6:.1f} MB",
        ),
        Result(f"{what}: disk", taken, "bytes", CHANGED * _MAX_BYTES_PER_FILE),
    ]  # fmt: skip


def _fill(work: Path, total: int) -> None:
    for folder in range(total // _PER_FOLDER):
        inner = work / f"part{folder // 50}" / f"folder{folder}"
        inner.mkdir(parents=True)
        for number in range(_PER_FOLDER):
            (inner / f"file{number}.txt").write_text(f"{folder} {number}\n" * 20, "utf-8")
    os.sync()  # what filling left to write must not be measured


def _change(work: Path, total: int, number: int) -> None:
    folders = total // _PER_FOLDER
    for position in range(CHANGED):
        folder = position * folders // CHANGED
        inner = work / f"part{folder // 50}" / f"folder{folder}"
        (inner / f"file{number % _PER_FOLDER}.txt").write_text(f"changed {number}\n" * 20, "utf-8")
