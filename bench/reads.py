"""What is read often, and what a message costs on disk: size, loading, listing; and saving a route."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import msgspec

from bench import raw
from bench.result import BenchmarkContext, Result, side_by_side, timed
from bench.text import Writer, conversation
from bench.threads import on_worker
from hermes_state import SessionDB
from hermes_state.engines.sqlite import connection
from hermes_state.engines.sqlite.index import index_path
from hermes_state.ledger import messages, routes
from hermes_state.values import Route

SIZE_MESSAGES = 40_000
CONVERSATION = 10_000
CONVERSATIONS = 100_000
ROUTES = 100_000


def size(bench: BenchmarkContext) -> list[Result]:
    path = bench.place("size") / "state.db"
    count = bench.size(SIZE_MESSAGES, 200)
    writer = Writer()
    with SessionDB(path) as db:
        for first in range(0, count, 200):
            db.create_session(f"s{first}", "cli")
            db.append_messages(
                f"s{first}", [{"role": "user", "content": writer.text(500)} for _ in range(200)]
            )
        db.index.catch_up()
        stored = db.read(messages.count)
    used = sum(_checkpointed(file) for file in (path, index_path(path)))
    peer = bench.ask_peer("size", messages=bench.size(10_000, 200))
    return [
        Result(
            "bytes a message of 500 bytes, words and trigrams included", used / stored, "bytes",
            1_500, note=f"{stored:,} messages; the index takes "
            f"{_checkpointed(index_path(path)) / stored:.0f} of it",
            peer=peer.get("bytes"), peer_note=f"{peer.get('messages', 0):,} messages",
        )
    ]  # fmt: skip


def _checkpointed(path: Path) -> int:
    conn = apsw.Connection(str(path))
    conn.pragma("wal_checkpoint(truncate)")
    conn.close()
    return path.stat().st_size


def load(bench: BenchmarkContext) -> list[Result]:
    path = bench.place("load") / "state.db"
    count = bench.size(CONVERSATION, 40)
    with SessionDB(path) as db:
        db.create_session("s0", "cli")
        db.append_messages("s0", conversation(count))
        bare = connection.open_reader(path, 30.0)
        ours, limit = side_by_side(
            bench.rounds(15),
            timed(lambda: db.get_messages_as_conversation("s0"), 3),
            timed(lambda: _load_raw(bare), 3),
        )
        bare.close()
    peer = bench.ask_peer("load", messages=count, rounds=bench.rounds(7))
    return [
        Result(
            f"load a conversation of {count:,} messages", ours, "s", 2, limit,
            against="raw SELECT and JSON decode of the same rows", peer=peer.get("seconds"),
        )
    ]  # fmt: skip


_decode = msgspec.json.Decoder().decode
_PARTS, _CALLS, _EXTRA = 3, 4, 11


def _load_raw(conn: apsw.Connection) -> list[list[Any]]:
    found: list[list[Any]] = []
    for values in conn.execute(
        "SELECT id, role, content, parts, tool_calls, tool_call_id, tool_name, timestamp,"
        " finish_reason, reasoning, platform_message_id, extra, kind, observed FROM messages"
        " WHERE session_id = ? AND active >= 1 ORDER BY id",
        ("s0",),
    ):
        row = list(values)
        for column in (_PARTS, _CALLS, _EXTRA):
            if row[column] is not None:
                row[column] = _decode(row[column])
        found.append(row)
    return found


def listed(bench: BenchmarkContext) -> list[Result]:
    path = bench.place("list") / "state.db"
    count = bench.size(CONVERSATIONS, 100)
    conn = raw.store(path, 0)
    fill_sessions(conn, count)
    conn.close()
    with SessionDB(path) as db:
        bare = connection.open_reader(path, 30.0)
        sql = (
            f"SELECT {', '.join(db.list_sessions_rich(limit=1)[0])} FROM sessions"
            " WHERE is_tip = 1 AND archived = 0 AND relation IS NOT 'delegate'"
            " ORDER BY last_active_at DESC LIMIT 20"
        )
        ours, limit = side_by_side(
            bench.rounds(15),
            timed(lambda: db.list_sessions_rich(limit=20), 200),
            timed(lambda: bare.execute(sql).fetchall(), 200),
        )
        bare.close()
    peer = bench.ask_peer("list", conversations=bench.size(10_000, 100), rounds=bench.rounds(5))
    return [
        Result(
            f"list 20 of {count:,} conversations by last activity", ours, "s", 3, limit,
            against="indexed raw SELECT", peer=peer.get("seconds"),
            peer_note=f"of {peer.get('conversations', 0):,}",
        )
    ]  # fmt: skip


def fill_sessions(conn: apsw.Connection, count: int) -> None:
    """Conversations with a title and a first message's preview, in no order of activity."""
    writer, now = Writer(), time.time()
    with conn:
        conn.executemany(
            "INSERT INTO sessions (id, conversation_id, source, model, title, preview, started_at,"
            " last_active_at, message_count) VALUES (?1, ?1, 'cli', 'model', ?2, ?3, ?4, ?5, 12)",
            (
                (f"2026_{n:07d}", f"Conversation {n}", writer.short(12), now - count + n,
                 now - (n * 7919) % count)
                for n in range(count)
            ),
        )  # fmt: skip


def route(bench: BenchmarkContext) -> list[Result]:
    folder = bench.place("routes")
    count = bench.size(ROUTES, 100)
    upsert = (
        "INSERT INTO routes (scope, session_key, session_id, entry, updated_at)"
        " VALUES ('', ?, ?, ?, ?) ON CONFLICT DO UPDATE SET session_id = excluded.session_id,"
        " entry = excluded.entry, updated_at = excluded.updated_at"
    )
    entry = '{"platform": "telegram", "chat_type": "dm", "display_name": "somebody"}'

    def filled(path: Path) -> apsw.Connection:
        conn = raw.store(path)
        with conn:
            conn.executemany(
                upsert, ((f"key:{n}", f"s{n}", entry, time.time()) for n in range(count))
            )
        return conn

    bare = filled(folder / "raw.db")
    filled(folder / "state.db").close()
    times = bench.size(500, 20)
    with SessionDB(folder / "state.db") as db:

        def ours(position: int) -> None:
            db.write(routes.save, Route(f"key:{position}", entry), f"new{position}")

        def limit(position: int) -> None:
            bare.execute("BEGIN IMMEDIATE")
            bare.execute(upsert, (f"key:{position}", f"new{position}", entry, time.time()))
            bare.execute("COMMIT")

        measured, best = side_by_side(
            bench.rounds(9), *(_spread(side, times, count) for side in (ours, limit))
        )
    bare.close()
    return [
        Result(
            f"one route saved among {count:,}", measured, "s", 3, best,
            against="a one-row upsert in a transaction",
        )
    ]  # fmt: skip


def _spread(save: Callable[[int], None], times: int, count: int) -> Callable[[], float]:
    """A side that saves routes from all over the table, on a worker thread."""

    def work() -> float:
        began = time.perf_counter()
        for number in range(times):
            save(number * 7919 % count)
        return (time.perf_counter() - began) / times

    return lambda: on_worker(work)
