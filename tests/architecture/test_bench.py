"""The benchmark runs. What it measures is for `make bench` to judge, never for a test."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_small_run_prints_a_table_of_the_chosen_rows() -> None:
    page = ROOT / "docs" / "benchmarks.md"
    before = page.read_bytes() if page.exists() else None

    done = bench("--scale", "0.01", "--only", "append,threads,load,list,route,hook")

    lines = done.stdout.splitlines()
    assert done.returncode in (0, 1), done.stderr  # 1: missed, which a loaded machine may cause
    assert lines[0].split() == ["what", "measured", "limit", "ratio", "must", "reach", "peer"]
    assert [line.split("  ")[0] for line in lines[1:8]] == [
        "durable append, one writer",
        "durable append, 16 threads",
        "durable append, 16 threads, on one processor",
        "load a conversation of 100 messages",
        "list 20 of 1,000 conversations by last activity",
        "one route saved among 1,000",
        "a hook without listeners",
    ]
    assert (page.read_bytes() if page.exists() else None) == before


def test_every_row_has_a_name_to_ask_for() -> None:
    names = bench("--list").stdout.split()

    assert {"version", "sessions-list", "append", "processes", "search", "upkeep"} <= set(names)


def test_an_unknown_row_is_refused() -> None:
    done = bench("--only", "no-such-row")

    assert done.returncode == 2
    assert "no-such-row" in done.stderr
