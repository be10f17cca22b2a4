"""StoreMonitor: checks the store for health, and so that no request waits for one that is lost."""

import asyncio
import logging
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from gateway.blocking import run_blocking
from hermes_core import clock
from hermes_core.errors import StoreBusyError, StoreError, StoreGoneError, describe_error
from hermes_state.ledger import meta
from hermes_state.store import Store

logger = logging.getLogger(__name__)

T = TypeVar("T")

CHECK_TIMEOUT_S = 3.0
_FRESH_S = 2.0
"""How long the outcome of a check is used for other checks."""
_WATCH_INTERVAL_S = 2.0
_KEY = "gateway.health_checked_at"


class StoreMonitor:
    """Checks one store. Made inside an event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._check: asyncio.Future[None] | None = None
        """The running check, or the last one."""
        self._checked_at = 0.0
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def check(self) -> None:
        """Write to the store and read from it; raises StoreError when that fails or takes too long."""
        if self._lost.done():
            self._lost.result()
        loop = asyncio.get_running_loop()
        is_stale = loop.time() - self._checked_at > _FRESH_S
        if self._check is None or (self._check.done() and is_stale):
            self._check, self._checked_at = self._begin_check(), loop.time()
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                await asyncio.shield(self._check)
        except TimeoutError:
            raise StoreBusyError(
                f"The store did not answer within {CHECK_TIMEOUT_S:g} seconds.",
                fix="See what holds it up with: hermes doctor",
            ) from None

    def _begin_check(self) -> asyncio.Future[None]:
        """Check in a new thread: those of the gateway may all be waiting for the store."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[None] = loop.create_future()
        outcome.add_done_callback(lambda done: done.exception())  # nobody may await it

        def settle(error: Exception | None) -> None:
            if error is None:
                outcome.set_result(None)
            else:
                outcome.set_exception(error)

        def work() -> None:
            error = _failure_of(self._store)
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, error)

        try:
            threading.Thread(target=work, name="store-check", daemon=True).start()
        except RuntimeError as error:  # no memory for a thread
            outcome.set_exception(StoreBusyError(f"The store cannot be checked: {error}."))
        return outcome

    async def watch(self) -> None:
        """Check from time to time whether the store file exists; end when it is gone."""
        while not self._lost.done():
            await asyncio.sleep(_WATCH_INTERVAL_S)
            try:
                await run_blocking(self._store.check_file)
            except StoreGoneError as error:
                logger.critical("The store is gone: %s", error)
                self._lost.set_exception(error)
                self._lost.exception()
            except (StoreError, OSError, RuntimeError) as error:  # no memory; it is tried again
                logger.warning("Could not check the store: %s", describe_error(error))

    async def cancel_when_lost(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`; raises StoreGoneError when the store is gone before it ends."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._lost}, return_when="FIRST_COMPLETED")
            if not task.done():
                self._lost.result()
            return task.result()
        finally:
            task.cancel()


def _failure_of(store: Store) -> Exception | None:
    """Use the store; return its error."""
    try:
        store.write(meta.put, _KEY, f"{clock.now():.0f}")
        store.read(meta.get, _KEY)
        store.check_file()
    except StoreError as error:
        return error
    except (OSError, RuntimeError, MemoryError) as error:
        return StoreBusyError(f"The store cannot be used now: {type(error).__name__}.")
    return None
