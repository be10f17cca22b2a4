"""The client at the other end of a request: what is done for it ends when it hangs up, or we do."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

T = TypeVar("T")

KEEP_ALIVE_S = 15.0
_SIGN_OF_LIFE = b": working\n\n"

Put = Callable[[bytes], Awaitable[None]]


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


class Closing(Exception):
    """The gateway stops; the turn is on disk and goes on when it is back."""


async def attended(
    work: Coroutine[Any, Any, T],
    receive: Receive,
    closing: asyncio.Future[None],
    sign_of_life: Callable[[], Awaitable[None]] | None = None,
) -> T:
    """Do something for a client as long as both sides are there; raises ClientGone and Closing."""
    task, gone = asyncio.create_task(work), asyncio.create_task(_hang_up(receive))
    awaited: set[asyncio.Future[Any]] = {task, gone, closing}
    every = KEEP_ALIVE_S if sign_of_life else None
    try:
        while not (await asyncio.wait(awaited, timeout=every, return_when="FIRST_COMPLETED"))[0]:
            if sign_of_life:
                await sign_of_life()
        if task.done():
            return task.result()
        raise ClientGone if gone.done() else Closing
    finally:
        awaited.remove(closing)
        task.cancel()
        gone.cancel()
        await asyncio.gather(*awaited, return_exceptions=True)


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Server-sent events; `run` writes them."""

    media_type = "text/event-stream"

    def __init__(
        self, run: Callable[[Receive, Put], Awaitable[None]], headers: dict[str, str]
    ) -> None:
        self._run = run
        self.status_code, self.background = 200, None
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no", **headers})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def put(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await self._run(receive, put)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def keep_alive(put: Put) -> None:
    """Say something that no client reads, so that nobody takes silence for an end."""
    await put(_SIGN_OF_LIFE)
