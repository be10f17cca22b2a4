"""Transport of frames to a running server over a websocket, one frame per message.

As much of RFC 6455 as a client of our own server needs: the handshake, masked text, pieces of a message,
ping, and the closing of a connection.
"""

import asyncio
import base64
import contextlib
import hashlib
import os
import struct
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_MAX_BYTES = 64 * 1024 * 1024
_CONNECT_TIMEOUT_S = 5.0
_CONTINUED, _TEXT, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x8, 0x9, 0xA
_FINAL, _MASKED = 0x80, 0x80


class WebSocketTransport:
    """A connection to a server that is somebody else's child."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._reason = "the connection was closed"

    @classmethod
    async def connect(cls, url: str, token: str) -> "WebSocketTransport":
        """Open a connection; raises ConnectionError when it is refused."""
        parts = urlsplit(url)
        host, port = parts.hostname or "127.0.0.1", parts.port or 80
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port, limit=_MAX_BYTES)
            key = base64.b64encode(os.urandom(16)).decode()
            lines = (
                f"GET {parts.path or '/'} HTTP/1.1",
                f"Host: {parts.netloc}",
                "Upgrade: websocket",
                "Connection: Upgrade",
                f"Sec-WebSocket-Key: {key}",
                "Sec-WebSocket-Version: 13",
                f"Authorization: Bearer {token}",
            )
            writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode())
            async with contextlib.AsyncExitStack() as undo:
                undo.push_async_callback(writer.wait_closed)
                undo.callback(writer.close)
                _check(await reader.readuntil(b"\r\n\r\n"), key)
                undo.pop_all()
        return cls(reader, writer)

    async def send(self, frame: bytes) -> None:
        self._write(_TEXT, frame)
        await self._writer.drain()

    def _write(self, kind: int, data: bytes) -> None:
        size = len(data)
        if size < 126:
            head = struct.pack("!BB", _FINAL | kind, _MASKED | size)
        elif size < 65536:
            head = struct.pack("!BBH", _FINAL | kind, _MASKED | 126, size)
        else:
            head = struct.pack("!BBQ", _FINAL | kind, _MASKED | 127, size)
        mask = os.urandom(4)
        self._writer.write(head + mask + _masked(data, mask))

    async def frames(self) -> AsyncIterator[bytes]:
        try:
            async for message in self._messages():
                yield message
        except (asyncio.IncompleteReadError, ConnectionError):
            self._reason = "the server closed the connection"

    async def _messages(self) -> AsyncIterator[bytes]:
        pieces: list[bytes] = []
        while True:
            kind, is_final, data = await self._read()
            if kind == _CLOSE:
                self._reason = data[2:].decode("utf-8", "replace") or self._reason
                return
            if kind == _PING:
                self._write(_PONG, data)
            elif kind in (_TEXT, _CONTINUED):
                pieces.append(data)
                if is_final:
                    yield b"".join(pieces)
                    pieces.clear()

    async def _read(self) -> tuple[int, bool, bytes]:
        first, second = await self._reader.readexactly(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", await self._reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self._reader.readexactly(8))
        if size > _MAX_BYTES:
            raise ConnectionError(f"a message of {size} bytes is too long")
        return first & 0x0F, bool(first & _FINAL), await self._reader.readexactly(size)

    async def close(self, grace_s: float) -> None:
        self._write(_CLOSE, struct.pack("!H", 1000))
        self._writer.close()
        try:
            async with asyncio.timeout(grace_s):
                await self._writer.wait_closed()
        except (TimeoutError, OSError):
            self._writer.transport.abort()

    def last_words(self) -> str:
        return self._reason


def _check(answer: bytes, key: str) -> None:
    """Make sure that the other side has agreed to speak websocket; raises ConnectionError."""
    head = answer.decode("latin-1").split("\r\n")
    status = head[0].split(" ", 2)
    if len(status) < 2 or status[1] != "101":
        raise ConnectionError(f"the server refused the connection: {head[0]}")
    fields = dict(line.split(":", 1) for line in head[1:] if ":" in line)
    accept = next((v.strip() for n, v in fields.items() if n.lower() == "sec-websocket-accept"), "")
    expected = base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()
    if accept != expected:
        raise ConnectionError("it is not a websocket server")


def _masked(data: bytes, mask: bytes) -> bytes:
    """Every byte with a byte of the mask, in one operation on a large number."""
    size = len(data)
    whole = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "big") ^ int.from_bytes(whole, "big")).to_bytes(size, "big")
