"""An HTTP server in the gateway's own event loop, which strangers cannot exhaust."""

import asyncio
import errno
import ipaddress
import logging
import resource
import socket
from collections.abc import Sequence

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway import request_host
from gateway.platforms.base import PlatformError
from gateway.platforms.refusal import RefusedRequest

logger = logging.getLogger(__name__)

_KEEP_ALIVE_S = 75
"""Longer than clients keep idle connections, so that it is they who close them."""
_BODY_TIMEOUT_S = 60.0
HEADER_TIMEOUT_S = 10.0
MAX_HEADER_BYTES = 64 * 1024
MAX_CONNECTIONS = 1000
MAX_CONNECTIONS_PER_CLIENT = 100
"""Per address, but not of this machine: behind a proxy everybody has its address."""
_BACKLOG = 2048
_TEMPORARY_ERRORS = (errno.EADDRINUSE, errno.EADDRNOTAVAIL)


class _LimitedProtocol(HttpToolsProtocol):
    """HTTP/1.1 with a deadline and a size limit for headers, and limits of connections.

    uvicorn has a size limit with h11 alone, no deadline, and refuses new clients at its limit of
    connections, so that half-sent requests keep everybody out. Here they make room, the oldest first.
    """

    _received_bytes = 0
    """The bytes received of headers that are not complete."""
    _header_bytes = 0
    """The bytes of the headers that were parsed."""
    _header_deadline: asyncio.TimerHandle | None = None

    made_at = 0.0
    _network = ""
    """The client, as far as limits tell it from others."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.made_at = self.loop.time()
        self._network = _network_of(self.client[0] if self.client else "")
        if self._has_room():
            self._expect_headers()
        else:
            text = "There are too many connections. Close some, or try again in a second."
            headers = {"Retry-After": "1"}
            self._reject(RefusedRequest(503, text, code="connection_limit", headers=headers))

    def _has_room(self) -> bool:
        """Return whether this connection keeps the limits, after closing others for it if need be."""
        others = [
            other
            for other in self.connections
            if isinstance(other, _LimitedProtocol)
            and other is not self
            and not other.transport.is_closing()
        ]
        peers = [other for other in others if other._network == self._network]
        is_near = request_host.is_loopback(self._network)
        has_share = is_near or _make_room(peers, MAX_CONNECTIONS_PER_CLIENT)
        return has_share and _make_room(others, _max_connections())

    @property
    def awaits_client(self) -> bool:
        """Return whether the next thing is for the client to send."""
        cycle = self.cycle
        if not self.has_begun or cycle.response_complete:
            return True
        return cycle.more_body and not cycle.response_started

    @property
    def has_begun(self) -> bool:
        """Return whether a request has come whole, but perhaps for its body."""
        return bool(self.cycle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._header_deadline is not None:
            self._received_bytes += len(data)
            if self._received_bytes > MAX_HEADER_BYTES:
                self._reject(_too_large())

    def on_message_begin(self) -> None:
        self._expect_headers()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_deadline()
        if self._header_bytes + len(self.url) > MAX_HEADER_BYTES:
            raise ValueError("the headers are too large")  # becomes send_400_response
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        if self._header_bytes > MAX_HEADER_BYTES:
            self._reject(_too_large())
        elif not self.transport.is_closing():
            super().send_400_response(msg)

    def _expect_headers(self) -> None:
        self._stop_deadline()
        self._received_bytes = self._header_bytes = 0
        self._header_deadline = self.loop.call_later(HEADER_TIMEOUT_S, self._give_up)

    def _stop_deadline(self) -> None:
        if self._header_deadline is not None:
            self._header_deadline.cancel()
            self._header_deadline = None

    def _give_up(self) -> None:
        text = "The headers did not arrive in time."
        self._reject(RefusedRequest(408, text, code="header_timeout"))

    def _reject(self, refused: RefusedRequest) -> None:
        """Answer what is not a whole request, and close the connection."""
        self._stop_deadline()
        if not self.transport.is_closing():
            self.transport.write(refused.as_http())
            self.transport.close()


def _too_large() -> RefusedRequest:
    text = f"The headers are larger than {MAX_HEADER_BYTES} bytes."
    return RefusedRequest(431, text, code="headers_too_large")


def _make_room(connections: Sequence[_LimitedProtocol], limit: int) -> bool:
    """Close the oldest connection that awaits its client, unless there is room for one more.

    Returns False when all of them are being answered. Those that never sent a request go first.
    """
    if len(connections) < limit:
        return True
    idle = [each for each in connections if each.awaits_client]
    if not idle:
        return False
    min(idle, key=lambda each: (each.has_begun, each.made_at)).transport.abort()
    return True


def _network_of(host: str) -> str:
    """Return the address of a client; of IPv6 the network, as each client has a whole one."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address) or address.is_loopback:
        return host
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((host, 64), strict=False).network_address)


def _max_connections() -> int:
    """Leave most file descriptors of this process to the store and to tools."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if soft < 0 else max(8, min(MAX_CONNECTIONS, soft // 4))


class Listener:
    """One listening socket. Uvicorn without its main loop, its signals and its log."""

    def __init__(self, app: ASGIApp, host: str, port: int, *, grace_s: int = 3) -> None:
        """`grace_s`: how long requests under way may take to end when the listener stops."""
        self._host, self._requested_port = host, port
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                interface="asgi3",
                http=_LimitedProtocol,
                backlog=1,
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
        """The port that it listens on, once it has started."""
        return self._socket.getsockname()[1] if self._socket else self._requested_port

    @property
    def url(self) -> str:
        """The address of its root."""
        return f"http://{f'[{self._host}]' if ':' in self._host else self._host}:{self.port}"

    async def start(self) -> None:
        """Listen; raises PlatformError when the address cannot be had."""
        self._socket = _bound(self._host, self._requested_port)
        config = self._server.config
        config.load()
        self._server.lifespan = config.lifespan_class(config)
        await self._server.startup(sockets=[self._socket])
        # For asyncio the backlog is also how often it accepts in a row: without free descriptors it
        # would report every one of these as an error, and try again for each.
        self._socket.listen(_BACKLOG)

    async def stop(self) -> None:
        """Take no more requests, give those under way a moment, and close."""
        if self._socket is None:
            return
        opened, self._socket = self._socket, None
        await self._server.shutdown(sockets=[opened])


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Only of a socket that says it is TCP does asyncio switch off the waiting of small packets.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise PlatformError(
            f"Cannot listen on {host} port {port}: {error.strerror or error}.",
            fix="Set `host` and `port` to a free address of this machine.",
            is_fatal=error.errno not in _TEMPORARY_ERRORS,
        ) from error
    return listening


async def read_body(request: Request, limit: int) -> bytes:
    """Read the whole body; raises RefusedRequest when it is too large, too slow, or breaks off."""
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
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
