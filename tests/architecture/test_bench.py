"""The benchmark runs. What it measures is for `make bench` to judge, never for a test."""

import subprocess
import sys
from pathlib import Path

import pytest
from bench import page
from bench.result import Result, Unit

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.e2e
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


def test_a_row_that_measured_nothing_is_named_and_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / "benchmarks.md")
    empty, full = Result("memory of a turn", 0, "bytes", 10), Result("append", 5, "s", 10)

    page.write([empty, full], None, 1.0, [])

    text = page.PAGE.read_text("utf-8")
    assert "0 bytes" not in text
    assert "- memory of a turn: not measured in this run" in text
    assert "| append | 5 s |" in text
    assert not empty.ok


@pytest.mark.parametrize(("measured", "unit"), [(0.4, "bytes"), (0.4, "count"), (1e-12, "s")])
def test_a_row_that_would_read_as_zero_counts_as_not_measured(measured: float, unit: Unit) -> None:
    assert page.quantity(measured, unit).startswith("0")
    assert not Result("a", measured, unit, 10).is_meaningful
    assert not Result("a", 5, unit, 10, limit=measured).is_meaningful


def test_a_missed_target_says_why_in_its_row() -> None:
    assert Result("a", 5, "s", 10, reason="slow disk").verdict == "ok"
    assert Result("a", 50, "s", 10, reason="slow disk").verdict == "MISSED: slow disk"
    assert Result("a", 50, "s", 10).verdict == "MISSED: the reason is not known yet"
    assert Result("a", 5, "s", 10, failure="3 messages lost").verdict == "MISSED: 3 messages lost"
