"""Passes the events of a turn from its thread to the event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable

from gateway.blocking import run_blocking
from hermes_agent.turn.events import Event, TurnEnded
from hermes_engine.engine import Engine
from hermes_engine.events import LogEntry, TurnCancelled, TurnDetached, TurnQueued, TurnStarted
from hermes_engine.events import TurnSuspended as Suspended


async def events_of(
    engine: Engine, conversation_id: str, turn_id: str, is_over: Callable[[], bool]
) -> AsyncIterator[Event]:
    """Yield the events of a turn, from the first one that is kept to its end."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Event] = asyncio.Queue()

    def pass_on(entry: LogEntry) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(queue.put_nowait, entry.event)

    log = engine.log(conversation_id)
    following = log.follow_turn(turn_id, pass_on)
    try:
        if await run_blocking(is_over) and queue.empty():
            return
        while True:
            event = await queue.get()
            if isinstance(event, TurnDetached | Suspended | TurnCancelled):
                return
            if not isinstance(event, TurnQueued | TurnStarted):
                yield event
            if isinstance(event, TurnEnded):
                return
    finally:
        log.unsubscribe(following)
