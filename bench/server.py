"""The JSON-RPC server beside bare python and beside hermes-agent's: start, sessions, turns, memory."""

import statistics
from pathlib import Path

from bench import rpc
from bench.result import BenchmarkContext, Result, side_by_side
from bench.startup import child_cpu, python
from bench.turns import served

_SESSIONS = 16
_TURNS = 50


def environment(home: Path, url: str = "") -> dict[str, str]:
    """A home, and a model that answers at once when there is one."""
    told = {"HERMES_HOME": str(home), "HERMES_AGENT_TITLES": "false"}
    if url:
        told |= {
            "OPENAI_API_KEY": "sk-scripted-key",
            "OPENAI_BASE_URL": f"{url}/v1",
            "HERMES_MODEL": "scripted",
        }
    return told


def start(bench: BenchmarkContext) -> list[Result]:
    """From the start of the process to its greeting."""
    home = bench.place("server-start")
    told = environment(home)
    rpc.start(told)  # the first run writes the compiled modules
    sizes: list[float] = []

    def ours() -> float:
        cpu, size = rpc.start(told)
        sizes.append(size)
        return cpu

    cpu, limit = side_by_side(bench.rounds(15), ours, lambda: child_cpu(python, home))
    peer = bench.ask_peer("server_start", rounds=bench.rounds(5))
    return [
        Result(
            "server: start to ready, CPU", cpu, "s", 8, limit, against="python -c pass",
            peer=peer.get("seconds"),
        ),
        Result(
            "server: start to ready, memory", max(sizes), "bytes", 45e6, peer=peer.get("bytes")
        ),
    ]  # fmt: skip


def usable(bench: BenchmarkContext) -> list[Result]:
    """The first session of a process, from the wish for it until its agent is there."""
    told_at = bench.place("server-usable")
    with served() as url:
        peer = bench.ask_peer("server_usable", rounds=bench.rounds(3), url=f"{url}/v1")
        # As with a hosted model: what it can do is known, and no local server has to be asked.
        told = environment(told_at, url) | {
            "HERMES_MODEL_CONTEXT_WINDOW": "131072",
            "HERMES_MODEL_SMALL": "off",
        }
        rpc.usable(told)
        ours = statistics.median(rpc.usable(told) for _ in range(bench.rounds(9)))
    return _against_peer("a session created and usable", ours, peer, 20)


def turn(bench: BenchmarkContext) -> list[Result]:
    """What the server works for a turn without tools, besides the client and the model."""
    with served() as url:
        told = environment(bench.place("server-turn"), url)
        ours = rpc.turn(told, bench.size(50, 5), bench.rounds(5))
        peer = bench.ask_peer("server_turn", turns=10, rounds=bench.rounds(3), url=f"{url}/v1")
    return _against_peer("a turn through JSON-RPC, CPU of the server", ours, peer, 12)


def together(bench: BenchmarkContext) -> list[Result]:
    """Many sessions at once, each with one turn after the other; an error fails the row."""
    turns = bench.size(_TURNS, 2)
    with served() as url:
        told = environment(bench.place("server-together"), url)

        def measure() -> float:
            return rpc.together(told, _SESSIONS, turns)

        # Ours takes seconds and the peer minutes: before and after it, so that both meet the same noise.
        found = [measure()]
        peer = bench.ask_peer("server_together", sessions=_SESSIONS, turns=turns, url=f"{url}/v1")
        ours = statistics.median([*found, measure(), measure()])
    what = f"{_SESSIONS} sessions at once, {turns} turns each"
    if "per_second" not in peer:
        return []
    return [
        Result(
            what, ours, "/s", 15, peer["per_second"], at_least=True, note="no error",
            against="hermes-agent in the same run", peer=peer["per_second"],
        )
    ]  # fmt: skip


def further(bench: BenchmarkContext) -> list[Result]:
    """What one more session takes, with a turn in it; processes that it starts are counted too."""
    with served() as url:
        told = environment(bench.place("server-further"), url)
        ours = rpc.further(told, 4, bench.size(40, 4))
        peer = bench.ask_peer("server_further", before=2, sessions=3, url=f"{url}/v1")
    return [
        Result(
            "a further session in the server, memory", ours, "bytes", 1e6, peer=peer.get("bytes")
        )
    ]


def _against_peer(what: str, ours: float, peer: dict[str, float], times: int) -> list[Result]:
    theirs = peer.get("seconds")
    if theirs is None:
        return []
    return [
        Result(
            what, ours, "s", 1 / times, theirs, against="hermes-agent in the same run", peer=theirs
        )
    ]
