"""Supervision of one platform: connected, or trying again; only what cannot get better ends it."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from gateway import status
from gateway.adapter_calls import called, is_end_of, own_task
from gateway.blocking import run_blocking
from gateway.platforms.base import BasePlatformAdapter, Ingress, Manifest, PlatformError
from hermes_cli.plugin_calls import is_of_a_person
from hermes_core.errors import describe_error

logger = logging.getLogger(__name__)

_LONGEST_WAIT_S = 60.0
_DISCONNECT_S = 5.0


class Supervisor:
    """Keeps one platform connected."""

    def __init__(
        self,
        manifest: Manifest,
        make: Callable[[], BasePlatformAdapter],
        ingress: Ingress,
        on_connected: Callable[[str], Awaitable[None]],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.manifest = manifest
        self.adapter: BasePlatformAdapter | None = None
        """The adapter while it is connected."""
        self.settled = asyncio.Event()
        """Whether the first attempt has come to an end, one way or the other."""
        self.error: PlatformError | None = None
        self._make = make
        self._ingress = ingress
        self._on_connected = on_connected
        self._on_change = on_change
        self._prepared: BasePlatformAdapter | None = None
        self._is_reached = False
        """Whether the life that is, or was the last, began with a connection."""

    def prepare(self) -> None:
        """Make the adapter of the first life; what fails now is told when that begins."""
        try:
            self._prepared = self._make()
        except BaseException as error:
            if is_of_a_person(error):
                raise
            logger.debug("%s is not made yet", self.manifest.name, exc_info=True)

    async def run(self) -> None:
        """Connect, and connect again, until cancelled or until it is no use."""
        failures = 0
        try:
            await self._tell("connecting", None)
            while True:
                began = asyncio.get_running_loop().time()
                error = await self._end_of_life()
                await self._tell_failure(error)
                if error.is_fatal:
                    return
                lasted = asyncio.get_running_loop().time() - began
                failures = 1 if lasted > _LONGEST_WAIT_S else failures + 1
                wait_s = _wait(failures)
                self._log(logging.INFO, "platform is tried again", seconds=round(wait_s, 3))
                await asyncio.sleep(wait_s)
        finally:
            self.settled.set()

    async def _end_of_life(self) -> PlatformError:
        """Connect and live; returns why it is over, whatever an adapter raises."""
        task = own_task()
        try:
            return await self._live(is_reconnect=self.settled.is_set())
        except PlatformError as error:
            return error
        except BaseException as error:
            if is_end_of(task, error):
                raise
            logger.exception("%s failed", self.manifest.name)
            return PlatformError(f"Something went wrong: {describe_error(error)}.")

    async def _live(self, *, is_reconnect: bool) -> PlatformError:
        """One life of a connection: until it is lost, for the reason that is returned."""
        self._is_reached = False
        adapter = self._prepared or self._make()
        self._prepared = None
        loop = asyncio.get_running_loop()
        losses: asyncio.Queue[PlatformError] = asyncio.Queue()

        def lost(error: PlatformError) -> None:
            loop.call_soon_threadsafe(losses.put_nowait, error)

        adapter.set_ingress(self._ingress, lost)
        try:
            await called(adapter.connect, is_reconnect=is_reconnect)
            self.adapter, self.error, self._is_reached = adapter, None, True
            self._log(logging.INFO, "platform connected", is_reconnect=is_reconnect)
            await self._tell("connected", None)
            await self._on_connected(self.manifest.name)
            self.settled.set()
            return await losses.get()
        finally:
            self.adapter = None
            try:
                async with asyncio.timeout(_DISCONNECT_S):
                    await called(adapter.disconnect)
            except Exception:
                logger.warning("%s did not end cleanly", self.manifest.name, exc_info=True)

    async def _tell_failure(self, error: PlatformError) -> None:
        self.error = error
        word = "given up" if error.is_fatal else "lost" if self._is_reached else "not reached"
        self._log(logging.WARNING, f"platform {word}", reason=str(error), code=error.code)
        await self._tell("failed" if error.is_fatal else "retrying", error)
        self.settled.set()

    async def _tell(self, state: str, error: PlatformError | None) -> None:
        await run_blocking(
            lambda: status.write_runtime_status(
                platform=self.manifest.name,
                platform_state=state,
                error_code=error.code if error else None,
                error_message=str(error) if error else None,
            )
        )
        self._on_change()

    def _log(self, level: int, message: str, **fields: object) -> None:
        logger.log(level, message, extra={"platform": self.manifest.name, **fields})


async def end(tasks: Collection[asyncio.Task[Any]], again_s: float = _DISCONNECT_S + 1) -> None:
    """Cancel tasks until they are over: a platform's library may swallow a cancellation."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=again_s)


def _wait(failures: int) -> float:
    return min(_LONGEST_WAIT_S, 0.5 * 2 ** min(failures, 8)) * random.uniform(0.5, 1.0)
