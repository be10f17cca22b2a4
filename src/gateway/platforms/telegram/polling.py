"""The long poll: asks for updates, and moves on only when everything before is on disk.

Telegram forgets an update when it is asked for a later one. So the offset is the acknowledgement, and it
goes up after the ingress took the updates in: a crash anywhere before brings them again.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from telegram.error import Conflict, InvalidToken, TelegramError

from gateway.platforms.base import PlatformError
from gateway.platforms.telegram.failures import connection_error
from gateway.platforms.telegram.translate import moved
from gateway.platforms.telegram.wire import FloodError, Wire, table
from hermes_core import clock
from hermes_core.errors import StoreError

Raw = dict[str, Any]

PATIENCE = 5
"""Failures in a row after which the gateway is told that the connection is lost."""

_LONGEST_PAUSE = 60
_TICK_S = 5.0
_NAP_S = 20.0
_CONFIRM_S = 5.0
_LOOK_AGAIN_S = 0.5
"""How long the other chats wait while one is taken in."""
_log = logging.getLogger(__name__)


class Poller:
    """Fetches the updates of one bot and hands them on, those of each chat in order.

    Chats do not wait for each other. While one takes long, as with a large file, the offset stays, every
    poll brings what was fetched before again, and of it what is new is handed on.
    """

    def __init__(
        self,
        wire: Wire,
        take: Callable[[Sequence[Raw]], Awaitable[None]],
        timeout_s: int,
        pause_s: float = 1.0,
    ) -> None:
        self.offset = 0
        self._wire = wire
        self._take = take
        self._timeout_s = timeout_s
        self._pause_s = pause_s
        self._stopping = asyncio.Event()
        self._is_over = asyncio.Event()
        self._lanes: dict[str, deque[Raw]] = {}
        """What is to be taken in, by chat; a chat is there as long as it is at work."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_taken: dict[int, bool] = {}
        """Every update that was fetched and not acknowledged, in order, and whether it is on disk."""
        self._former: dict[str, str] = {}
        """Chats that are the continuation of others, whose updates come first."""

    async def run(self) -> None:
        """Poll until stopped; raises PlatformError when that is no use any more."""
        try:
            async with asyncio.TaskGroup() as group:
                refusal = await self._poll(group)
        finally:
            self._is_over.set()
        if refusal is not None:
            raise refusal

    async def _poll(self, group: asyncio.TaskGroup) -> PlatformError | None:
        """Poll until stopped; returns why it is no use any more, when that is so."""
        failures = 0
        while not self._stopping.is_set():
            try:
                updates = await self._fetch_whole()
            except TelegramError as error:
                failures += 1
                if (refusal := _refusal(error, failures)) is not None:
                    return refusal
                await self._bear(error, failures)
            else:
                failures = 0
                self._hand_on(updates, group)
                if self._tasks:
                    await asyncio.wait(self._tasks, timeout=_LOOK_AGAIN_S)
        return None

    async def stop(self) -> None:
        """Let what is being taken in be finished, and confirm it."""
        self._stopping.set()
        await self._is_over.wait()
        if self.offset:
            with contextlib.suppress(TelegramError, TimeoutError):
                async with asyncio.timeout(_CONFIRM_S):
                    await self._wire.updates(self.offset, timeout_s=0, limit=1)

    async def _fetch_whole(self) -> list[Raw]:
        """What is new, and the rest of an album: its pictures come one by one, a moment apart."""
        updates = await self._fetch(0 if self._lanes else self._timeout_s)
        while pictures := self._album_pictures(updates):
            await self._pause(1)
            more = await self._fetch(0)
            if self._album_pictures(more) <= pictures:
                break
            updates = more
        return updates

    def _album_pictures(self, updates: Sequence[Raw]) -> int:
        return sum(bool(album(one)) for one in self._fresh(updates))

    async def _fetch(self, timeout_s: int) -> list[Raw]:
        """What is new; nothing when we are stopped, or when the machine slept and the poll is stale."""
        poll = asyncio.create_task(self._wire.updates(self.offset, timeout_s))
        others = [asyncio.create_task(self._stopping.wait()), asyncio.create_task(_woken())]
        try:
            await asyncio.wait([poll, *others], return_when=asyncio.FIRST_COMPLETED)
            return poll.result() if poll.done() else []
        finally:
            for task in (poll, *others):
                task.cancel()
            await asyncio.gather(poll, *others, return_exceptions=True)

    async def _bear(self, error: TelegramError, failures: int) -> None:
        """Wait after a failure."""
        _log.warning("%s Attempt %d follows.", connection_error(error).message, failures + 1)
        wait = error.retry_after if isinstance(error, FloodError) else None
        # Telegram ends the older of two polls: a quick retry would only throw the other one out.
        await self._pause(failures + isinstance(error, Conflict), wait)

    # -- what was fetched, on its way to the ingress ------------------------------------------------

    def _hand_on(self, updates: Sequence[Raw], group: asyncio.TaskGroup) -> None:
        """Put updates that are new behind those of their chat; a group that moved is one chat."""
        fresh = self._fresh(updates)
        self._former |= {new: old for old, new in filter(None, map(moved, fresh))}
        for one in fresh:
            self._is_taken[one["update_id"]] = False
            chat = _chat(one)
            chat = self._former.get(chat, chat)
            if chat in self._lanes:
                self._lanes[chat].append(one)
            else:
                self._lanes[chat] = deque([one])
                task = group.create_task(self._take_lane(chat))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _fresh(self, updates: Sequence[Raw]) -> list[Raw]:
        """Those that were not fetched before: what is not acknowledged comes with every poll."""
        return [one for one in updates if one["update_id"] not in self._is_taken]

    async def _take_lane(self, chat: str) -> None:
        """Take the updates of one chat in, one after the other, until there are no more."""
        lane = self._lanes[chat]
        while lane:
            parts = _whole(lane)
            for one in parts:
                lane.remove(one)
            if not await self._taken(parts):
                return
            self._is_taken |= {one["update_id"]: True for one in parts}
            self._acknowledge()
        del self._lanes[chat]
        if not self._lanes:
            self._former.clear()

    def _acknowledge(self) -> None:
        """Have the next poll forget what is on disk, up to the first update that is not."""
        for number, is_taken in list(self._is_taken.items()):
            if not is_taken:
                return
            self.offset = number + 1
            del self._is_taken[number]

    async def _taken(self, updates: Sequence[Raw]) -> bool:
        """Take updates in, however long the store refuses; False when we are stopped before."""
        failures = 0
        while True:
            try:
                await self._take(updates)
            except StoreError as error:
                failures += 1
                _log.warning("A message of Telegram waits for the store: %s", error)
                await self._pause(failures)
                if self._stopping.is_set():
                    return False
            else:
                return True

    async def _pause(self, failures: int, wait_s: float | None = None) -> None:
        """Wait longer after each failure; a stop ends it."""
        longer = self._pause_s * min(2 ** (failures - 1), _LONGEST_PAUSE)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longer if wait_s is None else wait_s):
                await self._stopping.wait()


def _refusal(error: TelegramError, failures: int) -> PlatformError | None:
    """Why it is no use to go on after a failure; None: it may go away by itself."""
    is_final = isinstance(error, InvalidToken) or failures >= PATIENCE
    return connection_error(error) if is_final else None


async def _woken() -> None:
    """Return when the machine has slept: its clock went on while we did not."""
    while True:
        before = clock.now()
        await asyncio.sleep(_TICK_S)
        if clock.now() - before > _TICK_S + _NAP_S:
            return


def album(raw: Raw) -> str:
    """The album that an update is a picture of; empty when it is of none."""
    return table(raw.get("message") or raw.get("channel_post")).get("media_group_id") or ""


def _whole(lane: Sequence[Raw]) -> list[Raw]:
    """The next update; with an album all of it, though others may have spoken between its pictures."""
    first = lane[0]
    return [one for one in lane if album(one) == album(first)] if album(first) else [first]


def _chat(raw: Raw) -> str:
    """The chat that an update is about; its updates must keep their order."""
    told = next((found for part in raw.values() if (found := table(part))), raw)
    place = table(told.get("chat")) or table(table(told.get("message")).get("chat"))
    return str(place.get("id", ""))
