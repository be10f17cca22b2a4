"""Connections that a stop cuts at any moment: while a name is looked up, at connecting, in the TLS
handshake, before the first byte and in the middle of a stream.

A network backend for httpcore2, which calls it in the thread that asks. That thread's `Line` knows the
connection in use; a stop from any thread shuts that connection's socket, and whoever waits on it wakes.
Looking up a name cannot be ended, so it happens in a thread of its own that is left behind.
"""

import contextlib
import errno
import os
import select
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Generator, Iterable
from typing import Any, NamedTuple

from httpcore2 import (
    SOCKET_OPTION,
    ConnectError,
    ConnectTimeout,
    NetworkBackend,
    NetworkStream,
    ReadError,
    ReadTimeout,
    WriteError,
    WriteTimeout,
)

from hermes_agent.stop import Stop

_SLICE_S = 0.05
"""How often a stop is looked for while connecting; a socket that connects cannot be shut everywhere."""


class Line:
    """What one call is using at the moment."""

    def __init__(self, stop: Stop) -> None:
        self.stop = stop
        self.patience_s = float("inf")
        """Longest silence from now on, where that is shorter than what the request asked for."""
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._reads_before = 0

    def hold(self, stream: "Stream") -> None:
        """Have a stop cut this connection; raises Interrupted when it came before."""
        with self._lock:
            if self._stream is not stream:
                self._stream, self._reads_before = stream, stream.reads
        self.stop.check()

    @property
    def is_stale(self) -> bool:
        """Whether the connection served others before and has said nothing to this call.

        Servers hang up on connections that they think are done with; what was sent into such a one
        was not heard.
        """
        stream = self._stream
        return stream is not None and 0 < self._reads_before == stream.reads

    def let_go(self) -> None:
        """The connection may serve somebody else now: a late stop must not touch it."""
        with self._lock:
            self._stream = None

    def cut(self) -> None:
        with self._lock:
            if self._stream is not None:
                self._stream.shut()


_here = threading.local()


@contextlib.contextmanager
def calling(stop: Stop) -> Generator[Line]:
    """Have what this thread sends and reads in the block end when the stop is set."""
    outer: Line | None = getattr(_here, "line", None)
    line = _here.line = Line(stop)
    try:
        with stop.undoing(line.cut):
            yield line
    finally:
        line.let_go()
        _here.line = outer


def _line() -> Line:
    line: Line | None = getattr(_here, "line", None)
    return line or Line(Stop())


class Stream(NetworkStream):
    """One socket, plain or with TLS."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._timeout = sock.gettimeout()
        self._lock = threading.Lock()
        self.reads = 0
        """How often something came."""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._be_patient(timeout)
        try:
            data = self._sock.recv(max_bytes)
        except TimeoutError as error:
            raise ReadTimeout(str(error)) from error
        except OSError as error:
            raise ReadError(_reason(error)) from error
        if data:
            self.reads += 1
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        _line().hold(self)
        self._be_patient(timeout)
        view = memoryview(buffer)
        try:
            while view:
                view = view[self._sock.send(view) :]
        except TimeoutError as error:
            raise WriteTimeout(str(error)) from error
        except OSError as error:
            raise WriteError(_reason(error)) from error

    def close(self) -> None:
        with self._lock:
            self._sock.close()

    def shut(self) -> None:
        """Wake whoever reads or writes; called by the thread that stops."""
        with self._lock:
            # Not SSLSocket's own method, which takes the TLS state away from a thread that uses it.
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> NetworkStream:
        if isinstance(self._sock, ssl.SSLSocket):
            self.close()
            raise ConnectError("a proxy that is itself reached by https is not supported")
        self._sock.settimeout(timeout)
        secured = ssl_context.wrap_socket(
            self._sock, server_hostname=server_hostname, do_handshake_on_connect=False
        )
        stream = Stream(secured)
        try:
            _line().hold(stream)
            secured.do_handshake()
        except TimeoutError as error:
            stream.close()
            raise ConnectTimeout("the TLS handshake takes too long") from error
        except OSError as error:
            stream.close()
            raise ConnectError(_reason(error)) from error
        except BaseException:
            stream.close()
            raise
        return stream

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 -- the base's
        if info == "is_readable":
            return _is_readable(self._sock)
        if info == "ssl_object":
            return self._sock if isinstance(self._sock, ssl.SSLSocket) else None
        return self._sock if info == "socket" else None

    def _be_patient(self, timeout: float | None) -> None:
        limit = _line().patience_s
        if timeout is None or timeout > limit:
            timeout = None if limit == float("inf") else limit
        if timeout != self._timeout:  # each change is a system call
            self._sock.settimeout(timeout)
            self._timeout = timeout


class Backend(NetworkBackend):
    """Connects, and looks for a stop meanwhile."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> NetworkStream:
        del local_address, socket_options
        line = _line()
        line.stop.check()
        deadline = time.monotonic() + (timeout if timeout is not None else 3600.0)
        addresses = _resolve(host, port, deadline, line.stop)
        failure: Exception = ConnectError(f"{host} has no address")
        for number, address in enumerate(addresses):
            # Each address gets its share, so that one that swallows packets leaves time for the next.
            share = (deadline - time.monotonic()) / (len(addresses) - number)
            try:
                sock = _connect(address, max(share, 0.0), line.stop)
            except OSError as error:
                failure = error
            else:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return Stream(sock)
        if isinstance(failure, TimeoutError):
            raise ConnectTimeout("no answer to connecting") from failure
        raise ConnectError(_reason(failure)) from failure


class _Address(NamedTuple):
    family: int
    place: Any


def _resolve(host: str, port: int, deadline: float, stop: Stop) -> list[_Address]:
    with contextlib.suppress(socket.gaierror):
        return _look_up(host, port, socket.AI_NUMERICHOST)
    found: list[_Address] = []
    failed: list[OSError] = []
    done = threading.Event()

    def look_up() -> None:
        try:
            found.extend(_look_up(host, port, 0))
        except OSError as error:
            failed.append(error)
        done.set()

    threading.Thread(target=look_up, name=f"look up {host}", daemon=True).start()
    with stop.undoing(done.set):
        is_done = done.wait(max(deadline - time.monotonic(), 0))
    stop.check()
    if not is_done:
        raise ConnectTimeout(f"looking up {host} takes too long")
    if failed:
        raise ConnectError(f"{host} is not known: {failed[0].strerror}") from failed[0]
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


def _is_readable(sock: socket.socket) -> bool:
    """Whether an idle connection has something to say, which can only be its end."""
    if sock.fileno() < 0:
        return True
    if not hasattr(select, "poll"):
        return bool(select.select([sock], [], [], 0)[0])
    poll = select.poll()  # asked at every request: half the price of a selector
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error)
