"""Transport of frames to a child process over its pipes, one JSON object per line."""

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

_MAX_LINE_BYTES = 64 * 1024 * 1024
_KEPT_LINES = 40
_EXIT_TIMEOUT_S = 0.3
SERVER_COMMAND = (sys.executable, "-m", "tui_gateway.entry")


class Transport(Protocol):
    """One connection to a server, from its opening to its end."""

    async def send(self, frame: bytes) -> None:
        """Hand over one frame; raises ConnectionError when the other side is gone."""
        ...

    def frames(self) -> AsyncIterator[bytes]:
        """Every frame of the server, until the connection ends."""
        ...

    async def close(self, grace_s: float) -> None:
        """End the connection; what has not ended by then is made to."""
        ...

    def last_words(self) -> str:
        """Return the reason why the connection ended."""
        ...


class ChildTransport:
    """A server that is our own child process.

    It gets a process group of its own: what the terminal sends to ours does not reach it, and it ends by
    the closing of its input, in good order.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._complaints: deque[str] = deque(maxlen=_KEPT_LINES)
        self._listening = asyncio.ensure_future(self._hear_complaints())

    @classmethod
    async def start(cls, command: Sequence[str] = SERVER_COMMAND) -> "ChildTransport":
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_MAX_LINE_BYTES,
            start_new_session=True,
        )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def send(self, frame: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(frame + b"\n")
        await self._process.stdin.drain()

    async def frames(self) -> AsyncIterator[bytes]:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            yield line
        # What it said last and how it ended; a grandchild may hold stderr open for ever.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_TIMEOUT_S):
                await self._process.wait()
                await asyncio.shield(self._listening)

    async def _hear_complaints(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self._complaints.append(line.decode("utf-8", "replace").rstrip())

    async def close(self, grace_s: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(grace_s):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
        self._listening.cancel()

    def last_words(self) -> str:
        status = self._process.returncode
        last_line = next((line for line in reversed(self._complaints) if line.strip()), "")
        if status is not None and status < 0:
            return f"it was killed by signal {-status}"
        ended = "its output was closed" if status is None else f"it ended with status {status}"
        return f"{ended}: {last_line}" if last_line else ended
