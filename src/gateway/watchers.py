"""Watchers: who follows a running turn, from the thread it runs in to the event loop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

from gateway.threads import run_blocking
from hermes_agent.events import (
    Event,
    QuestionAnswered,
    QuestionAsked,
    QuestionWithdrawn,
    TextDelta,
    TurnEnded,
)

_Told = Callable[[Event | None], None]


class Watchers:
    """Hands what turns report to those who asked for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._following: dict[str, list[_Told]] = {}
        self._kept: dict[str, list[Event]] = {}
        """What turns reported to which somebody will come, and has not yet."""
        self._asked: dict[str, list[QuestionAsked]] = {}
        """What turns wait for an answer to: who comes later must hear of it too."""

    def expect(self, turn_id: str) -> None:
        """Keep what a turn reports for whoever comes first."""
        with self._lock:
            if turn_id not in self._following:
                self._kept[turn_id] = []

    def report(self, turn_id: str, event: Event) -> None:
        """Something happened in a turn; from the thread it runs in."""
        is_asking = isinstance(event, QuestionAsked | QuestionAnswered | QuestionWithdrawn)
        if not is_asking and turn_id not in self._following and turn_id not in self._kept:
            return  # nearly always; what begins now is told from the next event on
        with self._lock:
            if is_asking:
                self._note(turn_id, event)
            if (kept := self._kept.get(turn_id)) is not None:
                kept.append(event)
            for tell in self._following.get(turn_id, ()):
                tell(event)

    def _note(
        self, turn_id: str, event: QuestionAsked | QuestionAnswered | QuestionWithdrawn
    ) -> None:
        """Note what is asked, and what is no more; the lock is held."""
        before = self._asked.pop(turn_id, [])
        asked = [one for one in before if one.question_id != event.question_id]
        if isinstance(event, QuestionAsked):
            asked.append(event)
        if asked:
            self._asked[turn_id] = asked

    def over(self, turn_id: str) -> None:
        """A turn has ended, or is not run here any more."""
        with self._lock:
            self._asked.pop(turn_id, None)
            following = self._following.pop(turn_id, [])
            self._kept.pop(turn_id, None)
        for tell in following:
            tell(None)

    async def watch(
        self, turn_id: str, is_over: Callable[[], bool], *, texts: bool = True
    ) -> AsyncIterator[Event]:
        """What a turn reports from now on, until it has ended; before it what was kept of it, or, when
        somebody came before, what it still asks.
        """
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[Event | None] = asyncio.Queue()

        def tell(event: Event | None) -> None:
            if (texts or not isinstance(event, TextDelta)) and not loop.is_closed():
                loop.call_soon_threadsafe(queue.put_nowait, event)

        with self._lock:
            self._following.setdefault(turn_id, []).append(tell)
            kept = self._kept.pop(turn_id, None)
            for event in self._asked.get(turn_id, ()) if kept is None else kept:
                tell(event)
        try:
            if await run_blocking(is_over):
                return
            while (event := await queue.get()) is not None:
                yield event
                if isinstance(event, TurnEnded):
                    return
        finally:
            self._forget(turn_id, tell)

    def _forget(self, turn_id: str, tell: _Told) -> None:
        with self._lock:
            left = [one for one in self._following.get(turn_id, ()) if one is not tell]
            if left:
                self._following[turn_id] = left
            else:
                self._following.pop(turn_id, None)
