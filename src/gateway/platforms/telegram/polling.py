"""The long poll: asks for updates, and moves on only when everything before is on disk.

Telegram forgets an update when it is asked for a later one. So the offset is the acknowledgement, and it
goes up after the desk took the updates in: a crash anywhere before brings them again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby, takewhile
from typing import Any

from telegram.error import Conflict, InvalidToken, TelegramError

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
_log = logging.getLogger(__name__)


class Poller:
    """Fetches the updates of one bot and hands them on, those of each chat in order."""

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

    async def run(self) -> None:
        """Poll until stopped; raises PlatformError when that is no use any more."""
        failures = 0
        try:
            while not self._stopping.is_set():
                try:
                    updates = await self._fetch_whole()
                except TelegramError as error:
                    failures += 1
                    await self._bear(error, failures)
                else:
                    failures = 0
                    await self._take_all(updates)
        finally:
            self._is_over.set()

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
        updates = await self._fetch(self._timeout_s)
        while updates and album(updates[-1]):
            await self._pause(1)
            more = await self._fetch(0)
            if len(more) <= len(updates):
                break
            updates = more
        return updates

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
        """Wait after a failure; raises PlatformError when it will not go away by itself."""
        reason = connection_error(error)
        if isinstance(error, InvalidToken) or failures >= PATIENCE:
            raise reason from None
        _log.warning("%s Attempt %d follows.", reason.message, failures + 1)
        wait = error.retry_after if isinstance(error, FloodError) else None
        # Telegram ends the older of two polls: a quick retry would only throw the other one out.
        await self._pause(failures + isinstance(error, Conflict), wait)

    async def _take_all(self, updates: Sequence[Raw]) -> None:
        before = {new: old for old, new in filter(None, map(moved, updates))}
        lanes: dict[str, list[Raw]] = {}
        for one in updates:
            chat = _chat(one)
            lanes.setdefault(before.get(chat, chat), []).append(one)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._take_lane(lane)) for lane in lanes.values()]
        taken = {number for task in tasks for number in task.result()}
        for one in takewhile(lambda one: one["update_id"] in taken, updates):
            self.offset = one["update_id"] + 1

    async def _take_lane(self, updates: Sequence[Raw]) -> list[int]:
        """Take the updates of one chat in, one after the other; the numbers of those come back."""
        taken: list[int] = []
        for _, group in groupby(updates, lambda one: album(one) or one["update_id"]):
            parts = list(group)
            if not await self._taken(parts):
                break
            taken += [one["update_id"] for one in parts]
        return taken

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


def _chat(raw: Raw) -> str:
    """The chat that an update is about; its updates must keep their order."""
    told = next((found for part in raw.values() if (found := table(part))), raw)
    place = table(told.get("chat")) or table(table(told.get("message")).get("chat"))
    return str(place.get("id", ""))
