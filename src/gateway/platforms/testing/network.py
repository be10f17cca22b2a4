"""A network that fails on demand: a proxy on loopback in front of any server.

    with Proxy("127.0.0.1", server_port) as proxy:
        ...  # a client talks to proxy.address
        proxy.cut()

`python -m gateway.platforms.testing.network HOST:PORT` runs it alone; its faults are then lines of
standard input: `cut`, `delay 0.5`, `cut_before_response`.
"""

import argparse
import asyncio
import contextlib
import inspect
import socket
import struct
import sys
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from gateway.platforms.testing.background import Background

_CHUNK = 65536
_TRICKLES_A_SECOND = 20
_NO_LINGERING = struct.pack("ii", 1, 0)


@dataclass
class _Trap:
    """Breaks the connection on which a request comes that contains `request`."""

    request: bytes
    passes: int
    """How many bytes of the answer still go through."""
    sprung: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.is_partial = self.passes > 0


@dataclass(eq=False)
class _Connection:
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    trap: _Trap | None = None
    is_half_closed: bool = False
    seen: bytes = b""
    """The end of what was asked, in which the begin of a trap's request may be."""

    def reset(self) -> None:
        reset(self.client)
        reset(self.server)


class Proxy:
    """Passes on what is said in both directions, unless it was told otherwise."""

    def __init__(self, target_host: str, target_port: int, port: int = 0) -> None:
        self._target = (target_host, target_port)
        self._port = port
        self._background = Background("proxy")
        self._listening: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._passes = asyncio.Event()
        self._delay_s = 0.0
        self._bytes_a_second = 0
        self._trap: _Trap | None = None

    def __enter__(self) -> "Proxy":
        self._background.start()
        self.heal()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.refuse()
        self.cut()
        self._background.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    def heal(self) -> None:
        """Be a good network again, for those who are connected too."""
        self.delay(0)
        self.trickle(0)
        self._background.call(self._passes.set)
        self.accept()

    def cut(self) -> None:
        """Break every connection, at both ends."""
        self._do(self._cut())

    def refuse(self) -> None:
        """Take no new connections; those that are there stay."""
        self._do(self._refuse())

    def accept(self) -> None:
        """Take connections again, at the same address."""
        self._do(self._accept())

    def blackhole(self) -> None:
        """Pass nothing on, and say nothing about it. What is said meanwhile is passed on by `heal`."""
        self._background.call(self._passes.clear)

    def delay(self, seconds: float) -> None:
        """Pass everything on so much later."""
        self._delay_s = seconds

    def trickle(self, bytes_per_second: int) -> None:
        """Pass on so little at a time; 0: as much as there is."""
        self._bytes_a_second = bytes_per_second

    def half_close(self) -> None:
        """Tell the clients that nothing more will come, but go on listening to them."""
        self._do(self._half_close())

    def cut_after_response_bytes(self, count: int, request: bytes = b"") -> threading.Event:
        """Break the connection of the next request when so much of its answer went through.

        `request` is a part of the request that is meant, for clients that make several at once. The
        event says when it happened.
        """
        self._trap = _Trap(request, count)
        return self._trap.sprung

    def cut_before_response(self, request: bytes = b"") -> threading.Event:
        """Let the next request through and lose its answer."""
        return self.cut_after_response_bytes(0, request)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        self._background.run(work)

    async def _cut(self) -> None:
        for connection in self._connections:
            connection.reset()

    async def _refuse(self) -> None:
        if self._listening:
            self._listening.close()
            self._listening = None

    async def _accept(self) -> None:
        if self._listening is None:
            self._listening = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
            self._port = self._listening.sockets[0].getsockname()[1]

    async def _half_close(self) -> None:
        for connection in self._connections:
            connection.is_half_closed = True
            _end(connection.client)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, server = await asyncio.open_connection(*self._target)
        except OSError:
            reset(writer)
            return
        connection = _Connection(writer, server)
        self._connections.add(connection)
        try:
            await asyncio.gather(self._ask(reader, connection), self._answer(there, connection))
        except (OSError, RuntimeError):
            connection.reset()  # both ends must see the failure
        finally:
            self._connections.discard(connection)
            writer.close()
            server.close()

    async def _ask(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        while data := await self._read(reader):
            self._set_trap(connection, data)
            connection.server.write(data)
            await connection.server.drain()
        _end(connection.server)

    async def _answer(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        while data := await self._read(reader):
            if connection.trap:
                data = data[: connection.trap.passes]
                connection.trap.passes -= len(data)
            if not connection.is_half_closed:
                connection.client.write(data)
                await connection.client.drain()
            if connection.trap and not connection.trap.passes:
                self._spring(connection.trap, connection)
                return
        if not connection.is_half_closed:
            _end(connection.client)

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        """Read the data to pass on now; raises ConnectionError when it was cut off."""
        rate = self._bytes_a_second
        data = await reader.read(max(1, rate // _TRICKLES_A_SECOND) if rate else _CHUNK)
        await self._passes.wait()
        await asyncio.sleep(1 / _TRICKLES_A_SECOND if self._bytes_a_second else self._delay_s)
        return data

    def _set_trap(self, connection: _Connection, data: bytes) -> None:
        trap = self._trap
        request, connection.seen = connection.seen + data, data[-1024:]
        if trap and trap.request in request:
            connection.trap, self._trap = trap, None

    def _spring(self, trap: _Trap, connection: _Connection) -> None:
        if trap.is_partial:
            connection.client.close()  # a reset could overtake what is to arrive
        else:
            reset(connection.client)
        reset(connection.server)
        trap.sprung.set()


def reset(writer: asyncio.StreamWriter) -> None:
    """Break a connection at once: what was not yet sent is lost, and the other side has an error."""
    link: socket.socket | None = writer.get_extra_info("socket")
    if link:
        with contextlib.suppress(OSError):
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGERING)
    writer.transport.abort()


def _end(writer: asyncio.StreamWriter) -> None:
    if writer.can_write_eof() and not writer.is_closing():
        writer.write_eof()


def main() -> None:
    """Be a proxy until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", help="host:port of the server")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0: any")
    arguments = parser.parse_args()
    host, _, port = arguments.target.rpartition(":")
    with Proxy(host, int(port), arguments.port) as proxy:
        sys.stdout.write(f"{proxy.address}\n")
        sys.stdout.flush()
        for line in sys.stdin:
            sys.stdout.write(f"{_obey(proxy, line)}\n")
            sys.stdout.flush()


def _obey(proxy: Proxy, line: str) -> str:
    name, *arguments = line.split() or [""]
    fault = getattr(proxy, name, None)
    if name.startswith("_") or not inspect.ismethod(fault):
        return f"There is no fault {name!r}."
    try:
        fault(*map(float if name == "delay" else int, arguments))
    except (TypeError, ValueError) as error:
        return f"{name}: {error}"
    return "done"


if __name__ == "__main__":
    main()
