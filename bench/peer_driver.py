"""Runs in the peer's environment: one verb, its sizes as JSON, the numbers as JSON on the last line.

Imports nothing of ours but the text generator; `hermes_state` here is the peer's.
"""

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.text import RARE, Writer, conversation
from hermes_state import SessionDB

_COMMON_RANK = 8


def _median(rounds: int, fn: Callable[[], object]) -> float:
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        fn()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def _store(folder: str) -> SessionDB:
    return SessionDB(Path(folder) / "state.db")


def _cpu(arguments: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    hermes = str(Path(sys.executable).with_name("hermes"))
    subprocess.run([hermes, *arguments], capture_output=True, check=True, stdin=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def version(folder: str, rounds: int) -> dict[str, Any]:
    _cpu(["--version"])
    return {"seconds": statistics.median(_cpu(["--version"]) for _ in range(rounds))}


def sessions_list(folder: str, rounds: int, conversations: int) -> dict[str, Any]:
    db, writer = SessionDB(), Writer()
    for number in range(conversations):
        db.create_session(f"s{number}", "cli")
        db.append_message(f"s{number}", "user", writer.text(200))
    db.close()
    _cpu(["sessions", "list"])
    return {"seconds": statistics.median(_cpu(["sessions", "list"]) for _ in range(rounds))}


def append(folder: str, messages: int, rounds: int) -> dict[str, Any]:
    db, writer = _store(folder), Writer()
    db.create_session("s0", "cli")
    texts = [writer.text(500) for _ in range(messages)]

    def once() -> None:
        for text in texts:
            db.append_message("s0", "user", text)

    return {"per_second": messages / _median(rounds, once)}


def slowest(folder: str, messages: int) -> dict[str, Any]:
    db, writer = _store(folder), Writer()
    db.create_session("s0", "cli")
    texts = [writer.text(200) for _ in range(2_000)]
    longest = 0.0
    for number in range(messages):
        began = time.thread_time()
        db.append_message("s0", "user", texts[number % len(texts)])
        longest = max(longest, time.thread_time() - began)
    return {"cpu": longest, "messages": messages}


def size(folder: str, messages: int) -> dict[str, Any]:
    db, writer = _store(folder), Writer()
    for number in range(messages):
        if number % 200 == 0:
            db.create_session(f"s{number}", "cli")
        db.append_message(f"s{number // 200 * 200}", "user", writer.text(500))
    db.close()
    used = sum(path.stat().st_size for path in Path(folder).glob("state*.db*"))
    return {"bytes": used / messages, "messages": messages}


def load(folder: str, messages: int, rounds: int) -> dict[str, Any]:
    db = _store(folder)
    db.create_session("s0", "cli")
    for message in conversation(messages):
        db.append_message("s0", **message)
    return {"seconds": _median(rounds, lambda: db.get_messages_as_conversation("s0"))}


def listed(folder: str, conversations: int, rounds: int) -> dict[str, Any]:
    db, writer = _store(folder), Writer()
    for number in range(conversations):
        db.create_session(f"s{number}", "cli")
        db.append_message(f"s{number}", "user", writer.short(12))
    seconds = _median(rounds, lambda: db.list_sessions_rich(order_by_last_active=True, limit=20))
    return {"seconds": seconds, "conversations": conversations}


def search(folder: str, messages: int, rounds: int) -> dict[str, Any]:
    db, writer = _store(folder), Writer()
    for number in range(messages):
        if number % 500 == 0:
            db.create_session(f"s{number}", "cli")
        text = writer.short() if number % 20 else writer.chinese()
        if number % (messages // 5) == 7:
            text += f" {RARE}"
        db.append_message(f"s{number // 500 * 500}", "user", text)
    words = {"rare word": RARE, "common word": writer.words[_COMMON_RANK],
             "2 Han characters": writer.han[0]}  # fmt: skip
    found = {
        kind: _median(rounds, lambda word=word: db.search_messages(word, limit=20))
        for kind, word in words.items()
    }
    return {**found, "messages": messages}


_VERBS = {
    "version": version, "sessions_list": sessions_list, "append": append, "slowest": slowest,
    "size": size, "load": load, "list": listed, "search": search,
}  # fmt: skip

if __name__ == "__main__":
    print(json.dumps(_VERBS[sys.argv[1]](**json.loads(sys.argv[2]))))
