"""A link: one open connection to a server, its answers one by one, and the links kept for later.

The requests are a few lines of text and written by us; http.client reads the answers. Without its
connections and without a client on top, a chunk of a stream costs a tenth of what it did.
"""

import base64
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException, HTTPResponse, IncompleteRead, RemoteDisconnected
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from hermes_agent.models.network import (
    CutError,
    Line,
    SilentError,
    UnreachedError,
    connect,
    reason,
    secure,
)

_KEEP_ALIVE_S = 60.0
_MOST_KEPT = 64
"""Of one place; as many turns as usually run at once."""
_READ = 65_536


class Place(NamedTuple):
    """Where a link leads, and through whom."""

    host: str
    port: int
    is_secure: bool
    proxy: str = ""

    @property
    def is_asked_by_proxy(self) -> bool:
        """Whether a proxy makes the requests for us; to a secure place it only lets us through."""
        return bool(self.proxy) and not self.is_secure


class Link:
    """One open connection. It serves one call at a time, from any thread."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.idle_since = 0.0
        self._patience = sock.gettimeout()
        self._response: HTTPResponse | None = None
        self._is_read = True

    def ask(self, request: bytes, silence_s: float) -> HTTPResponse:
        """Send a request; the answer has its head. Raises SilentError and CutError."""
        self.be_patient(silence_s)
        refused = self._send(request)
        self._response = response = HTTPResponse(self.sock)
        self._is_read = False
        try:
            response.begin()
        except TimeoutError as error:
            raise SilentError from error
        except (OSError, HTTPException, ValueError) as error:
            raise refused or CutError(_how(error)) from error
        return response

    def _send(self, request: bytes) -> CutError | None:
        """Send it all, unless the server has heard enough: then it may have said why."""
        try:
            self.sock.sendall(request)
        except TimeoutError as error:
            raise SilentError from error
        except OSError as error:
            return CutError(reason(error))
        return None

    def chunks(self, response: HTTPResponse) -> Iterator[bytes]:
        """The body as it comes; raises SilentError and CutError."""
        while True:
            try:
                data = response.read1(_READ)
            except TimeoutError as error:
                raise SilentError from error
            except (OSError, HTTPException, ValueError) as error:
                raise CutError(_how(error)) from error
            if not data:
                break
            yield data
        if response.length:
            raise CutError("it ended too early")
        self._is_read = True

    def be_patient(self, seconds: float) -> None:
        """How long it may be silent from now on."""
        if seconds != self._patience:  # each change is a system call
            self.sock.settimeout(seconds)
            self._patience = seconds

    @property
    def can_serve_again(self) -> bool:
        """Whether the last answer was read to its end, and the server stays."""
        response = self._response
        return self._is_read and response is not None and not response.will_close

    @property
    def is_spent(self) -> bool:
        """Whether an idle link has something to say, which can only be its end."""
        if not hasattr(select, "poll"):
            return bool(select.select([self.sock], [], [], 0)[0])
        poll = select.poll()  # asked at every request: half the price of a selector
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        if self._response is not None:
            self._response.close()  # the socket stays open as long as its reader is
        self.sock.close()


def _reach(place: Place, seconds: float, line: Line, trusted: Callable[[], ssl.SSLContext]) -> Link:
    if not place.proxy:
        sock = connect(place.host, place.port, seconds, line.stop)
    else:
        sock = connect(*_address_of(place.proxy), seconds, line.stop)
        if place.is_secure:
            _tunnel(sock, place, seconds, line)
    if place.is_secure:
        sock = secure(sock, trusted(), place.host, seconds, line)
    return Link(sock)


def _address_of(proxy: str) -> tuple[str, int]:
    parts = urlsplit(proxy)
    if parts.scheme != "http" or not parts.hostname:
        raise UnreachedError(f"{parts.scheme}:// is no proxy that can be used, only http:// is")
    try:
        return parts.hostname, parts.port or 80
    except ValueError as error:
        raise UnreachedError(f"the proxy's address has no good port: {error}") from error


def _tunnel(sock: socket.socket, place: Place, seconds: float, line: Line) -> None:
    """Have the proxy let us through; closes what leads nowhere."""
    host = f"[{place.host}]" if ":" in place.host else place.host
    where = f"{host}:{place.port}"
    head = f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{pass_for(place.proxy)}\r\n"
    link = Link(sock)
    try:
        line.hold(sock)
        response = link.ask(head.encode("latin-1"), seconds)
        if response.status // 100 != 2:
            raise UnreachedError(f"the proxy says {response.status} {response.reason}")
        response.close()
    except BaseException as error:
        line.let_go()
        link.close()
        if isinstance(error, SilentError | CutError):
            raise UnreachedError(f"the proxy does not let us through: {error}") from error
        raise


def pass_for(proxy: str) -> str:
    """The line of a request's head that a proxy with a password wants to see."""
    parts = urlsplit(proxy)
    if parts.username is None:
        return ""
    said = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Proxy-Authorization: Basic {base64.b64encode(said.encode()).decode()}\r\n"


class Links:
    """Makes links, and keeps those that wait for their next call for all who use the same place."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._trusted: ssl.SSLContext | None = None
        self._users: dict[Place, int] = {}
        self._idle: dict[Place, list[Link]] = {}

    def join(self, place: Place) -> None:
        """Keep links to a place from now on."""
        with self._lock:
            self._users[place] = self._users.get(place, 0) + 1

    def leave(self, place: Place) -> None:
        """No longer; with the last one who uses them they are closed."""
        with self._lock:
            self._users[place] -= 1
            if self._users[place]:
                return
            del self._users[place]
            if not self._users:
                self._trusted = None
            left = self._idle.pop(place, [])
        for link in left:
            link.close()

    def reach(self, place: Place, seconds: float, line: Line) -> Link:
        """A new link; raises UnreachedError and Interrupted."""
        return _reach(place, seconds, line, self._certificates)

    def _certificates(self) -> ssl.SSLContext:
        """Whom this system trusts; read once, since that costs milliseconds."""
        with self._lock:
            if self._trusted is None:
                from httpcore2 import default_ssl_context  # noqa: PLC0415 -- 0.1 s

                self._trusted = default_ssl_context()
                self._trusted.set_alpn_protocols(["http/1.1"])
            return self._trusted

    def take(self, place: Place) -> Link | None:
        """A link that waits, the one that was used last, or None."""
        oldest = time.monotonic() - _KEEP_ALIVE_S
        while True:
            with self._lock:
                idle = self._idle.get(place)
                if not idle:
                    return None
                link = idle.pop()
            if link.idle_since > oldest and not link.is_spent:
                return link
            link.close()

    def keep(self, place: Place, link: Link) -> None:
        """Have a link wait for its next call, if anybody may make one and there is room."""
        link.idle_since = time.monotonic()
        with self._lock:
            if place in self._users:
                idle = self._idle.setdefault(place, [])
                if len(idle) < _MOST_KEPT:
                    idle.append(link)
                    return
        link.close()


links = Links()


def _how(error: Exception) -> str:
    """How a connection was cut, in words: those of the library are for programmers."""
    if isinstance(error, RemoteDisconnected):
        return "it hung up without a word"
    if isinstance(error, IncompleteRead):
        return "it broke off in the middle"
    return (
        "what it says is no HTTP"
        if isinstance(error, HTTPException | ValueError)
        else reason(error)
    )
