"""Runs with a gateway inside: what it takes to have a message on disk. A process of its own.

The sizes come as JSON, the numbers go out as JSON on the last line.
"""

import asyncio
import json
import sys
import time
from functools import partial
from pathlib import Path

import apsw
from gateway.house import House
from gateway.threads import run_blocking

from bench import raw
from gateway.config import Platform
from gateway.platforms.base import MessageEvent
from gateway.run import GatewayRunner
from gateway.source import SessionSource
from hermes_core import config

_MESSAGE = "Could you look at this for me, please? It is about number {}."
_TIMEOUT_S = 120.0


async def accept(
    rounds: int, messages: int, rate: float, chats: int
) -> dict[str, list[list[float]]]:
    """How long each message takes at so many a second, and a raw commit at the same pace; by rounds.

    The raw commits have the machine to themselves, one half before and one half after; the messages
    come one round after the other, so that as many turns run beside them as the gateway runs at once.
    """
    home = config.home()
    runner = GatewayRunner(home, config.load(home))
    await runner.start()
    house = runner._house
    assert house is not None
    bare = raw.store(Path(home.root, "raw.db"))
    raw_round = partial(_commits, bare, messages, rate)
    limit = [await run_blocking(raw_round) for _ in range(rounds - rounds // 2)]
    await _paced(house, range(-chats, 0), rate / 2, chats)  # a first message makes its conversation
    await run_blocking(partial(house.lanes.wait_until_idle, _TIMEOUT_S))
    ours = [
        await _paced(house, range(number * messages, (number + 1) * messages), rate, chats)
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


async def _paced(house: House, numbers: range, rate: float, chats: int) -> list[float]:
    """Begin at an even pace, whether or not those before have ended; the seconds of each."""
    began, running = time.perf_counter(), list[asyncio.Task[float]]()
    for position, number in enumerate(numbers):
        await asyncio.sleep(max(0.0, began + position / rate - time.perf_counter()))
        running.append(asyncio.create_task(_take(house, number, chats)))
    return await asyncio.gather(*running)


async def _take(house: House, number: int, chats: int) -> float:
    chat = f"c{number % chats}"
    source = SessionSource(Platform("loopback"), chat, user_id="u1")
    event = MessageEvent(_MESSAGE.format(number), source=source, message_id=f"m{number}")
    began = time.perf_counter()
    receipt = await house.accept(event)
    seconds = time.perf_counter() - began
    assert receipt.outcome == "turn" and receipt.is_new
    return seconds


if __name__ == "__main__":
    print(json.dumps(asyncio.run(accept(**json.loads(sys.argv[1])))))
