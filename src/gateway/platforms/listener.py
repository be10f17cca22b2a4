"""A listener: an HTTP server in the gateway's own event loop, and what its requests may be."""

import asyncio
import errno
import logging
import socket

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp

from gateway.platforms.base import PlatformError
from gateway.platforms.refusal import RefusedRequest

logger = logging.getLogger(__name__)

_KEEP_ALIVE_S = 75
"""Longer than clients keep idle connections, so that it is they who close them."""
_BODY_WITHIN_S = 60.0
_PASSING = (errno.EADDRINUSE, errno.EADDRNOTAVAIL)


class Listener:
    """One listening socket. Uvicorn without its main loop, its signals and its log."""

    def __init__(self, app: ASGIApp, host: str, port: int, *, grace_s: int = 3) -> None:
        """`grace_s`: how long requests under way may take to end when the listener stops."""
        self._host, self._wanted = host, port
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                interface="asgi3",
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=grace_s,
            )
        )
        self._socket: socket.socket | None = None

    @property
    def port(self) -> int:
        """Where it listens; known when it has started."""
        return self._socket.getsockname()[1] if self._socket else self._wanted

    async def start(self) -> None:
        """Listen; raises PlatformError when the address cannot be had."""
        self._socket = _bound(self._host, self._wanted)
        config = self._server.config
        config.load()
        self._server.lifespan = config.lifespan_class(config)
        await self._server.startup(sockets=[self._socket])

    async def stop(self) -> None:
        """Take no more requests, give those under way a moment, and close."""
        if self._socket is None:
            return
        opened, self._socket = self._socket, None
        await self._server.shutdown(sockets=[opened])


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Only of a socket that says it is TCP does asyncio switch off the waiting of small packets.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(2048)
    except OSError as error:
        made.close()
        raise PlatformError(
            f"{host} port {port} cannot be listened on: {error.strerror or error}.",
            fix="Give `host` and `port` an address of this machine that nobody uses.",
            is_fatal=error.errno not in _PASSING,
        ) from error
    return made


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body; raises RefusedRequest when it is too large, too slow, or breaks off."""
    try:
        async with asyncio.timeout(_BODY_WITHIN_S):
            return await _read(request, limit)
    except TimeoutError:
        raise RefusedRequest(408, "The body did not arrive in time.", code="body_timeout") from None
    except ClientDisconnect:
        raise RefusedRequest(400, "The body broke off.", code="body_incomplete") from None


async def _read(request: Request, limit: int) -> bytes:
    size, chunks = 0, list[bytes]()
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
        elif size > 2 * limit:
            break
    if size <= limit:
        return b"".join(chunks)
    # What is a little too large was read to its end: a client that still writes hears no answer.
    raise RefusedRequest(
        413,
        f"The body is larger than {limit >> 20} MiB.",
        code="body_too_large",
        headers={"Connection": "close"},
    )
