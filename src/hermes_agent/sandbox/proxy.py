"""The way out of the sandbox: an HTTP proxy that asks for every connection whether it is allowed.

It speaks CONNECT, and plain HTTP with one request per connection. The user name in a client's proxy
address is the token of the command that it belongs to; the password shows that it is one of ours.
"""

import base64
import binascii
import contextlib
import logging
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

logger = logging.getLogger(__name__)

_MAX_HEAD = 32_768
_HEAD_TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_S = 20.0
_IDLE_TIMEOUT_S = 600.0
_MAX_CONNECTIONS = 128
_CHUNK = 65_536

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


class Destination(NamedTuple):
    """The target of a connection, and the command it comes from."""

    host: str
    port: int
    token: str


class Refusal(Exception):
    """A connection that is not let through; the text says why and what to do."""

    status = 403


class _Challenge(Refusal):
    """A request without credentials: git and others send them only when they are asked to."""

    status = 407


Connect = Callable[[Destination], Sequence[tuple[str, int]]]
"""Return the addresses to try for a destination; raises Refusal. May wait for a person."""


class Proxy:
    """Serves one listening socket until it is closed."""

    def __init__(self, listener: socket.socket, connect: Connect) -> None:
        self._listener = listener
        self._connect = connect
        self._password = secrets.token_urlsafe(12)
        self._room = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        threading.Thread(target=self._serve, name="egress-proxy", daemon=True).start()

    def environment(self, token: str) -> dict[str, str]:
        """Return the variables by which the programs of a command find the proxy."""
        port = self._listener.getsockname()[1]
        address = f"http://{token}:{self._password}@127.0.0.1:{port}"
        direct = "localhost,127.0.0.1,::1"
        return {
            **dict.fromkeys(VARIABLES, address),
            **dict.fromkeys(("NO_PROXY", "no_proxy"), direct),
        }

    def close(self) -> None:
        """End every connection; the listener belongs to the caller."""
        with self._lock:
            self._is_closed = True
            connections = list(self._open)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for connection in connections:
            _shut(connection)

    def _serve(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            if not self._room.acquire(blocking=False):
                client.close()
                continue
            threading.Thread(target=self._handle, args=(client,), daemon=True).start()

    def _handle(self, client: socket.socket) -> None:
        try:
            with self._tracked(client):
                self._answer(client)
        except OSError as error:
            logger.debug("Connection of a sandboxed command ended: %s", error)
        finally:
            self._room.release()

    @contextlib.contextmanager
    def _tracked(self, connection: socket.socket) -> Generator[None]:
        """Keep a connection where `close` finds it, and close it at the end."""
        with self._lock:
            self._open.add(connection)
        try:
            if self._is_closed:
                raise ConnectionAbortedError("the proxy is closed")
            yield
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def _answer(self, client: socket.socket) -> None:
        try:
            head, rest = _read_head(client)
            request = _Request.parse(head)
            destination = self._destination(request)
            upstream = self._reach(destination)
        except Refusal as refusal:
            _refuse(client, refusal)
            return
        with self._tracked(upstream):
            if request.is_tunnel:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                upstream.sendall(rest)
            else:
                upstream.sendall(request.forwarded() + rest)
            _relay(client, upstream)

    def _destination(self, request: "_Request") -> Destination:
        if request.authorization is None:
            raise _Challenge("The user name and password of HTTPS_PROXY are needed.")
        name, _, password = request.credentials.partition(":")
        if not secrets.compare_digest(password.encode(), self._password.encode()):
            raise Refusal("Use the proxy address in HTTPS_PROXY as it is, with its user name.")
        return Destination(request.host, request.port, name)

    def _reach(self, destination: Destination) -> socket.socket:
        failure = "no address"
        for address in self._connect(destination):
            try:
                connection = socket.create_connection(address, _CONNECT_TIMEOUT_S)
            except OSError as error:
                failure = str(error)
                continue
            connection.settimeout(None)
            return connection
        raise Refusal(f"{destination.host} cannot be reached: {failure}.")


class _Request(NamedTuple):
    method: str
    target: str
    host: str
    port: int
    headers: Sequence[tuple[str, str]]

    @classmethod
    def parse(cls, head: bytes) -> "_Request":
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise Refusal("This is not a request to an HTTP proxy.")
        method, target, _ = words
        url = f"//{target}" if method == "CONNECT" else target
        try:
            parts = urlsplit(url)
            port = parts.port or (80 if parts.scheme == "http" else 443)
        except ValueError as error:
            raise Refusal(f"{target!r} is not an address.") from error
        if not parts.hostname or (method != "CONNECT" and parts.scheme != "http"):
            raise Refusal(f"{target!r} is not an address that this proxy reaches.")
        headers = [(name.strip(), value.strip()) for name, _, value in map(_split, lines) if name]
        return cls(method, target, parts.hostname.rstrip("."), port, headers)

    @property
    def is_tunnel(self) -> bool:
        return self.method == "CONNECT"

    @property
    def authorization(self) -> str | None:
        """The value of the header with the credentials; None without one."""
        values = (value for name, value in self.headers if name.lower() == "proxy-authorization")
        return next(values, None)

    @property
    def credentials(self) -> str:
        scheme, _, encoded = (self.authorization or "").partition(" ")
        if scheme.lower() == "basic":
            with contextlib.suppress(binascii.Error, UnicodeDecodeError):
                return base64.b64decode(encoded, validate=True).decode()
        return ""

    def forwarded(self) -> bytes:
        """Return the head as the server expects it, for this one request."""
        parts = urlsplit(self.target)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = [
            f"{name}: {value}"
            for name, value in self.headers
            if name.lower() not in ("connection", "keep-alive", "host")
            and not name.lower().startswith("proxy-")
        ]
        host = parts.netloc.rpartition("@")[2]
        lines = [f"{self.method} {path} HTTP/1.1", f"Host: {host}", *headers, "Connection: close"]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _split(line: str) -> tuple[str, str, str]:
    return line.partition(":")


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """Read up to the empty line; returns the head, and what came after it."""
    deadline, data = time.monotonic() + _HEAD_TIMEOUT_S, bytearray()
    while (end := data.find(b"\r\n\r\n")) < 0:
        client.settimeout(max(0.001, deadline - time.monotonic()))
        chunk = client.recv(_CHUNK)
        data += chunk
        if not chunk or len(data) > _MAX_HEAD or time.monotonic() > deadline:
            raise Refusal("The head of the request is too long, or did not come.")
    client.settimeout(None)
    return bytes(data[:end]), bytes(data[end + 4 :])


def _refuse(client: socket.socket, refusal: Refusal) -> None:
    text = str(refusal)
    body = f"{text}\n".encode()
    challenge = 'Proxy-Authenticate: Basic realm="hermes"\r\n' if refusal.status == 407 else ""
    line = " ".join(text.split()).encode("ascii", "replace").decode()[:400]
    head = (
        f"HTTP/1.1 {refusal.status} {line}\r\n{challenge}Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    client.sendall(head.encode() + body)


def _relay(client: socket.socket, server: socket.socket) -> None:
    """Pass bytes both ways until both have ended, one breaks off, or nothing moves for long."""
    other = {client: server, server: client}
    with selectors.DefaultSelector() as selector:
        for connection in other:
            selector.register(connection, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(_IDLE_TIMEOUT_S)
            if not ready:
                return
            for key, _ in ready:
                connection = client if key.fileobj is client else server
                data = connection.recv(_CHUNK)
                if data:
                    other[connection].sendall(data)
                else:
                    selector.unregister(connection)
                    with contextlib.suppress(OSError):
                        other[connection].shutdown(socket.SHUT_WR)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
