"""Taking messages in: until they are on disk, and finding the conversation among many."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench import gateway_home, rpc
from bench.gateway_home import running
from bench.result import BenchmarkContext, Result, percentile, side_by_side
from gateway.config import GatewayConfig, Platform
from gateway.session import SessionStore
from gateway.source import SessionSource
from hermes_state import SessionDB

_RATE = 100
_CHATS = 200
_PLATFORM = "bench.gateway_platform"
_USUAL_S, _QUICK_S = 8, 2
"""How long the model takes for a reply."""
_QUICK_MUST = 10
"""Ours: four times as many turns begin and end beside the messages, on the same two cores."""
_FEW, _MANY = 100, 100_000


def accept(bench: BenchmarkContext) -> list[Result]:
    """Messages at an even pace in many chats: all answered as they come, or more than can be.

    With a model that takes its time as many turns run beside them as the gateway runs at once.

    A disk that stops for a tenth of a second makes ten messages late, and on a shared machine it does.
    That only ever adds. So there are rounds, and those of the quieter quarter count, for both sides.
    """
    return [
        _accepted(bench, 0, "each answered at once", must=5),
        _accepted(bench, _USUAL_S, f"64 turns of {_USUAL_S} s", must=5),
        _accepted(bench, _QUICK_S, f"64 turns of {_QUICK_S} s", must=_QUICK_MUST),
    ]


def _accepted(bench: BenchmarkContext, model_s: int, beside: str, must: float) -> Result:
    home = bench.place(f"gateway-accept-{model_s}")
    sizes = {"rounds": 8, "messages": bench.size(300, 50), "rate": _RATE, "chats": _CHATS}
    with running("bench.gateway_model", str(model_s)) as model, running(_PLATFORM) as platform:
        table = gateway_home.loopback(platform)
        gateway_home.configure(home, model, table, streaming=False)
        told = {"HOME": str(home), "HERMES_HOME": str(home)}
        done = subprocess.run(
            [sys.executable, "-m", "bench.gateway_child", json.dumps(sizes)],
            env={**rpc.plain(), **told}, stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    ours, limit = found["ours"], found["limit"]
    return Result(
        f"gateway: a message until it is on disk, at {_RATE} a second, {beside}, p99",
        _quiet(ours, 0.99), "s", must, _quiet(limit, 0.99),
        against="one raw commit at the same pace, p99",
        note=f"half took {_quiet(ours, 0.5) * 1e3:.1f} ms, raw commits"
        f" {_quiet(limit, 0.5) * 1e3:.1f} ms; {_CHATS} chats",
        reason="the turns beside it share one interpreter with the writer",
    )  # fmt: skip


def _quiet(rounds: list[list[float]], share: float) -> float:
    """A percentile, as it is in the quieter quarter of the rounds."""
    return statistics.quantiles((percentile(seconds, share) for seconds in rounds), n=4)[0]


def routing(bench: BenchmarkContext) -> list[Result]:
    """What a turn asks of the routes: its own, one that changes, one that is new."""
    folder, times = bench.place("gateway-routing"), bench.size(500, 50)
    many = bench.size(_MANY, 1000)
    with SessionDB(folder / "few.db") as few_db, SessionDB(folder / "many.db") as many_db:
        few = _filled(folder / "few", few_db, _FEW)
        full = _filled(folder / "many", many_db, many)
        ours, limit = side_by_side(
            bench.rounds(9), _turns(full, many, times), _turns(few, _FEW, times)
        )
        few.close()
        full.close()
    return [
        Result(
            f"gateway: routing a turn among {many:,} chats", ours, "s", 1.5, limit,
            against=f"the same among {_FEW}", note="sessions.json is written in the background of both",
        )
    ]  # fmt: skip


def _source(number: int) -> SessionSource:
    return SessionSource(Platform.TELEGRAM, f"chat{number}", user_id=f"u{number}", user_name="Ann")


def _filled(folder: Path, db: SessionDB, count: int) -> SessionStore:
    """A store of routes that has just been read, as after a start."""
    conf = GatewayConfig(sessions_dir=folder)
    maker = SessionStore(folder, conf, db=db)
    for number in range(count):
        key = maker.key_of(_source(number))
        entry = maker.entry_for(key, f"s{number}", _source(number))
        maker._entries[key] = entry  # one commit for all instead of one each
    maker._save()
    maker.close()
    read = SessionStore(folder, conf, db=db)
    read.peek("")
    return read


def _turns(store: SessionStore, count: int, times: int) -> Callable[[], float]:
    """A side that does what turns do, all over the table, and gives the seconds of one."""
    new = iter(range(count, sys.maxsize))

    def side() -> float:
        began = time.perf_counter()
        for number in range(times):
            entry = store.get_or_create_session(_source(number * 7919 % count))
            store.update_session(entry.session_key, number)
            if number % 10 == 0:
                store.get_or_create_session(_source(next(new)))
        return (time.perf_counter() - began) / times

    return side
