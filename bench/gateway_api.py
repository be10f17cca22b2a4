"""The gateway through its HTTP API, beside hermes-agent's: memory at rest, a request, many at once."""

import time

from bench import gateway_home, gateway_process
from bench.gateway_home import running
from bench.gateway_process import Gateway, free_port
from bench.result import BenchmarkContext, Result
from bench.turns import served

_CLIENTS = 16
_PEER_TURNS = 4
_DOUBLE = "tests.gateway.servers.telegram"
_SETTLE_S = 3.0


def idle(bench: BenchmarkContext) -> list[Result]:
    """At rest on two platforms, after the first turn: what that loads stays loaded."""
    home, port = bench.place("gateway-idle"), free_port()
    with served() as model, running(_DOUBLE) as bot:
        platforms = {**gateway_home.api(port), **gateway_home.telegram(bot)}
        gateway_home.configure(home, model, platforms)
        with Gateway(home) as gateway:
            gateway.wait_until_up().wait_for_api(port)
            time.sleep(_SETTLE_S)
            at_start = gateway.memory
            client = gateway_process.Client(port)
            client.ask(gateway_process.words())
            client.close()
            time.sleep(_SETTLE_S)
            after = gateway.memory
    return [
        Result(
            "gateway: at rest with Telegram and the HTTP API, memory", at_start, "bytes", 80e6,
            note=f"{after / 1e6:.0f} MB after the first turn",
        )
    ]  # fmt: skip


def turn(bench: BenchmarkContext) -> list[Result]:
    """What the gateway works from a request to its answer, both on disk, besides client and model."""
    home, port = bench.place("gateway-turn"), free_port()
    turns = bench.size(40, 5)
    with served() as model:
        gateway_home.configure(home, model, gateway_home.api(port))
        with gateway_process.serving(home, {}, port) as gateway:
            ours = gateway_process.turn(gateway, port, turns, bench.rounds(5))
        peer = bench.ask_peer("gateway_turn", turns=10, rounds=bench.rounds(3), url=f"{model}/v1")
    if "seconds" not in peer:
        return []
    return [
        Result(
            "gateway: a request to the HTTP API, CPU", ours, "s", 1 / 8, peer["seconds"],
            against="hermes-agent in the same run", peer=peer["seconds"],
            note="a new conversation each; its messages and its end are on disk",
        )
    ]  # fmt: skip


def together(bench: BenchmarkContext) -> list[Result]:
    """Many clients at once, each with one request after the other; a refusal fails the row."""
    home, port = bench.place("gateway-together"), free_port()
    turns = bench.size(20, 2)
    with served() as model:
        gateway_home.configure(home, model, gateway_home.api(port))
        with gateway_process.serving(home, {}, port):
            ours = gateway_process.together(port, _CLIENTS, turns)
        peer = bench.ask_peer(
            "gateway_together", clients=_CLIENTS, turns=_PEER_TURNS, url=f"{model}/v1"
        )
    if "per_second" not in peer:
        return []
    return [
        Result(
            f"gateway: {_CLIENTS} clients of the HTTP API, {turns} requests each", ours, "/s", 15,
            peer["per_second"], at_least=True, against="hermes-agent in the same run",
            peer=peer["per_second"], peer_note=f"with {_PEER_TURNS} requests each",
            note="none refused; the limit of hermes-agent, 10 at once, is switched off",
        )
    ]  # fmt: skip
