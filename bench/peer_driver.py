"""Runs in the peer's environment: one verb, its sizes as JSON, the numbers as JSON on the last line.

Imports nothing of ours but the text generator and the client of the protocol; `hermes_state` here is
the peer's.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import gateway_process, rpc
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


def turn(folder: str, rounds: int, times: int, url: str) -> dict[str, Any]:
    from run_agent import AIAgent  # noqa: PLC0415 -- takes seconds, and only this verb needs it

    db = _store(folder)

    def agent() -> Any:
        return AIAgent(
            model="scripted",
            base_url=url,
            api_key="sk-scripted-key",
            quiet_mode=True,
            session_db=db,
        )

    agent().run_conversation("hello")
    found = []
    for _ in range(rounds):
        agents = [agent() for _ in range(times)]
        began = time.process_time()
        for one in agents:
            one.run_conversation("hello")
        found.append((time.process_time() - began) / times)
    return {"seconds": statistics.median(found)}


def one_shot(folder: str, rounds: int, url: str) -> dict[str, Any]:
    hermes = str(Path(sys.executable).with_name("hermes"))
    environment = {**os.environ, **_configured(url), "HERMES_YOLO_MODE": "1"}
    found = []
    for _ in range(rounds + 1):
        child = subprocess.Popen(
            [hermes, "-z", "hello"], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        _, status, used = os.wait4(child.pid, 0)
        if status:
            raise SystemExit(f"hermes -z ended with {status}")
        found.append((used.ru_utime + used.ru_stime, used.ru_maxrss * 1024))
    cpu, memory = zip(*found[1:], strict=True)
    return {"seconds": statistics.median(cpu), "bytes": max(memory)}


def _configured(url: str) -> dict[str, str]:
    """Have it ask the scripted model; returns the environment that belongs to it."""
    home = os.environ["HERMES_HOME"]
    lines = ["model:", "  default: scripted", "  provider: custom", f"  base_url: {url}",
             "  api_key: sk-scripted-key", ""]  # fmt: skip
    Path(home, "config.yaml").write_text("\n".join(lines))
    return {"HERMES_HOME": home, "OPENAI_API_KEY": "sk-scripted-key", "OPENAI_BASE_URL": url}


def server_start(folder: str, rounds: int) -> dict[str, Any]:
    told = {"HERMES_HOME": os.environ["HERMES_HOME"]}
    rpc.start(told)
    cpu, memory = zip(*(rpc.start(told) for _ in range(rounds)), strict=True)
    return {"seconds": statistics.median(cpu), "bytes": max(memory)}


def server_usable(folder: str, rounds: int, url: str) -> dict[str, Any]:
    told = _configured(url)
    rpc.usable(told)
    return {"seconds": statistics.median(rpc.usable(told) for _ in range(rounds))}


def server_turn(folder: str, turns: int, rounds: int, url: str) -> dict[str, Any]:
    return {"seconds": rpc.turn(_configured(url), turns, rounds)}


def server_together(folder: str, sessions: int, turns: int, url: str) -> dict[str, Any]:
    return {"per_second": rpc.together(_configured(url), sessions, turns)}


def server_further(folder: str, before: int, sessions: int, url: str) -> dict[str, Any]:
    return {"bytes": rpc.further(_configured(url), before, sessions)}


def _with_api(url: str, port: int) -> dict[str, str]:
    """Have its gateway serve the HTTP API, to any number of clients."""
    told = _configured(url)
    with Path(told["HERMES_HOME"], "config.yaml").open("a") as config:
        config.write("gateway:\n  api_server:\n    max_concurrent_runs: 0\n")
    return told | {"API_SERVER_KEY": gateway_process.TOKEN, "API_SERVER_PORT": str(port)}


def gateway_turn(folder: str, turns: int, rounds: int, url: str) -> dict[str, Any]:
    port = gateway_process.free_port()
    told = _with_api(url, port)
    with gateway_process.serving(Path(told["HERMES_HOME"]), told, port) as gateway:
        return {"seconds": gateway_process.turn(gateway, port, turns, rounds)}


def gateway_together(folder: str, clients: int, turns: int, url: str) -> dict[str, Any]:
    port = gateway_process.free_port()
    told = _with_api(url, port)
    with gateway_process.serving(Path(told["HERMES_HOME"]), told, port):
        return {"per_second": gateway_process.together(port, clients, turns)}


_VERBS = {
    "version": version, "sessions_list": sessions_list, "append": append, "slowest": slowest,
    "size": size, "load": load, "list": listed, "search": search, "turn": turn,
    "one_shot": one_shot, "server_start": server_start, "server_usable": server_usable,
    "server_turn": server_turn, "server_together": server_together,
    "server_further": server_further, "gateway_turn": gateway_turn,
    "gateway_together": gateway_together,
}  # fmt: skip

if __name__ == "__main__":
    print(json.dumps(_VERBS[sys.argv[1]](**json.loads(sys.argv[2]))))
