"""`python -m bench`: measure every row, print the table, write docs/benchmarks.md."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench import (
    append,
    checkpoints,
    compaction,
    confined,
    gateway_accept,
    gateway_api,
    gateway_chats,
    maintenance,
    page,
    peer,
    processes,
    reads,
    screen,
    search,
    server,
    startup,
    turns,
)
from bench.result import BenchmarkContext, Result

ROWS: dict[str, Callable[[BenchmarkContext], list[Result]]] = {
    "version": startup.version,
    "sessions-list": startup.sessions_list,
    "append": append.one_writer,
    "threads": append.many_threads,
    "slowest": append.slowest,
    "processes": processes.four,
    "size": reads.size,
    "load": reads.load,
    "list": reads.listed,
    "search": search.search,
    "route": reads.route,
    "upkeep": maintenance.clean_up,
    "checkpoint": checkpoints.checkpoint,
    "hook": startup.hook,
    "turn": turns.overhead,
    "hello": turns.hello,
    "one-shot": turns.one_shot,
    "together": turns.together,
    "stop": turns.stop,
    "confined": confined.command,
    "compaction": compaction.long_chat,
    "server-start": server.start,
    "server-usable": server.usable,
    "server-turn": server.turn,
    "server-together": server.together,
    "server-further": server.further,
    "gateway-idle": gateway_api.idle,
    "gateway-turn": gateway_api.turn,
    "gateway-together": gateway_api.together,
    "gateway-accept": gateway_accept.accept,
    "gateway-routing": gateway_accept.routing,
    "gateway-crowd": gateway_chats.crowd,
    "gateway-recovery": gateway_chats.recovery,
    "gateway-memory": gateway_chats.memory,
    "first-frame": screen.first_frame,
    "stream": screen.stream,
    "resume": screen.resume,
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", metavar="NAME[,NAME]", help="run some rows; writes no page")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="shrink or stretch all sizes; writes no page"
    )
    parser.add_argument("--peer", metavar="VERSION", help="measure this hermes-agent beside")
    parser.add_argument("--list", action="store_true", help="name the rows")
    given = parser.parse_args()
    given.names = given.only.split(",") if given.only else list(ROWS)
    if unknown := set(given.names) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}; see --list")
    return given


def _measure(name: str, bench: BenchmarkContext) -> list[Result]:
    began = time.perf_counter()
    print(f"{name} …", end=" ", file=sys.stderr, flush=True)
    try:
        found = ROWS[name](bench)
    except Exception as error:  # noqa: BLE001 -- one row that cannot run must not hide the others
        found = [Result(name, 0.0, "s", 0.0, failure=f"{type(error).__name__}: {error}")]
    print(f"{time.perf_counter() - began:.1f} s", file=sys.stderr)
    return found


def main() -> int:
    given = _arguments()
    if given.list:
        print("\n".join(ROWS))
        return 0
    results: list[Result] = []
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder:
        bench = BenchmarkContext(Path(folder), given.scale)
        if given.peer:
            try:
                bench.peer = peer.prepare(given.peer)
            except peer.PeerError as error:
                bench.peer_failures.append(
                    f"hermes-agent {given.peer} cannot be installed: {error}"
                )
        for name in given.names:
            results += _measure(name, bench)
    print(page.table(results))
    for result in results:
        if not result.is_meaningful:
            print(f"NOT MEASURED {result.what}: {result.failure or 'the measured value is zero'}")
    for failure in bench.peer_failures:
        print(f"peer: {failure}")
    if not given.only and given.scale == 1:
        page.write(results, given.peer, time.perf_counter() - began, bench.peer_failures)
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
