"""Durable appends: one writer beside raw SQLite, sixteen threads, and the slowest of very many."""

import threading
import time
from typing import Any

import apsw

from bench import raw
from bench.result import BenchmarkContext, Result, percentile, side_by_side
from bench.text import Writer
from bench.threads import on_one_processor, on_worker, together
from hermes_state import SessionDB
from hermes_state.ledger import messages

THREADS = 16
STORED = 200_000
_SLOWEST_THREADS = 4


def _texts(count: int, size: int = 500) -> list[str]:
    writer = Writer()
    return [writer.text(size) for _ in range(count)]


def one_writer(bench: BenchmarkContext) -> list[Result]:
    folder = bench.place("append")
    texts = _texts(bench.size(3_000, 50))
    bare = raw.store(folder / "raw.db")
    with SessionDB(folder / "state.db") as db:
        db.create_session("s0", "cli")

        def ours() -> float:
            return len(texts) / on_worker(lambda: _seconds(db.append_message, texts))

        def limit() -> float:
            return len(texts) / on_worker(lambda: _seconds_raw(bare, texts))

        # What the index has left to do must not slow the other side down.
        measured, best = side_by_side(bench.rounds(9), ours, limit, before=db.index.catch_up)
    bare.close()
    peer = bench.ask_peer("append", messages=bench.size(1_000, 50), rounds=bench.rounds(3))
    return [
        Result(
            "durable append, one writer", measured, "/s", 0.7, best, at_least=True,
            against="raw SQLite: same file, pragmas and rows", peer=peer.get("per_second"),
        )
    ]  # fmt: skip


def _seconds(append: Any, texts: list[str]) -> float:
    began = time.perf_counter()
    for text in texts:
        append("s0", "user", text)
    return time.perf_counter() - began


def _seconds_raw(conn: apsw.Connection, texts: list[str]) -> float:
    began = time.perf_counter()
    for text in texts:
        raw.append(conn, "s0", text)
    return time.perf_counter() - began


def many_threads(bench: BenchmarkContext) -> list[Result]:
    """On all processors, and on one: there, waking a thread does not first have to wake a processor."""
    name = f"durable append, {THREADS} threads"
    rows = [_many_threads(bench, "threads", name)]
    with on_one_processor() as bound:
        if bound:
            rows.append(_many_threads(bench, "threads-bound", f"{name}, on one processor"))
    return rows


def _many_threads(bench: BenchmarkContext, place: str, name: str) -> Result:
    folder = bench.place(place)
    texts = _texts(bench.size(500, 10))
    bare = raw.store(folder / "raw.db", THREADS)
    shared = raw.SharedCommits(bare)
    with SessionDB(folder / "state.db") as db:
        for number in range(THREADS):
            db.create_session(f"s{number}", "cli")

        def append(number: int) -> None:
            for text in texts:
                db.append_message(f"s{number}", "user", text)

        def append_raw(number: int) -> None:
            for text in texts:
                shared.append(f"s{number}", text)

        def ours() -> float:
            return THREADS * len(texts) / together(THREADS, append)

        def limit() -> float:
            return THREADS * len(texts) / together(THREADS, append_raw)

        measured, best = side_by_side(bench.rounds(9), ours, limit, before=db.index.catch_up)
        stored = db.read(messages.count)
    counted = bare.execute("SELECT count(*) FROM messages").get
    bare.close()
    expected = THREADS * len(texts) * bench.rounds(9)
    lost = [f"{expected - n} messages lost" for n in (stored, counted) if n != expected]
    return Result(
        name, measured, "/s", 1, best, at_least=True, failure="; ".join(lost),
        against="raw SQLite: the same threads share one connection and its commits",
    )  # fmt: skip


class _IndexWatch:
    """Notes which threads run a statement on the search index."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.statements = 0

    def __call__(self, conn: apsw.Connection) -> None:
        if conn.filename.endswith("-search.db"):
            conn.exec_trace = self._note

    def _note(self, *_statement: object) -> bool:
        self.statements += 1
        self.threads.add(threading.get_ident())
        return True


def slowest(bench: BenchmarkContext) -> list[Result]:
    folder = bench.place("slowest")
    each = bench.size(STORED, 400) // _SLOWEST_THREADS
    texts = _texts(5_000, 200)
    cpu: list[list[float]] = [[] for _ in range(_SLOWEST_THREADS)]
    wall: list[list[float]] = [[] for _ in range(_SLOWEST_THREADS)]
    callers: set[int] = set()
    watch = _IndexWatch()
    apsw.connection_hooks.append(watch)
    try:
        with SessionDB(folder / "state.db") as db:
            for number in range(_SLOWEST_THREADS):
                db.create_session(f"s{number}", "cli")

            def work(number: int) -> None:
                callers.add(threading.get_ident())
                for position in range(each):
                    text = texts[(position * 7 + number) % len(texts)]
                    thread_began, began = time.thread_time(), time.perf_counter()
                    db.append_message(f"s{number}", "user", text)
                    cpu[number].append(time.thread_time() - thread_began)
                    wall[number].append(time.perf_counter() - began)

            seconds = together(_SLOWEST_THREADS, work)
            behind = db.index.lag()
            indexed = watch.statements  # before anything here asks the index itself
    finally:
        apsw.connection_hooks.remove(watch)
    failure = ""
    if watch.threads & callers:
        failure = "a writer's call worked on the index"
    elif not indexed and bench.scale >= 1:
        failure = "the index did not run beside the writers, so nothing was shown"
    waits = [wait for waits in wall for wait in waits]
    stored = each * _SLOWEST_THREADS
    peer = bench.ask_peer("slowest", messages=bench.size(50_000, 200))
    return [
        Result(
            f"slowest append while {stored:,} messages are stored, CPU",
            max(max(times) for times in cpu), "s", 0.1,
            note=f"longest wait {max(waits) * 1e3:.0f} ms, p99.9 {percentile(waits, 0.999) * 1e3:.1f}"
            f" ms; {stored / seconds:,.0f} a second with the index beside it ({behind:,} behind at"
            " the end); no statement of the index ran on a writer's thread",
            failure=failure, peer=peer.get("cpu"), peer_note=f"of {peer.get('messages', 0):,}",
        )
    ]  # fmt: skip
