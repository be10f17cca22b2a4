"""Supervisor: keeps one platform connected; only a fatal error ends it."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from gateway import status
from gateway.adapter_calls import attempted, called, is_end_of, own_task
from gateway.blocking import run_blocking
from gateway.platforms.base import BasePlatformAdapter, Ingress, Manifest, PlatformError
from hermes_cli.plugin_calls import is_user_interrupt
from hermes_core.errors import describe_error

logger = logging.getLogger(__name__)

_MAX_RETRY_DELAY_S = 60.0
_DISCONNECT_TIMEOUT_S = 5.0


class Supervisor:
    """Keeps one platform connected."""

    def __init__(
        self,
        manifest: Manifest,
        make: Callable[[], BasePlatformAdapter],
        ingress: Ingress,
        on_connected: Callable[[str, BasePlatformAdapter], Awaitable[None]],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.manifest = manifest
        self.adapter: BasePlatformAdapter | None = None
        """The adapter while it is connected."""
        self.settled = asyncio.Event()
        """Set when the first attempt has ended, either way."""
        self.error: PlatformError | None = None
        self._make = make
        self._ingress = ingress
        self._on_connected = on_connected
        self._on_change = on_change
        self._prepared: BasePlatformAdapter | None = None
        self._is_reached = False
        """Whether the last attempt connected."""

    def prepare(self) -> None:
        """Make the first adapter; a failure is reported by `run`."""
        try:
            self._prepared = self._make()
        except BaseException as error:
            if is_user_interrupt(error):
                raise
            logger.debug("Platform %s could not be created yet", self.manifest.name, exc_info=True)

    async def run(self) -> None:
        """Connect, and reconnect, until cancelled or until a fatal error."""
        failures = 0
        try:
            await self._report("connecting", None)
            while True:
                began = asyncio.get_running_loop().time()
                error = await self._run_connection()
                await self._report_failure(error)
                if error.is_fatal:
                    return
                lasted = asyncio.get_running_loop().time() - began
                failures = 1 if lasted > _MAX_RETRY_DELAY_S else failures + 1
                wait_s = _wait(failures)
                self._log(logging.INFO, "Retrying platform", seconds=round(wait_s, 3))
                await asyncio.sleep(wait_s)
        finally:
            self.settled.set()

    async def _run_connection(self) -> PlatformError:
        """Connect and wait for the end of the connection; return the error that ended it."""
        task = own_task()
        try:
            return await self._live(is_reconnect=self.settled.is_set())
        except PlatformError as error:
            return error
        except BaseException as error:
            if is_end_of(task, error):
                raise
            logger.exception("Platform %s failed", self.manifest.name)
            return PlatformError(f"Something went wrong: {describe_error(error)}.")

    async def _live(self, *, is_reconnect: bool) -> PlatformError:
        """Connect and wait until the connection is lost; return the reason."""
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
            await self._report("connected", None)
            await self._on_connected(self.manifest.name, adapter)
            self.settled.set()
            return await losses.get()
        finally:
            self.adapter = None
            await attempted(f"Disconnecting {self.manifest.name}", _disconnect, adapter)

    async def _report_failure(self, error: PlatformError) -> None:
        self.error = error
        word = "given up" if error.is_fatal else "lost" if self._is_reached else "not reached"
        self._log(logging.WARNING, f"platform {word}", reason=str(error), code=error.code)
        await self._report("failed" if error.is_fatal else "retrying", error)
        self.settled.set()

    async def _report(self, state: str, error: PlatformError | None) -> None:
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


async def _disconnect(adapter: BasePlatformAdapter) -> None:
    async with asyncio.timeout(_DISCONNECT_TIMEOUT_S):
        await called(adapter.disconnect)


async def end(
    tasks: Collection[asyncio.Task[Any]], again_s: float = _DISCONNECT_TIMEOUT_S + 1
) -> None:
    """Cancel tasks until they are done: a platform's library may swallow a cancellation."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=again_s)


def _wait(failures: int) -> float:
    return min(_MAX_RETRY_DELAY_S, 0.5 * 2 ** min(failures, 8)) * random.uniform(0.5, 1.0)
