"""HTTP to model servers, over connections that stay open and that a stop ends at any moment.

http.client reads the responses. Added to it: a stop from any thread shuts the socket in use, which
wakes the thread that waits on it; a deadline and a limit hold for everything that is read; a connection
that is free serves the next request to the same server.
"""

import base64
import contextlib
import io
import logging
import socket
import ssl
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import CancelledError, Future, InvalidStateError
from functools import cached_property
from http.client import (
    HTTPException,
    HTTPResponse,
    IncompleteRead,
    RemoteDisconnected,
)
from typing import Any, NamedTuple, cast
from urllib.parse import SplitResult, quote, unquote, urlsplit

import msgspec

from hermes_agent.models import limits
from hermes_agent.models.event_stream import payloads
from hermes_agent.models.proxy import proxy_for
from hermes_agent.turn.stop import Stop
from hermes_core import config
from hermes_core.errors import ConfigError, Interrupted, ModelError, ModelUnreachableError
from hermes_core.secrets import redact_bytes
from hermes_core.text import without_surrogates
from hermes_core.version import VERSION

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 10.0
_DRAIN_TIMEOUT_S = 0.25
"""For the end of a stream, once the reply is complete."""
_KEEP_ALIVE_S = 60.0
_MAX_IDLE = 64
"""Idle connections per server; as many turns as usually run at once."""
_READ_SIZE = 65_536
_WRITE_SIZE = 262_144

_encoder = msgspec.json.Encoder()


def encode(body: Mapping[str, Any]) -> bytes:
    """Encode a request as JSON: the same bytes for the same content, without secrets."""
    try:
        return redact_bytes(_encoder.encode(body))
    except UnicodeEncodeError:  # half characters somewhere inside: rare, so found out the slow way
        return redact_bytes(_encoder.encode(_without_surrogates(body)))


def _without_surrogates(value: Any) -> Any:  # noqa: ANN401 -- whatever JSON is
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        return {_without_surrogates(key): _without_surrogates(item) for key, item in pairs}
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in cast("list[Any]", value)]
    return value


class Page(NamedTuple):
    """A small response, read to its end."""

    status: int
    body: bytes


class _ConnectError(Exception):
    """There is no connection; the text is the reason."""


_FAILURES = (OSError, HTTPException, ValueError, _ConnectError, limits.TooLargeError)


class _Exchange(io.RawIOBase):
    """One request and its response on a socket: what a stop shuts, and the limits of what is read."""

    def __init__(self, stop: Stop, timeout_s: float) -> None:
        self.stop = stop
        self.bytes_left = limits.MAX_HEAD_BYTES
        self.received = 0
        self._timeout_s = timeout_s
        self._last = time.monotonic() + limits.MAX_REPLY_TIMEOUTS * timeout_s
        self._deadline = self._last
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None

    @property
    def sock(self) -> socket.socket:
        assert self._sock is not None
        return self._sock

    def hold(self, sock: socket.socket) -> None:
        """Use this socket from now on; raises Interrupted when a stop came before."""
        with self._lock:
            self._sock = sock
        self.stop.check()

    def release(self) -> None:
        """Keep a late stop away from the socket, which may serve another request now."""
        with self._lock:
            self._sock = None

    def cut(self) -> None:
        """Wake the thread that reads or writes; called by the thread that stops."""
        with self._lock:
            if self._sock is not None:
                # Not SSLSocket's own method, which takes the TLS state away from a thread that uses it.
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def extend(self, timeout_s: float = 0.0) -> None:
        """Start the timeout again, because there was progress."""
        self._deadline = min(time.monotonic() + (timeout_s or self._timeout_s), self._last)

    def send(self, request: bytes, method: str) -> HTTPResponse:
        """Send a request and read the head of its response."""
        failure: OSError | None = None
        self.extend()
        try:
            for start in range(0, len(request), _WRITE_SIZE):
                self._set_timeout()
                self.sock.sendall(request[start : start + _WRITE_SIZE])
                self.extend()
        except ConnectionError as error:  # the server may have said why it did not read on
            failure = error
        response = HTTPResponse(cast("Any", self), method=method)
        try:
            response.begin()
        except (ConnectionError, HTTPException) as error:
            raise failure or error from error
        return response

    def makefile(self, mode: str) -> io.BufferedReader:
        """Let http.client read; called by HTTPResponse."""
        del mode
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 -- any buffer
        self._set_timeout()
        size = self.sock.recv_into(buffer)
        self.received += size
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise limits.TooLargeError
        return size

    def close(self) -> None:
        """Do nothing: the socket may serve another request when http.client is done with it."""

    def _set_timeout(self) -> None:
        remaining_s = self._deadline - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        self.sock.settimeout(remaining_s)


