"""Clean-up of a store with very many sessions, while another process goes on writing to it.

What the other process waits for is its turn to write, which the clean-up has while it works. How long
the disk then takes to sync what that process wrote is shown beside it: a shared disk stalls by itself.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from bench import raw
from bench.processes import context
from bench.result import BenchmarkContext, Result, percentile
from bench.text import Writer
from bench.threads import on_worker
from hermes_state import SessionDB
from hermes_state.ledger import messages
from hermes_state.store import Tx
from hermes_state.values import NewMessage

SESSIONS = 300_000
_DAY_S = 86_400.0


class _Append(NamedTuple):
    """How long one append of the other process took."""

    turn_s: float
    """Until it could write."""
    whole_s: float
    """Until it was on disk."""


class _Plan(NamedTuple):
    """How many sessions of each kind there are."""

    old: int
    ghosts: int
    orphans: int
    recent: int


def clean_up(bench: BenchmarkContext) -> list[Result]:
    path = bench.place("upkeep") / "state.db"
    total = bench.size(SESSIONS, 100)
    plan = _Plan(total * 4 // 10, total // 10, total // 20, total - total * 6 // 10)
    _fill(path, plan)
    failures: list[str] = []
    os.sync()  # what filling left to write must not be measured
    quiet = _beside_writer(path, lambda: time.sleep(2 * min(1, bench.scale)), failures)
    results = []
    with SessionDB(path) as db:
        for what, work, expected in (
            ("prune", lambda: db.prune_sessions(older_than_days=90), plan.old),
            ("ghost clean-up", db.prune_empty_ghost_sessions, plan.ghosts),
            ("orphan clean-up", db.finalize_orphaned_compression_sessions, plan.orphans),
        ):
            failures = []
            done: list[int] = []
            began = time.perf_counter()
            appends = _beside_writer(path, lambda w=work, d=done: d.append(w()), failures)
            seconds = time.perf_counter() - began
            if done != [expected]:
                failures.append(f"handled {done}, not {expected}")
            results.append(
                Result(
                    f"{what} at {total:,} sessions: another writer waits",
                    max(a.turn_s for a in appends), "s", 0.1,
                    note=f"{expected:,} handled in {seconds:.1f} s; {len(appends):,} appends beside it,"
                    f" p99 {percentile([a.turn_s for a in appends], 0.99) * 1e3:.1f} ms; until it was on"
                    f" disk, the slowest took {_slowest_ms(appends):.1f} ms, and"
                    f" {_slowest_ms(quiet):.1f} ms at rest",
                    failure="; ".join(failures),
                )
            )  # fmt: skip
    return results


def _slowest_ms(appends: list[_Append]) -> float:
    return max(a.whole_s for a in appends) * 1e3


def _beside_writer(path: Path, work: Any, failures: list[str]) -> list[_Append]:
    """Run `work` while another process appends; how long each append of it took."""
    stop, ready, results = context.Event(), context.Event(), context.Queue()
    process = context.Process(target=_write_on, args=(path, ready, stop, results))
    process.start()
    ready.wait()
    try:
        on_worker(work)
    except Exception as error:  # noqa: BLE001 -- shown as the row's failure
        failures.append(repr(error))
    stop.set()
    found = results.get(timeout=120)
    process.join()
    if isinstance(found, str):
        failures.append(f"the other writer failed: {found}")
        return [_Append(0.0, 0.0)]
    return found


def _write_on(path: Path, ready: Any, stop: Any, results: Any) -> None:
    text = Writer().text(500)
    message = NewMessage("user", text)
    appends: list[_Append] = []

    def append(conn: Tx) -> float:
        turn = time.perf_counter()
        messages.append(conn, "busy", message)
        return turn

    def work() -> None:
        while not stop.is_set():
            began = time.perf_counter()
            turn = db.write(append)
            appends.append(_Append(turn - began, time.perf_counter() - began))
            ready.set()
            time.sleep(0.001)

    try:
        with SessionDB(path) as db:
            on_worker(work)
        results.put(appends)
    except Exception as error:  # noqa: BLE001 -- shown as the row's failure
        ready.set()
        results.put(repr(error))


def _fill(path: Path, plan: _Plan) -> None:
    conn = raw.store(path, 0)
    raw.add_sessions(conn, ["busy"])
    now = time.time()
    insert = (
        "INSERT INTO sessions (id, conversation_id, parent_session_id, relation, depth, is_tip,"
        " source, started_at, last_active_at, ended_at, end_reason)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
    with conn:
        conn.executemany(insert, _sessions(plan, now))
    _fill_messages(conn, plan, now)
    conn.close()


def _sessions(plan: _Plan, now: float) -> Iterator[tuple]:
    long_ago, lately = now - 200 * _DAY_S, now - 20 * _DAY_S
    for n in range(plan.old):
        id_ = f"old{n}"
        yield id_, id_, None, None, 0, 1, "cli", long_ago, long_ago, long_ago, "user_exit"
    for n in range(plan.ghosts):
        id_ = f"ghost{n}"
        yield id_, id_, None, None, 0, 1, "tui", lately, lately, lately, "user_exit"
    for n in range(plan.orphans):
        id_ = f"full{n}"
        yield id_, id_, None, None, 0, 0, "cli", lately, lately, lately, "compression"
        yield f"orphan{n}", id_, id_, "continuation", 1, 1, "cli", lately, lately, None, None
    for n in range(plan.recent):
        id_ = f"recent{n}"
        yield id_, id_, None, None, 0, 1, "cli", now, now, None, None


def _fill_messages(conn: apsw.Connection, plan: _Plan, now: float) -> None:
    writer = Writer()
    texts = [writer.text(200) for _ in range(1_000)]

    def messages() -> Iterator[tuple]:
        for n in range(plan.old):
            for role in ("user", "assistant"):
                yield raw.row(f"old{n}", texts[n % 1_000], role, now - 200 * _DAY_S)
        for n in range(plan.orphans):
            yield raw.row(f"orphan{n}", texts[n % 1_000], "user", now - 20 * _DAY_S)

    raw.fill(conn, messages())
