"""Runs a gateway in a process of its own and times how long a message takes to be on disk.

Sizes come as JSON; the numbers leave as JSON on the last line of stdout.
"""

import asyncio
import json
import sys
import time
from functools import partial
from pathlib import Path

import apsw

from bench import raw
from gateway.blocking import run_blocking
from gateway.config import Platform
from gateway.platforms.base import MessageEvent
from gateway.run import GatewayRunner
from gateway.services import Services
from gateway.source import SessionSource
from hermes_core import config

_MESSAGE = "Could you look at this for me, please? It is about number {}."
_TIMEOUT_S = 120.0


async def accept(
    rounds: int, messages: int, rate: float, chats: int
) -> dict[str, list[list[float]]]:
    """Time each message at a fixed rate, and a raw commit at the same rate; by rounds.

    The raw commits have the machine to themselves, one half before and one half after; the messages
    come one round after the other, so that as many turns run beside them as the gateway runs at once.
    """
    home = config.home()
    runner = GatewayRunner(home, config.load(home))
    await runner.start()
    services = runner._services
    assert services is not None
    bare = raw.store(Path(home.root, "raw.db"))
    raw_round = partial(_commits, bare, messages, rate)
    limit = [await run_blocking(raw_round) for _ in range(rounds - rounds // 2)]
    await _paced(
        services, range(-chats, 0), rate / 2, chats
    )  # a first message makes its conversation
    await run_blocking(partial(services.turns.engine.work.wait_until_all_idle, _TIMEOUT_S))
    ours = [
        await _paced(services, range(number * messages, (number + 1) * messages), rate, chats)
        for number in range(rounds)
    ]
    await runner.stop()
    limit += [await run_blocking(raw_round) for _ in range(rounds // 2)]
    return {"ours": ours, "limit": limit}


def _commits(bare: apsw.Connection, messages: int, rate: float) -> list[float]:
    """Raw commits at an even pace; the seconds of each."""
    found: list[float] = []
    for number in range(messages):
        time.sleep(1 / rate)
        began = time.perf_counter()
        raw.append(bare, "s0", _MESSAGE.format(number))
        found.append(time.perf_counter() - began)
    return found


async def _paced(services: Services, numbers: range, rate: float, chats: int) -> list[float]:
    """Begin at an even pace, whether or not those before have ended; the seconds of each."""
    began, running = time.perf_counter(), list[asyncio.Task[float]]()
    for position, number in enumerate(numbers):
        await asyncio.sleep(max(0.0, began + position / rate - time.perf_counter()))
        running.append(asyncio.create_task(_accept(services, number, chats)))
    return await asyncio.gather(*running)


async def _accept(services: Services, number: int, chats: int) -> float:
    chat = f"c{number % chats}"
    source = SessionSource(Platform("loopback"), chat, user_id="u1")
    event = MessageEvent(_MESSAGE.format(number), source=source, message_id=f"m{number}")
    began = time.perf_counter()
    receipt = await services.ingress.accept(event)
    seconds = time.perf_counter() - began
    assert receipt.outcome == "turn" and receipt.is_new
    return seconds


if __name__ == "__main__":
    print(json.dumps(asyncio.run(accept(**json.loads(sys.argv[1])))))
