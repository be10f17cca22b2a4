"""An event loop in a thread of its own, for tests that are plain functions."""

import asyncio
import contextlib
import os
import selectors
import socket
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

TIMEOUT_S = 10.0
"""How long anything is waited for, unless a test says otherwise."""

_T = TypeVar("_T")


class Background:
    """A loop that runs from `start` to `stop`."""

    def __init__(self, name: str) -> None:
        self._selector = selectors.DefaultSelector()
        self.loop = asyncio.SelectorEventLoop(self._selector)
        self._name = name
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "Background":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Run the loop; also one that was killed."""
        self._thread = threading.Thread(target=self.loop.run_forever, name=self._name, daemon=True)
        self._thread.start()

    def kill(self) -> None:
        """Stop in the middle of everything, as a killed process does: only the sockets are shut."""
        self._freeze()
        for key in list(self._selector.get_map().values()):
            with socket.socket(fileno=os.dup(key.fd)) as connection, contextlib.suppress(OSError):
                if connection.family not in (socket.AF_INET, socket.AF_INET6):
                    continue  # the loop's own
                if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    self.loop.remove_reader(key.fd)
                connection.shutdown(socket.SHUT_RDWR)

    def _freeze(self) -> None:
        self.call(self.loop.stop)
        if self._thread:
            self._thread.join(TIMEOUT_S)

    def run(self, work: Coroutine[Any, Any, _T], timeout: float = TIMEOUT_S) -> _T:
        """Run a coroutine in the loop and wait for it; raises TimeoutError."""
        done = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return done.result(timeout)
        except TimeoutError:
            done.cancel()
            raise

    def call(self, do: Callable[..., object], *arguments: object) -> None:
        """Call a function in the loop, soon."""
        self.loop.call_soon_threadsafe(do, *arguments)

    def tasks(self) -> set[str]:
        """The names of what goes on in the loop."""

        async def running() -> set[str]:
            mine = asyncio.current_task()
            return {repr(task) for task in asyncio.all_tasks() if task is not mine}

        return self.run(running())

    def stop(self) -> None:
        """End what still goes on, and the loop."""
        self.run(self._cancel())
        self._freeze()
        self.loop.close()

    async def _cancel(self) -> None:
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await self.loop.shutdown_default_executor()
