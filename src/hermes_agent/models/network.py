"""Reaching a server: names are looked up, addresses tried, TLS begun; a stop ends each of them at once.

A stop from any thread shuts the socket in use, and whoever waits on it wakes. Looking up a name cannot
be ended, so it happens in a thread of its own that is left behind.
"""

import contextlib
import errno
import os
import selectors
import socket
import ssl
import threading
import time
from typing import Any, NamedTuple

from hermes_agent.stop import Stop

_SLICE_S = 0.05
"""How often a stop is looked for while connecting; a socket that connects cannot be shut everywhere."""


class NetworkError(Exception):
    """A server could not be reached or heard; the text is the reason."""


class UnreachedError(NetworkError):
    """There was no connection."""


class SilentError(NetworkError):
    """Nothing came for too long."""


class CutError(NetworkError):
    """The connection ended too early, or what came over it is no HTTP."""


class Line:
    """What one call is using at the moment, so that a stop can shut it."""

    def __init__(self, stop: Stop) -> None:
        self.stop = stop
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None

    def hold(self, sock: socket.socket) -> None:
        """Have a stop shut this socket; raises Interrupted when it came before."""
        with self._lock:
            self._sock = sock
        self.stop.check()

    def let_go(self) -> None:
        """The socket may serve somebody else now, or be closed: a late stop must not touch it."""
        with self._lock:
            self._sock = None

    def cut(self) -> None:
        """Wake whoever reads or writes; called by the thread that stops."""
        with self._lock:
            if self._sock is not None:
                # Not SSLSocket's own method, which takes the TLS state away from a thread that uses it.
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)


def connect(host: str, port: int, seconds: float, stop: Stop) -> socket.socket:
    """A plain connection; raises UnreachedError and Interrupted."""
    stop.check()
    deadline = time.monotonic() + seconds
    addresses = _resolve(host, port, deadline, stop)
    failure: Exception = OSError(f"{host} has no address")
    for number, address in enumerate(addresses):
        # Each address gets its share, so that one that swallows packets leaves time for the next.
        share = (deadline - time.monotonic()) / (len(addresses) - number)
        try:
            sock = _connect(address, max(share, 0.0), stop)
        except OSError as error:
            failure = error
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
    if isinstance(failure, TimeoutError):
        raise UnreachedError("no answer to connecting") from failure
    raise UnreachedError(reason(failure)) from failure


def secure(
    sock: socket.socket, context: ssl.SSLContext, host: str, seconds: float, line: Line
) -> ssl.SSLSocket:
    """The same connection with TLS; it is closed when that fails. Raises as `connect` does."""
    sock.settimeout(seconds)
    try:
        secured = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    except (OSError, ValueError) as error:  # a name that no certificate could be for
        sock.close()
        raise UnreachedError(reason(error)) from error
    try:
        line.hold(secured)
        secured.do_handshake()
    except BaseException as error:
        line.let_go()
        secured.close()
        if isinstance(error, TimeoutError):
            raise UnreachedError("the TLS handshake takes too long") from error
        if isinstance(error, OSError):
            raise UnreachedError(reason(error)) from error
        raise
    return secured


def reason(error: Exception) -> str:
    """Why the network failed, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


class _Address(NamedTuple):
    family: int
    place: Any


def _resolve(host: str, port: int, deadline: float, stop: Stop) -> list[_Address]:
    with contextlib.suppress(socket.gaierror):
        return _look_up(host, port, socket.AI_NUMERICHOST)
    found: list[_Address] = []
    failed: list[Exception] = []
    done = threading.Event()

    def look_up() -> None:
        try:
            found.extend(_look_up(host, port, 0))
        except (OSError, UnicodeError) as error:  # a name may be longer than names can be
            failed.append(error)
        done.set()

    threading.Thread(target=look_up, name=f"look up {host}", daemon=True).start()
    with stop.undoing(done.set):
        is_done = done.wait(max(deadline - time.monotonic(), 0))
    stop.check()
    if not is_done:
        raise UnreachedError(f"looking up {host} takes too long")
    if failed:
        raise UnreachedError(f"{host} is not known: {reason(failed[0])}") from failed[0]
    return found


def _look_up(host: str, port: int, flags: int) -> list[_Address]:
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [_Address(family, place) for family, _, _, _, place in entries]


def _connect(address: _Address, seconds: float, stop: Stop) -> socket.socket:
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        code = sock.connect_ex(address.place)
        if code in (errno.EINPROGRESS, errno.EWOULDBLOCK):
            _await_connection(sock, seconds, stop)
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
    except BaseException:
        sock.close()
        raise
    return sock


def _await_connection(sock: socket.socket, seconds: float, stop: Stop) -> None:
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_WRITE)
        while not selector.select(min(_SLICE_S, max(deadline - time.monotonic(), 0))):
            stop.check()
            if time.monotonic() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
