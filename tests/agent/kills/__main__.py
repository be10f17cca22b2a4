"""Runs the crash matrix over whole turns: python -m tests.agent.kills --kills 500"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.agent.kills import matrix
from tests.agent.kills.inspection import Findings
from tests.support.findings import Row, table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, print the table, and say by the exit status whether anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.agent.kills")
    parser.add_argument("--kills", type=int, default=500, help="random moments (500)")
    parser.add_argument("--seed", type=int, default=None, help="repeat the dice of an earlier run")
    parser.add_argument("--no-points", action="store_true", help="only random moments")
    chosen = parser.parse_args(arguments)
    seed = random.randrange(1_000_000) if chosen.seed is None else chosen.seed
    began = time.monotonic()
    rows: list[Row[Findings]] = []
    with tempfile.TemporaryDirectory(prefix="hermes-turns-") as name:
        folder = Path(name)
        if not chosen.no_points:
            rows += [
                matrix.at_every_point(folder, "statement"),
                matrix.at_every_point(folder, "file"),
            ]
        half = chosen.kills // 2
        rows.append(matrix.at_random_moments(folder, 1, chosen.kills - half, seed))
        rows.append(matrix.at_random_moments(folder, 2, half, seed))
    sys.stdout.write(f"{table(rows)}\n\nseed {seed}, {time.monotonic() - began:.0f} s\n")
    for note in [note for row in rows for note in row.found.notes][:20]:
        sys.stdout.write(f"  {note}\n")
    return 0 if all(row.found.is_clean for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
