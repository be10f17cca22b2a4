"""Search among very many messages beside the bare index query, and what searching costs a writer."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import raw
from bench.processes import context
from bench.result import BenchmarkContext, Result, side_by_side, timed
from bench.text import RARE, Writer
from bench.threads import on_worker
from hermes_state import SessionDB
from hermes_state.engines.sqlite import connection
from hermes_state.engines.sqlite.index import index_path, split_unspaced

MESSAGES = 1_000_000
_SESSIONS = 2_000
_RARE_HITS = 5
_COMMON_RANK = 8
_CHINESE_EVERY = 20

_BARE = """
SELECT m.id, m.session_id, m.role, m.content, m.timestamp, s.source, s.model, s.title, s.started_at
FROM search.words CROSS JOIN messages AS m ON m.id = words.rowid
CROSS JOIN sessions AS s ON s.id = m.session_id
WHERE words MATCH ? AND m.kind <> 'summary' AND m.active = 1 ORDER BY words.rowid DESC LIMIT 20
"""


def search(bench: BenchmarkContext) -> list[Result]:
    path = bench.place("search") / "state.db"
    count = bench.size(MESSAGES, 2_000)
    writer = Writer()
    began = time.perf_counter()
    conn = raw.store(path, _SESSIONS)
    raw.fill(conn, _messages(writer, count))
    conn.close()
    stored = time.perf_counter() - began
    with SessionDB(path) as db:
        db.index.catch_up()
        built = time.perf_counter() - began - stored
        words = {
            "rare word": RARE,
            "common word": writer.words[_COMMON_RANK],
            "2 Han characters": writer.han[0],
        }
        peer = bench.ask_peer("search", messages=bench.size(50_000, 1_000), rounds=bench.rounds(5))
        results = [_beside_bare(bench, db, path, *word, count, peer) for word in words.items()]
        note = f"stored in {stored:.0f} s, indexed in {built:.0f} s"
        slowed = _slowed(bench, db, path, list(words.values()), note)
    return [*results, slowed]


def _messages(writer: Writer, count: int) -> Iterator[tuple]:
    now = time.time() - count
    every = count // _RARE_HITS
    for number in range(count):
        text = writer.short() if number % _CHINESE_EVERY else writer.chinese()
        if number % every == 7:
            text += f" {RARE}"
        yield raw.row(f"s{number % _SESSIONS}", text, "user", now + number)


def _beside_bare(
    bench: BenchmarkContext,
    db: SessionDB,
    path: Path,
    kind: str,
    word: str,
    count: int,
    peer: dict[str, Any],
) -> Result:
    bare = connection.open_reader(path, 30.0)
    bare.execute("ATTACH ? AS search", (str(index_path(path)),))
    expression = f'"{split_unspaced(word).split()[0]}"'
    hits = bare.execute("SELECT count(*) FROM search.words WHERE words MATCH ?", (expression,)).get
    found = [row["id"] for row in db.search_messages(word)]
    wanted = [row[0] for row in bare.execute(_BARE, (expression,))]
    ours, limit = side_by_side(
        bench.rounds(15),
        timed(lambda: db.search_messages(word), 20),
        timed(lambda: bare.execute(_BARE, (expression,)).fetchall(), 20),
    )
    bare.close()
    seconds = peer.get(kind)
    return Result(
        f"search {count:,} messages, {kind}", ours, "s", 2, limit,
        against="the bare index query with its rows", note=f"{hits:,} hits",
        failure="" if found == wanted else "the answers differ from the bare query's",
        peer=seconds, peer_note=f"of {peer.get('messages', 0):,}",
    )  # fmt: skip


def _slowed(
    bench: BenchmarkContext, db: SessionDB, path: Path, words: list[str], note: str
) -> Result:
    author = Writer(3)
    texts = [author.text(500) for _ in range(bench.size(1_500, 20))]
    searching, stop, counted = context.Event(), context.Event(), context.Value("i", 0)
    process = context.Process(target=_search_on, args=(path, words, searching, stop, counted))
    process.start()

    def write() -> float:
        began = time.perf_counter()
        for text in texts:
            db.append_message("s0", "user", text)
        return len(texts) / (time.perf_counter() - began)

    def beside_searches() -> float:
        searching.set()
        before = counted.value
        while counted.value == before and process.is_alive():
            time.sleep(0.001)
        try:
            return on_worker(write)
        finally:
            searching.clear()

    measured, alone = side_by_side(
        bench.rounds(9), beside_searches, lambda: on_worker(write), before=db.index.catch_up
    )
    stop.set()
    searching.set()
    process.join()
    return Result(
        "one writer while another process searches, slower by", alone / measured, "ratio", 1.3,
        note=f"{alone:,.0f} a second alone, {measured:,.0f} beside {counted.value:,} searches; {note}",
        failure="" if process.exitcode == 0 else "the searching process failed",
        reason="writer, index thread and searching process are three busy threads, and this machine"
        f" has {os.cpu_count()} cores",
    )  # fmt: skip


def _search_on(path: Path, words: list[str], searching: Any, stop: Any, counted: Any) -> None:
    with SessionDB(path) as db:
        while not stop.is_set():
            searching.wait()
            for word in words:
                db.search_messages(word)
                counted.value += 1
