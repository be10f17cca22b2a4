"""Runs the default tests and prints branch coverage per part; arguments go to pytest.

It takes several times as long as the tests alone: the fast tracer of coverage needs Python 3.14 for
branches. Child processes are measured too, unless they are killed. CI does not run it.
"""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.marks import SOURCE, part_of

COVERAGE = [sys.executable, "-m", "coverage"]


def main(arguments: list[str]) -> int:
    """Run, print the table, and give back the exit status of the tests."""
    subprocess.run([*COVERAGE, "erase"], check=True)
    tests = subprocess.call(
        [*COVERAGE, "run", "-m", "pytest", "-n", "auto", "--timeout", "300", *arguments]
    )
    subprocess.run([*COVERAGE, "combine", "-q"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "coverage.json"
        subprocess.run([*COVERAGE, "json", "-q", "-o", str(page)], check=True)
        files = json.loads(page.read_text("utf-8"))["files"]
    counts: dict[str, Counter[str]] = {}
    for name, found in files.items():
        part = part_of(Path(name).resolve().relative_to(SOURCE))
        for key in ("all", part):
            counts.setdefault(key, Counter()).update(found["summary"])
    print(f"{'':18} {'branches':>9} {'covered':>7} {'lines':>7} {'covered':>7}")
    for part, count in sorted(counts.items()):
        branches, lines = count["num_branches"], count["num_statements"]
        print(
            f"{part:18} {branches:9,} {_share(count['covered_branches'], branches):>7}"
            f" {lines:7,} {_share(count['covered_lines'], lines):>7}"
        )
    return tests


def _share(covered: int, every: int) -> str:
    return f"{covered / every:.1%}" if every else "–"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
