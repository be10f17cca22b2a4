"""Several processes that write one file at the same time."""

import multiprocessing
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import raw
from bench.result import BenchmarkContext, Result, percentile, side_by_side
from bench.text import Writer
from bench.threads import on_worker
from hermes_state import SessionDB
from hermes_state.ledger import messages as message_ledger

PROCESSES = 4
MESSAGES = 10_000

context = multiprocessing.get_context("spawn")


def four(bench: BenchmarkContext) -> list[Result]:
    """At full speed, as the requirement says; and with pauses, as conversations write.

    At full speed the p99 of raw SQLite flatters: one process keeps the lock while the others starve
    for seconds, which is few long waits among thousands of short ones. So the longest wait is noted.
    """
    return [
        _row(bench, "at full speed", bench.size(MESSAGES, 20), 0.0),
        _row(bench, "with pauses of up to 2 ms", bench.size(MESSAGES // 4, 20), 0.002),
    ]


def _row(bench: BenchmarkContext, how: str, each: int, pause_s: float) -> Result:
    folder = bench.place(f"processes-{pause_s}")
    rounds = 1 if bench.scale < 1 else 2
    ours, limit = folder / "state.db", folder / "raw.db"
    raw.store(limit, PROCESSES).close()
    with SessionDB(ours) as db:
        for number in range(PROCESSES):
            db.create_session(f"s{number}", "cli")
    failures: list[str] = []
    longest = {_append_ours: 0.0, _append_raw: 0.0}
    portion = each // rounds

    def side(work: Callable[..., None], path: Path) -> Callable[[], float]:
        def measure() -> float:
            waits = _waits(work, path, portion, pause_s, failures)
            longest[work] = max(longest[work], *waits)
            return percentile(waits, 0.99)

        return measure

    measured, best = side_by_side(rounds, side(_append_ours, ours), side(_append_raw, limit))
    with SessionDB(ours) as db:
        missing = PROCESSES * portion * rounds - db.read(message_ledger.count)
        in_order = all(_numbers(db, f"s{number}", portion, rounds) for number in range(PROCESSES))
        failures += db.check()
    if missing or not in_order:
        failures.append(f"{missing} messages lost or out of order")
    return Result(
        f"{PROCESSES} processes on one file {how}, {portion * rounds:,} messages each, p99",
        measured, "s", 3, best, against="raw SQLite in as many processes",
        failure="; ".join(failures)[:200],
        note="no error, every message there, once and in order; longest wait"
        f" {longest[_append_ours] * 1e3:,.0f} ms, of raw SQLite {longest[_append_raw] * 1e3:,.0f} ms",
    )  # fmt: skip


def _numbers(db: SessionDB, session_id: str, portion: int, rounds: int) -> bool:
    found = [int(m["content"].split()[0]) for m in db.get_messages_as_conversation(session_id)]
    return found == list(range(portion)) * rounds


def _waits(
    work: Callable[..., None], path: Path, messages: int, pause_s: float, failures: list[str]
) -> list[float]:
    """How long each append took, over all processes."""
    results: Any = context.Queue()
    gate = context.Barrier(PROCESSES)
    running = [
        context.Process(target=work, args=(path, number, messages, pause_s, gate, results))
        for number in range(PROCESSES)
    ]
    for process in running:
        process.start()
    waits: list[float] = []
    for _ in running:
        found = results.get(timeout=300)
        if isinstance(found, str):
            failures.append(found)
        else:
            waits += found
    for process in running:
        process.join()
    return waits or [0.0, 0.0]


def _append_ours(
    path: Path, number: int, messages: int, pause_s: float, gate: Any, results: Any
) -> None:
    with SessionDB(path) as db:
        append = db.append_message
        session_id = f"s{number}"
        _report(
            lambda text: append(session_id, "user", text), number, messages, pause_s, gate, results
        )


def _append_raw(
    path: Path, number: int, messages: int, pause_s: float, gate: Any, results: Any
) -> None:
    conn = raw.reopened(path)
    session_id = f"s{number}"
    _report(
        lambda text: raw.append(conn, session_id, text), number, messages, pause_s, gate, results
    )
    conn.close()


def _report(
    append: Callable[[str], object],
    number: int,
    messages: int,
    pause_s: float,
    gate: Any,
    results: Any,
) -> None:
    writer, chance = Writer(number), random.Random(number)
    texts = [f"{position} {writer.text(490)}" for position in range(messages)]

    def work() -> list[float]:
        gate.wait()
        waits: list[float] = []
        for text in texts:
            began = time.perf_counter()
            append(text)
            waits.append(time.perf_counter() - began)
            if pause_s:
                time.sleep(chance.uniform(0, pause_s))
        return waits

    try:
        results.put(on_worker(work))
    except Exception as error:  # noqa: BLE001 -- the parent shows it as the row's failure
        results.put(repr(error))