class Response:
    """The response to a request, whose body is read as it arrives."""

    def __init__(self, endpoint: "Endpoint", response: HTTPResponse, exchange: _Exchange) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        self._endpoint = endpoint
        self._response = response
        self._exchange = exchange
        self._is_complete = False
        exchange.bytes_left = limits.MAX_STREAM_BYTES
        exchange.extend()

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def leaves_connection(self) -> bool:
        """True when the connection may serve another request."""
        return self._is_complete and not self._response.will_close

    def read(self) -> bytes:
        """Read the whole body; raises ModelError when it is far too long."""
        self._exchange.bytes_left = limits.MAX_EVENT_BYTES
        return b"".join(self._chunks())

    def events(self) -> Iterator[bytes]:
        """Yield the data of each server-sent event, until a stop."""
        try:
            for data in payloads(self._chunks(), self._exchange.extend):
                self._exchange.stop.check()
                yield data
        except limits.TooLargeError as error:
            raise self._endpoint.failure(error, self._exchange.stop) from error

    def drain(self) -> None:
        """Read the end of the body, without which the connection could not be used again."""
        if not self._is_complete:
            self._exchange.extend(_DRAIN_TIMEOUT_S)
            with contextlib.suppress(ModelError):
                for _ in self._chunks():
                    pass

    def _chunks(self) -> Iterator[bytes]:
        try:
            while data := self._response.read1(_READ_SIZE):
                yield data
            if self._response.length:
                raise IncompleteRead(b"", self._response.length)
        except _FAILURES as error:
            raise self._endpoint.failure(error, self._exchange.stop) from error
        self._exchange.stop.check()  # a connection that was cut looks like one that ended
        self._is_complete = True


