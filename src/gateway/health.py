"""Serves health and metrics on loopback: a page each for people, probes and Prometheus.

The server has a port, a thread and an event loop of its own, so that it answers however busy the other
listeners are, and says so when the event loop of the gateway does not run.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import msgspec

from gateway import request_host
from gateway.blocking import run_blocking
from gateway.services import Services
from hermes_core.errors import HermesError, StoreError

logger = logging.getLogger(__name__)

_MAX_REQUEST_BYTES = 8192
_MAX_CONNECTIONS = 64
_BACKLOG = 100
_READ_TIMEOUT_S = 5.0
_ANSWER_TIMEOUT_S = 8.0
"""Longer than a check of the store may take."""


class PortTakenError(HermesError):
    """The port for health and metrics is in use."""

    code = "port_taken"
    exit_status = 69


@asynccontextmanager
async def serving(find: Callable[[], Services | None], port: int) -> AsyncGenerator[int]:
    """Serve /health and /metrics for the length of a block; port 0 serves nothing.

    While there are no services, the gateway is starting.
    """
    if not port:
        yield 0
        return
    try:
        listening = socket.create_server(("127.0.0.1", port), backlog=_BACKLOG)
    except OSError as error:
        raise PortTakenError(
            f"Port {port} for health and metrics cannot be used: {error.strerror}.",
            fix="Set gateway.health_port to a free port, or to 0 for none.",
        ) from error
    server = _Server(listening, find, asyncio.get_running_loop())
    server.start()
    try:
        yield listening.getsockname()[1]
    finally:
        await run_blocking(server.stop)


class _Server(threading.Thread):
    """The thread that serves the pages."""

    def __init__(
        self,
        listening: socket.socket,
        find: Callable[[], Services | None],
        gateway: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(name="health", daemon=True)
        self._listening = listening
        self._find = find
        self._gateway = gateway
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._open: dict[asyncio.StreamWriter, None] = {}
        """The connections, the oldest one first."""

    def run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    def stop(self) -> None:
        """Close all connections and wait for the end."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self.join()

    async def _serve(self) -> None:
        server = await asyncio.start_server(
            self._answer, sock=self._listening, limit=_MAX_REQUEST_BYTES, backlog=1
        )
        self._listening.listen(_BACKLOG)  # see gateway.platforms.listener
        async with server:
            await self._stopping.wait()
            server.close()
            for writer in self._open:
                writer.transport.abort()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.wait(tasks, timeout=_READ_TIMEOUT_S) if tasks else None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= _MAX_CONNECTIONS:
            next(iter(self._open)).transport.abort()
        self._open[writer] = None
        try:
            async with asyncio.timeout(_READ_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            writer.write(await self._ask(head))
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            del self._open[writer]
            writer.close()

    async def _ask(self, head: bytes) -> bytes:
        """Return the answer of the gateway; one of our own when it gives none."""
        response = asyncio.run_coroutine_threadsafe(_response(self._find(), head), self._gateway)
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                return await asyncio.wrap_future(response)
        except TimeoutError:
            logger.warning("The event loop of the gateway did not answer within seconds")
            return _page(503, b"application/json", b'{"status":"unresponsive"}')


async def _response(services: Services | None, head: bytes) -> bytes:
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if not _is_asked_here(head):
        return _page(
            403, b"text/plain", b"Use 127.0.0.1 or localhost; requests of web pages are rejected.\n"
        )
    if method != b"GET":
        return _page(405, b"text/plain", b"GET only\n")
    if path not in (b"/health", b"/metrics"):
        return _page(404, b"text/plain", b"/health and /metrics\n")
    if services is None:
        return _page(503, b"application/json", b'{"status":"starting"}')
    if path == b"/health":
        body = await health(services)
        return _page(
            200 if body["status"] == "ok" else 503, b"application/json", msgspec.json.encode(body)
        )
    return _page(200, b"text/plain; version=0.0.4", metrics(services).encode())


def _is_asked_here(head: bytes) -> bool:
    """Return whether a request names this machine, which one from a foreign web page does not."""
    lines = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])
    headers = [(name.strip().lower(), value.strip().lower()) for name, _, value in lines]
    hosts_named = [f"//{value}" for name, value in headers if name == "host"]
    origins = [value for name, value in headers if name == "origin"]
    return bool(hosts_named) and all(
        request_host.is_loopback(request_host.name_of(url)) for url in (*hosts_named, *origins)
    )


def _page(status: int, kind: bytes, body: bytes) -> bytes:
    reasons = {
        200: b"OK",
        403: b"Forbidden",
        404: b"Not Found",
        405: b"Method Not Allowed",
        503: b"Unavailable",
    }
    return (
        b"HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        % (status, reasons[status], kind, len(body))
    ) + body


async def health(services: Services) -> dict[str, object]:
    """Report whether the store works and every platform is connected."""
    store = "ok"
    try:
        await services.ingress.check_health()
    except StoreError as error:
        store = str(error)
    platforms = {
        each.manifest.name: "connected"
        if each.adapter is not None
        else str(each.error or "connecting")
        for each in services.connections.supervisors
    }
    return {
        "status": _status(services, store),
        "store": store,
        "platforms": platforms,
        "running_turns": len(services.turns.engine.work),
        "waiting_turns": services.queued_count(),
    }


def _status(services: Services, store: str) -> str:
    if store != "ok":
        return "unhealthy"
    return "ok" if services.connections.is_complete else "degraded"


def metrics(services: Services) -> str:
    """Return the metrics in the text format of Prometheus."""
    delivery, turns = services.delivery, services.turns
    lines = [
        _metric(
            "messages_received_total",
            "counter",
            "Received messages.",
            services.ingress.received_count,
        ),
        _metric("turns_answered_total", "counter", "Answered turns.", turns.answered_count),
        _metric("turns_failed_total", "counter", "Failed turns.", turns.failed_count),
        _metric("turns_running", "gauge", "Running turns.", len(turns.engine.work)),
        _metric("turns_queued", "gauge", "Queued turns.", services.queued_count()),
        _metric("parts_sent_total", "counter", "Sent parts of replies.", delivery.sent_count),
        _metric(
            "parts_failed_total", "counter", "Parts that could not be sent.", delivery.failed_count
        ),
        _metric(
            "parts_repeated_total",
            "counter",
            "Parts sent again with a mark.",
            delivery.repeat_count,
        ),
        _metric("agents_awake", "gauge", "Conversations in memory.", len(turns.engine.agents)),
    ]
    up = [
        f'hermes_gateway_platform_up{{platform="{each.manifest.name}"}} {int(each.adapter is not None)}'
        for each in services.connections.supervisors
    ]
    if up:
        name, text = "hermes_gateway_platform_up", "Whether a platform is connected."
        lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge", *up]
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, text: str, value: float) -> str:
    full = f"hermes_gateway_{name}"
    return f"# HELP {full} {text}\n# TYPE {full} {kind}\n{full} {value}"
