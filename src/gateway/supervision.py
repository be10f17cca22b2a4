"""Supervision of one platform: connected, or trying again; only what cannot get better ends it."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from gateway import status
from gateway.platforms.base import BasePlatformAdapter, Desk, Manifest, PlatformError
from gateway.threads import run_blocking

logger = logging.getLogger(__name__)

_LONGEST_WAIT_S = 60.0
_DISCONNECT_S = 5.0


class Supervisor:
    """Keeps one platform connected."""

    def __init__(
        self,
        manifest: Manifest,
        make: Callable[[], BasePlatformAdapter],
        desk: Desk,
        on_connected: Callable[[str], Awaitable[None]],
    ) -> None:
        self.manifest = manifest
        self.adapter: BasePlatformAdapter | None = None
        """The adapter while it is connected."""
        self.settled = asyncio.Event()
        """Whether the first attempt has come to an end, one way or the other."""
        self.error: PlatformError | None = None
        self._make = make
        self._desk = desk
        self._on_connected = on_connected
        self._lost: asyncio.Queue[PlatformError] = asyncio.Queue()

    async def run(self) -> None:
        """Connect, and connect again, until cancelled or until it is no use."""
        failures = 0
        try:
            while True:
                try:
                    await self._live(is_reconnect=self.settled.is_set())
                    failures = 0
                except PlatformError as error:
                    self._tell_failure(error)
                    if error.is_fatal:
                        return
                    failures += 1
                except Exception as error:
                    logger.exception("%s failed", self.manifest.name)
                    self._tell_failure(PlatformError(f"Something went wrong: {error!r}."))
                    failures += 1
                await asyncio.sleep(_wait(failures))
        finally:
            self.settled.set()

    async def _live(self, *, is_reconnect: bool) -> None:
        """One life of a connection: until it is lost."""
        adapter = self._make()
        loop = asyncio.get_running_loop()

        def lost(error: PlatformError) -> None:
            loop.call_soon_threadsafe(self._lost.put_nowait, error)

        adapter.set_desk(self._desk, lost)
        try:
            await adapter.connect(is_reconnect=is_reconnect)
            self.adapter, self.error = adapter, None
            await self._tell("connected", None)
            await self._on_connected(self.manifest.name)
            self.settled.set()
            raise await self._lost.get()
        finally:
            self.adapter = None
            try:
                await asyncio.wait_for(adapter.disconnect(), _DISCONNECT_S)
            except Exception:
                logger.warning("%s did not end cleanly", self.manifest.name, exc_info=True)

    def _tell_failure(self, error: PlatformError) -> None:
        self.error = error
        logger.warning("%s: %s", self.manifest.name, error)
        self.settled.set()
        state = "failed" if error.is_fatal else "retrying"
        asyncio.get_running_loop().create_task(self._tell(state, error))

    async def _tell(self, state: str, error: PlatformError | None) -> None:
        await run_blocking(
            lambda: status.write_runtime_status(
                platform=self.manifest.name,
                platform_state=state,
                error_code=error.code if error else None,
                error_message=str(error) if error else None,
            )
        )


def _wait(failures: int) -> float:
    return min(_LONGEST_WAIT_S, 0.5 * 2 ** min(failures, 8)) * random.uniform(0.5, 1.0)
