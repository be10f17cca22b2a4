"""Serves health and metrics on loopback: a page each for people, probes and Prometheus."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import msgspec

from gateway import request_host
from gateway.services import Services
from hermes_core.errors import HermesError, StoreError

_MAX_REQUEST_BYTES = 8192
_BACKLOG = 100


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

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                head = await reader.readuntil(b"\r\n\r\n")
            writer.write(await _response(find(), head))
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            writer.close()

    try:
        listening = socket.create_server(("127.0.0.1", port), backlog=_BACKLOG)
    except OSError as error:
        raise PortTakenError(
            f"Port {port} for health and metrics cannot be used: {error.strerror}.",
            fix="Set gateway.health_port to one that is free, or to 0 for none.",
        ) from error
    server = await asyncio.start_server(answer, sock=listening, limit=_MAX_REQUEST_BYTES, backlog=1)
    listening.listen(_BACKLOG)  # see gateway.platforms.listener
    async with server:
        yield server.sockets[0].getsockname()[1]


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
            "Messages handed in.",
            services.ingress.received_count,
        ),
        _metric("turns_answered_total", "counter", "Turns answered.", turns.answered_count),
        _metric("turns_failed_total", "counter", "Turns that failed.", turns.failed_count),
        _metric("turns_running", "gauge", "Turns that run now.", len(turns.engine.work)),
        _metric("turns_waiting", "gauge", "Turns that wait.", services.queued_count()),
        _metric("pieces_sent_total", "counter", "Pieces delivered.", delivery.sent_count),
        _metric("pieces_failed_total", "counter", "Pieces given up.", delivery.failed_count),
        _metric("pieces_repeated_total", "counter", "Marked repeats.", delivery.repeat_count),
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
