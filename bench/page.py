"""The table on the terminal and the page docs/benchmarks.md."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path

import apsw

from bench.result import Result

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"

_HEADER = ("what", "measured", "limit", "ratio", "must reach", "", "peer")
_SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (0.0, "ns"))


def quantity(value: float, unit: str) -> str:
    """A number as a person reads it."""
    if unit == "/s":
        return f"{value:,.0f}/s"
    if unit == "bytes":
        return f"{value:,.0f} bytes"
    if unit == "count":
        return f"{value:,.0f}"
    if unit == "ratio":
        return f"{value:.2f} ×"
    size, name = next(step for step in _SCALES if value >= step[0])
    return f"{value / (size or 1e-9):.3g} {name}"


def _cells(result: Result) -> tuple[str, ...]:
    sign = "≥" if result.at_least else "≤"
    bound = f"{result.must:.3g} ×" if result.limit else quantity(result.must, result.unit)
    peer = "–"
    if result.peer is not None:
        peer = quantity(result.peer, result.unit)
        if result.limit:
            times = result.peer / result.limit
            peer += f" ({times:,.0f} ×)" if times >= 100 else f" ({times:.2g} ×)"
        peer += f" {result.peer_note}".rstrip()
    return (
        result.what,
        quantity(result.measured, result.unit),
        quantity(result.limit, result.unit) if result.limit else "–",
        f"{result.ratio:.2f}" if result.ratio is not None else "–",
        f"{sign} {bound}",
        result.verdict,
        peer,
    )


def table(results: list[Result]) -> str:
    """The results in columns."""
    lines = [_HEADER, *(_cells(result) for result in results)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADER))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _markdown(results: list[Result]) -> list[str]:
    lines = [_HEADER, ("---",) * len(_HEADER), *(_cells(result) for result in results)]
    return [f"| {' | '.join(line)} |" for line in lines]


def write(
    results: list[Result], peer: str | None, seconds: float, peer_failures: list[str]
) -> None:
    """Write the page anew; a row that measured nothing is named, not published."""
    empty = [result.what for result in results if not result.is_meaningful]
    results = [result for result in results if result.is_meaningful]
    command = f"make bench PEER={peer}" if peer else "make bench"
    notes = [
        f"- {result.what}: " + "; ".join(
            filter(None, (result.against and f"the limit is {result.against}", result.note))
        )
        for result in results
        if result.against or result.note
    ]  # fmt: skip
    lines = [
        "# Benchmarks",
        "",
        f"Written by `{command}`; do not edit. Each row is measured beside its bare limit in the same",
        "run, so the ratio says something on any machine and the absolute numbers only on this one.",
        "",
        f"- date: {datetime.now(UTC):%Y-%m-%d}, {seconds / 60:.0f} minutes",
        f"- machine: {os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        f"- Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}",
        f"- peer: hermes-agent {peer}" if peer else "- peer: not measured",
        "",
        *_markdown(results),
        "",
        "## Notes",
        "",
        *notes,
        *(f"- {what}: not measured in this run" for what in empty),
    ]
    if peer:
        lines.append(
            "- peer: its ratio is to the same bare limit; smaller sizes are stated beside it"
        )
        lines += [f"- peer, not measured: {failure}" for failure in peer_failures]
    PAGE.write_text("\n".join(lines) + "\n", "utf-8")
