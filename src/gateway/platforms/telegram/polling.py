"""The long poll: asks for updates, and moves on only when everything before is on disk.

Telegram forgets an update when it is asked for a later one. So the offset is the acknowledgement, and it
goes up after the ingress accepted the updates: a crash anywhere before brings them again.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from telegram.error import Conflict, InvalidToken, TelegramError

from gateway.platforms.base import PlatformError
from gateway.platforms.telegram import bursts
from gateway.platforms.telegram.failures import connection_error
from gateway.platforms.telegram.translate import moved
from gateway.platforms.telegram.wire import FloodError, Wire, table
from hermes_core import clock
from hermes_core.errors import StoreError
from hermes_state.store_retry import StoreRetry

Raw = dict[str, Any]

MAX_FAILURES = 5
"""After so many failures in a row the connection counts as lost."""

_MAX_PAUSE_FACTOR = 60
_TICK_S = 5.0
_SLEEP_THRESHOLD_S = 20.0
_CONFIRM_TIMEOUT_S = 5.0
_POLL_INTERVAL_S = 0.5
"""How long other chats wait while the messages of one are accepted."""
_log = logging.getLogger(__name__)


class Poller:
    """Fetches the updates of one bot and passes them on, those of each chat in order.

    Chats do not wait for each other. While one takes long, as with a large file, the offset stays, and
    every poll returns earlier updates again; only new ones are passed on.
    """

    def __init__(
        self,
        wire: Wire,
        deliver: Callable[[Sequence[Raw]], Awaitable[None]],
        timeout_s: int,
        pause_s: float = 1.0,
    ) -> None:
        self.offset = 0
        self._wire = wire
        self._deliver = deliver
        self._timeout_s = timeout_s
        self._pause_s = pause_s
        self._stopping = asyncio.Event()
        self._is_over = asyncio.Event()
        self._queues: dict[str, deque[Raw]] = {}
        """The updates to accept, by chat; a chat is here as long as it has some."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stored: dict[int, bool] = {}
        """Every update that the last poll did not acknowledge, in order, and whether it is on disk."""
        self._former: dict[str, str] = {}
        """Chats that are the continuation of others, whose updates come first."""

    async def run(self) -> None:
        """Poll until stopped; raises PlatformError when the connection is lost."""
        try:
            async with asyncio.TaskGroup() as group:
                refusal = await self._poll(group)
        finally:
            self._is_over.set()
        if refusal is not None:
            raise refusal

    async def _poll(self, group: asyncio.TaskGroup) -> PlatformError | None:
        """Poll until stopped; return the error that ended it, if one did."""
        failures = 0
        while not self._stopping.is_set():
            try:
                updates = await self._fetch_whole()
            except TelegramError as error:
                failures += 1
                if (refusal := _refusal(error, failures)) is not None:
                    return refusal
                await self._wait_after(error, failures)
            else:
                failures = 0
                self._pass_on(updates, group)
                if self._tasks:
                    await asyncio.wait(self._tasks, timeout=_POLL_INTERVAL_S)
        return None

    async def stop(self) -> None:
        """Finish accepting what was fetched, and confirm it."""
        self._stopping.set()
        await self._is_over.wait()
        self._acknowledge()
        if self.offset:
            with contextlib.suppress(TelegramError, TimeoutError):
                async with asyncio.timeout(_CONFIRM_TIMEOUT_S):
                    await self._wire.updates(self.offset, timeout_s=0, limit=1)

    async def _fetch_whole(self) -> list[Raw]:
        """Fetch new updates, and the rest of an album or a long text: its parts come one by one."""
        updates = await self._fetch(0 if self._queues else self._timeout_s)
        while bursts.are_open(updates):
            await self._is_stopped_within(self._pause_s)
            more = await self._fetch(0)
            if bursts.count_parts(more) <= bursts.count_parts(updates):
                break
            updates = more
        return updates

    async def _fetch(self, timeout_s: int) -> list[Raw]:
        """Fetch new updates; none when we are stopped, or when the machine slept during the poll."""
        self._acknowledge()
        poll = asyncio.create_task(self._wire.updates(self.offset, timeout_s))
        others = [asyncio.create_task(self._stopping.wait()), asyncio.create_task(_wait_for_wake())]
        try:
            await asyncio.wait([poll, *others], return_when=asyncio.FIRST_COMPLETED)
            updates = poll.result() if poll.done() else []
            # What this poll did not acknowledge comes with it again, also what is on disk by now.
            return [update for update in updates if update["update_id"] not in self._is_stored]
        finally:
            for task in (poll, *others):
                task.cancel()
            await asyncio.gather(poll, *others, return_exceptions=True)

    async def _wait_after(self, error: TelegramError, failures: int) -> None:
        """Wait after a failure."""
        _log.warning("%s Attempt %d follows.", connection_error(error).message, failures + 1)
        # Telegram ends the older of two polls: a quick retry would only throw the other one out.
        doublings = failures - 1 + isinstance(error, Conflict)
        pause_s = self._pause_s * min(2**doublings, _MAX_PAUSE_FACTOR)
        await self._is_stopped_within(
            error.retry_after if isinstance(error, FloodError) else pause_s
        )

    # -- updates on their way to the ingress ---------------------------------------------------------

    def _pass_on(self, updates: Sequence[Raw], group: asyncio.TaskGroup) -> None:
        """Queue new updates behind those of their chat; a group that moved is one chat."""
        self._former |= {new: old for old, new in filter(None, map(moved, updates))}
        for update in updates:
            self._is_stored[update["update_id"]] = False
            chat = _chat(update)
            chat = self._former.get(chat, chat)
            if chat in self._queues:
                self._queues[chat].append(update)
            else:
                self._queues[chat] = deque([update])
                task = group.create_task(self._accept_queue(chat))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _accept_queue(self, chat: str) -> None:
        """Accept the updates of one chat, one after the other, until there are no more."""
        queue = self._queues[chat]
        while queue:
            parts = bursts.whole(queue)
            for update in parts:
                queue.remove(update)
            if not await self._accept(parts):
                return
            self._is_stored |= {update["update_id"]: True for update in parts}
        del self._queues[chat]
        if not self._queues:
            self._former.clear()

    def _acknowledge(self) -> None:
        """Let the next poll acknowledge the updates on disk, up to the first that is not there."""
        for number, is_stored in list(self._is_stored.items()):
            if not is_stored:
                return
            self.offset = number + 1
            del self._is_stored[number]

    async def _accept(self, updates: Sequence[Raw]) -> bool:
        """Accept updates, however long the store refuses; return False when stopped before."""
        retry = StoreRetry("A message of Telegram")
        while True:
            try:
                await self._deliver(updates)
            except StoreError as error:
                if await self._is_stopped_within(retry.pause_after(error)):
                    return False
            else:
                return True

    async def _is_stopped_within(self, seconds: float) -> bool:
        """Wait; a stop ends that. Returns whether there is one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return self._stopping.is_set()


def _refusal(error: TelegramError, failures: int) -> PlatformError | None:
    """Return the error that ends polling; None for a failure that may pass."""
    is_final = isinstance(error, InvalidToken) or failures >= MAX_FAILURES
    return connection_error(error) if is_final else None


async def _wait_for_wake() -> None:
    """Return when the machine has slept: the clock advanced and the process did not."""
    while True:
        before = clock.now()
        await asyncio.sleep(_TICK_S)
        if clock.now() - before > _TICK_S + _SLEEP_THRESHOLD_S:
            return


def _chat(raw: Raw) -> str:
    """Return the chat that an update is about; its updates must keep their order."""
    payload = next((found for part in raw.values() if (found := table(part))), raw)
    chat = table(payload.get("chat")) or table(table(payload.get("message")).get("chat"))
    return str(chat.get("id", ""))