class Endpoint:
    """One server: its address, the headers of every request to it, and its idle connections."""

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        *,
        provider: str,
        timeout_s: float = 300.0,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        """Connect to nothing yet; raises ConfigError for what is not an address."""
        self.base_url = base_url.rstrip("/")
        self.provider = provider
        self._timeout_s, self._connect_timeout_s = timeout_s, connect_timeout_s
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not _names_a_server(parts):
            raise ConfigError(
                f"{base_url!r} is not a valid address of a model server.",
                fix="Give one like http://127.0.0.1:8080/v1 as model.base_url.",
            )
        self._is_secure = parts.scheme == "https"
        self._address = parts.hostname or "", parts.port or (443 if self._is_secure else 80)
        self._host = parts.netloc.rpartition("@")[2]
        self._target = quote(parts.path, safe="/%:@!$&'()*+,;=~")
        self._headers = {"Host": _ascii(self._host), "User-Agent": f"hermes/{VERSION}", **headers}
        self._proxy = proxy_for(self.base_url, config.proxies())
        if self._proxy and not self._is_secure:  # the proxy makes the request for us
            self._target = f"http://{_ascii(self._host)}{self._target}"
            self._headers |= _proxy_login(self._proxy)
        self._lock = threading.Lock()
        self._idle: list[tuple[socket.socket, float]] = []
        self._is_closed = False

    @contextlib.contextmanager
    def post(self, path: str, body: bytes, stop: Stop) -> Generator[Response]:
        """Send a body and yield the response; raises ModelUnreachableError and Interrupted."""
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        request = self._head("POST", self._target + path, self._headers | headers) + body
        with self._ask(request, "POST", _Exchange(stop, self._timeout_s)) as response:
            yield response

    def get(self, path: str, stop: Stop, *, timeout_s: float) -> Page:
        """Fetch a small page; raises as `post` does."""
        request = self._head("GET", self._target + path, self._headers)
        with self._ask(request, "GET", _Exchange(stop, timeout_s)) as response:
            return Page(response.status, response.read())

    def close(self) -> None:
        """Close the idle connections; one in use is closed when its request ends."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for sock, _ in idle:
            sock.close()

    def failure(self, error: Exception, stop: Stop) -> ModelError | Interrupted:
        """Return the error to raise for a request that the network or the server failed."""
        if stop.is_set:
            return Interrupted()
        logger.info("%s at %s: %r", self.provider, self._host, error)
        who = f"{self.provider} at {self._host}"
        if isinstance(error, limits.TooLargeError):
            return limits.too_large(who, str(error) or "more bytes")
        if isinstance(error, _ConnectError):
            message, fix = f"{who} cannot be reached: {error}.", self._connection_fix()
        elif isinstance(error, TimeoutError):
            message = f"{who} did not answer in time."
            fix = "Try again, or raise model.timeout_s if the model is slow."
        else:
            message, fix = f"{who} cut the connection: {_reason(error)}.", "Ask again."
        return ModelUnreachableError(message, fix=fix, retryable=True, provider=self.provider)

    @contextlib.contextmanager
    def _ask(self, request: bytes, method: str, exchange: _Exchange) -> Generator[Response]:
        stop = exchange.stop
        stop.check()
        with stop.callback(exchange.cut):
            sock, head = self._exchange(request, method, exchange)
            response = Response(self, head, exchange)
            try:
                yield response
                response.drain()
            finally:
                exchange.release()
                self._keep(sock, is_usable=response.leaves_connection and not stop.is_set)

    def _exchange(
        self, request: bytes, method: str, exchange: _Exchange
    ) -> tuple[socket.socket, HTTPResponse]:
        """Send a request on a connection; on another one if the server had closed the first.

        Servers close connections that are idle for long. What arrives then is not read: it is sent
        again if not a byte came back.
        """
        while True:
            idle = self._take()
            sock = None
            try:
                sock = idle or self._connect(exchange)
                exchange.hold(sock)
                return sock, exchange.send(request, method)
            except BaseException as error:
                exchange.release()
                if sock is not None:
                    sock.close()
                is_stale = idle and not exchange.received and isinstance(error, ConnectionError)
                if is_stale and not exchange.stop.is_set:
                    continue
                if isinstance(error, _FAILURES):
                    raise self.failure(error, exchange.stop) from error
                raise

    def _take(self) -> socket.socket | None:
        """Return the idle connection that was used last, if there is one."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                sock, since = self._idle.pop()
            if time.monotonic() - since < _KEEP_ALIVE_S and _is_open(sock):
                return sock
            sock.close()

    def _keep(self, sock: socket.socket, *, is_usable: bool) -> None:
        with self._lock:
            if is_usable and not self._is_closed and len(self._idle) < _MAX_IDLE:
                self._idle.append((sock, time.monotonic()))
                return
        sock.close()

    def _connect(self, exchange: _Exchange) -> socket.socket:
        """Open a connection, through the proxy if there is one; raises _ConnectError."""
        timeout_s, stop = self._connect_timeout_s, exchange.stop
        sock: socket.socket | None = None
        try:
            address = _proxy_address(self._proxy) if self._proxy else self._address
            sock = _dial(*address, timeout_s, stop)
            if self._is_secure:
                if self._proxy:
                    self._open_tunnel(sock, _Exchange(stop, timeout_s))
                sock.settimeout(timeout_s)
                sock = self._tls_context.wrap_socket(
                    sock, server_hostname=self._address[0], do_handshake_on_connect=False
                )
                exchange.hold(sock)
                sock.do_handshake()
        except BaseException as error:
            exchange.release()
            if sock is not None:
                sock.close()
            if isinstance(error, _FAILURES):
                raise _ConnectError(_reason(error)) from error
            raise
        return sock

    def _open_tunnel(self, sock: socket.socket, exchange: _Exchange) -> None:
        """Let the proxy connect us to the server."""
        host, port = self._address
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        head = self._head("CONNECT", target, {"Host": target, **_proxy_login(self._proxy)})
        with exchange.stop.callback(exchange.cut):
            exchange.hold(sock)
            answer = exchange.send(head, "CONNECT")
            exchange.release()
        if answer.status // 100 != 2:
            raise _ConnectError(f"the proxy answered {answer.status} {answer.reason}")

    @cached_property
    def _tls_context(self) -> ssl.SSLContext:
        """The certificates that this system trusts; reading them costs milliseconds."""
        from httpcore2 import default_ssl_context  # noqa: PLC0415 -- 0.1 s

        context = default_ssl_context()
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _head(self, method: str, target: str, headers: Mapping[str, str]) -> bytes:
        for name, value in headers.items():
            if not value.isascii() or not value.isprintable():  # a key pasted with more than itself
                raise ModelError(
                    f"The {name} header for {self.provider} has characters that cannot be sent.",
                    fix="Enter the key again, without quotes and line breaks, with `hermes model`.",
                    provider=self.provider,
                )
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")

    def _connection_fix(self) -> str:
        if self._proxy:
            return f"Check the network and the proxy {urlsplit(self._proxy).hostname}."
        if self._host.startswith(("127.", "localhost", "[::1]")):
            return (
                f"Start the model server so that it listens on {self._host}, or see `hermes model`."
            )
        return "Check the network and the address, or see `hermes model` for another model."


