"""Runs the chaos: python -m tests.gateway.chaos --messages 1000 --kills 100 --seed 7

A real mail server and a real homeserver take part where this machine has them.
"""

import argparse
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.gateway.chaos import verdict
from tests.gateway.chaos.run import Report, run
from tests.gateway.chaos.servers import everywhere

_MAX_LINES = 30


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, print the table, and say by the exit status whether anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.gateway.chaos")
    parser.add_argument("--messages", type=int, default=150, help="what people write (150)")
    parser.add_argument("--talks", type=int, default=50, help="conversations (50)")
    parser.add_argument("--kills", type=int, default=12, help="of the gateway (12)")
    parser.add_argument("--seed", type=int, default=None, help="repeat the dice of an earlier run")
    parser.add_argument("--log", type=Path, default=Path(os.devnull), help="takes what it says")
    chosen = parser.parse_args(arguments)
    seed = random.randrange(1_000_000) if chosen.seed is None else chosen.seed
    report = run(
        everywhere(),
        messages=chosen.messages,
        talks=chosen.talks,
        kills=chosen.kills,
        seed=seed,
        log=chosen.log,
    )
    sys.stdout.write(f"{summary_of(report)}\nseed {seed}, {report.seconds:.0f} s\n")
    return 1 if report.found.wrong else 0


def summary_of(report: Report) -> str:
    """A report as text."""
    found = report.found
    lines = [
        verdict.table(found),
        "",
        f"{report.kills.total()} kills: {_counted(report.kills)}",
        f"faults: {_counted(report.faults)}",
        f"lives that ended by themselves: {report.ended_alone} because the disk was full or the store"
        f" locked, {report.stops} because they were asked to; notices of a stop: {found.notices}",
        f"calls of the model: {report.model_calls}; compactions: {report.compactions}",
        f"wrong: {len(found.wrong)}",
        *(f"  {problem}" for problem in found.wrong[:_MAX_LINES]),
    ]
    if not report.has_disk:
        lines.insert(-1, "the disk was never full: mounting a small one needs root")
    return "\n".join(lines)


def _counted(counts: "dict[str, int]") -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(main())