def _dial(host: str, port: int, timeout_s: float, stop: Stop) -> socket.socket:
    """Open a TCP connection in a thread, which a stop and a timeout leave behind.

    Looking up a name cannot be interrupted. What the thread opens too late it closes.
    """
    future = Future[socket.socket]()

    def dial() -> None:
        try:
            # Half of the time, so that an address that swallows packets leaves some for the next.
            sock = socket.create_connection((host, port), timeout_s / 2)
        except (OSError, UnicodeError) as error:  # a name may be longer than names can be
            with contextlib.suppress(InvalidStateError):
                future.set_exception(error)
            return
        try:
            future.set_result(sock)
        except InvalidStateError:
            sock.close()

    def give_up() -> None:
        future.cancel()

    threading.Thread(target=dial, name=f"dial {host}", daemon=True).start()
    with stop.callback(give_up):
        try:
            sock = future.result(timeout_s)
        except (socket.gaierror, UnicodeError) as error:
            raise _ConnectError(f"{host} is not known: {_reason(error)}") from error
        except CancelledError:
            raise Interrupted from None
        except TimeoutError as error:
            give_up()
            raise _ConnectError("no answer to connecting") from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _is_open(sock: socket.socket) -> bool:
    """Tell whether an idle connection may serve again; anything the server sent ends it."""
    sock.setblocking(False)
    try:
        socket.socket.recv(sock, 1, socket.MSG_PEEK)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


def _names_a_server(parts: SplitResult) -> bool:
    try:
        return bool(parts.hostname) and parts.port != 0 and bool(_ascii(parts.hostname))
    except ValueError:  # a name that none can have; no number, or one that no port has
        return False


def _ascii(host: str) -> str:
    return host if host.isascii() else host.encode("idna").decode()


def _proxy_address(proxy: str) -> tuple[str, int]:
    parts = urlsplit(proxy)
    if parts.scheme != "http" or not parts.hostname:
        raise _ConnectError(f"{parts.scheme}:// proxies are not supported, only http:// ones are")
    return parts.hostname, parts.port or 80


def _proxy_login(proxy: str) -> dict[str, str]:
    parts = urlsplit(proxy)
    if parts.username is None:
        return {}
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}


def _reason(error: BaseException) -> str:
    """Say why the network failed, in a few words; those of the library are for programmers."""
    if isinstance(error, RemoteDisconnected):
        return "it closed without a response"
    if isinstance(error, IncompleteRead):
        return "the response broke off in the middle"
    if isinstance(error, HTTPException):
        return "its response is not HTTP"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or "no answer in time"
