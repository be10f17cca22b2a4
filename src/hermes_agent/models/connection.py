"""A connection to one server: kept and shared, answers as they come, failures in our words.

httpcore2 is used without the client on top of it: a request costs a third, a chunk half. It takes 0.1 s
to import, so only what is about to ask imports this module.
"""

import contextlib
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import httpcore2

from hermes_agent.models.network import Backend, Line, calling
from hermes_agent.models.proxy import proxy_for
from hermes_agent.models.wire import CONNECT_S, Page, host_of
from hermes_agent.stop import Stop
from hermes_core import config
from hermes_core.errors import Interrupted, ModelError, ModelUnreachableError
from hermes_core.version import VERSION

_KEEP_ALIVE_S = 60.0
_DRAIN_S = 0.25
"""How long the end of a stream is waited for once the reply is complete."""
_MOST_BYTES = 64 * 1024 * 1024
"""More than any reply; a server that sends more is not listened to."""

_FOREIGN = (
    httpcore2.NetworkError,
    httpcore2.TimeoutException,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.UnsupportedProtocol,
)
_NOT_CONNECTED = (
    httpcore2.ConnectError,
    httpcore2.ConnectTimeout,
    httpcore2.ProxyError,
    httpcore2.UnsupportedProtocol,
)


class Answer:
    """A server's answer, whose body is read as it comes."""

    def __init__(self, response: httpcore2.Response, stop: Stop) -> None:
        self.status = response.status
        self.headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in response.headers
        }
        self.chunks: Iterator[bytes] = iter(response.iter_stream())
        self._stop = stop

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    def read(self) -> bytes:
        """The whole body; raises ModelError when it is far too long."""
        body = bytearray()
        for chunk in self.chunks:
            body += chunk
            if len(body) > _MOST_BYTES:
                raise _endless()
        self._stop.check()  # a connection that was cut looks like one that ended
        return bytes(body)

    def events(self) -> Iterator[bytes]:
        """The data of each server-sent event, until a stop."""
        for data in payloads(self.chunks):
            self._stop.check()
            yield data
        self._stop.check()


class Connection:
    """One server: its address, what every request to it carries, how long it may be silent."""

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        *,
        provider: str,
        silence_s: float = 300.0,
        connect_s: float = CONNECT_S,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.provider = provider
        self._timeout = {"connect": connect_s, "read": silence_s, "write": silence_s}
        self._host = host_of(self.base_url)
        carried = {"Host": self._host, "User-Agent": f"hermes/{VERSION}", **headers}
        self._headers = [(n.encode("ascii"), v.encode("latin-1")) for n, v in carried.items()]
        self._proxy = proxy_for(self.base_url, config.proxies())
        self._key = _PoolKey(urlsplit(self.base_url).scheme == "https", self._proxy)
        self._pool: httpcore2.ConnectionPool | None = None
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def post(self, path: str, body: bytes, stop: Stop) -> Generator[Answer]:
        """Send a body and hand over the answer; raises ModelUnreachableError and Interrupted."""
        size = (b"Content-Length", str(len(body)).encode())
        headers = [*self._headers, (b"Content-Type", b"application/json"), size]
        with self._ask(self._request("POST", path, headers, body), stop) as answer:
            yield answer

    def get(self, path: str, stop: Stop, *, silence_s: float) -> Page:
        """Fetch a small page; raises as `post` does."""
        limits = {**self._timeout, "read": silence_s}
        request = self._request("GET", path, self._headers, limits=limits)
        with self._ask(request, stop) as answer:
            return Page(answer.status, answer.read())

    def close(self) -> None:
        """Let go of the connections."""
        with self._lock:
            if self._pool is not None:
                self._pool = None
                _release(self._key)

    @contextlib.contextmanager
    def _ask(self, request: httpcore2.Request, stop: Stop) -> Generator[Answer]:
        stop.check()
        with calling(stop) as line:
            try:
                response = self._send(request, line)
                try:
                    answer = Answer(response, stop)
                    yield answer
                    _drain(answer, line)
                finally:
                    response.close()
            except _FOREIGN as error:
                if stop.is_set:
                    raise Interrupted from None
                raise self._unreachable(error) from error

    def _send(self, request: httpcore2.Request, line: Line) -> httpcore2.Response:
        """Send a request; once more when the connection turns out to have been dead before."""
        while True:
            try:
                return self._connections().handle_request(request)
            except (httpcore2.NetworkError, httpcore2.ProtocolError):
                if line.stop.is_set or not line.is_stale:
                    raise
                line.let_go()

    def _request(
        self,
        method: str,
        path: str,
        headers: list[tuple[bytes, bytes]],
        body: bytes | None = None,
        *,
        limits: Mapping[str, float] | None = None,
    ) -> httpcore2.Request:
        url, timeout = self.base_url + path, {"timeout": limits or self._timeout}
        return httpcore2.Request(method, url, headers=headers, content=body, extensions=timeout)

    def _connections(self) -> httpcore2.ConnectionPool:
        with self._lock:
            if self._pool is None:
                self._pool = _acquire(self._key)
            return self._pool

    def _unreachable(self, error: Exception) -> ModelUnreachableError:
        host = self._host
        if isinstance(error, _NOT_CONNECTED):
            message = f"{self.provider} at {host} cannot be reached: {error}."
            fix = self._what_to_start(host)
        elif isinstance(error, httpcore2.TimeoutException):
            message = f"{self.provider} at {host} is silent."
            fix = "Ask again, or raise model.timeout_s when the model is that slow."
        else:
            message = f"{self.provider} at {host} cut the connection: {error}"
            fix = "Ask again."
        return ModelUnreachableError(message, fix=fix, retryable=True, provider=self.provider)

    def _what_to_start(self, host: str) -> str:
        if self._proxy:
            return f"Check the network and the proxy {urlsplit(self._proxy).hostname}."
        if host.startswith(("127.", "localhost", "[::1]")):
            return f"Start the model's server so that it listens on {host}, or see `hermes model`."
        return "Check the network and the address, or see `hermes model` for another model."


def _drain(answer: Answer, line: Line) -> None:
    """Read the end of the body, without which the connection could not be used again."""
    line.patience_s = _DRAIN_S
    with contextlib.suppress(*_FOREIGN, Interrupted):
        for _ in answer.chunks:
            pass


class _PoolKey(NamedTuple):
    is_secure: bool
    proxy: str


class _Shared:
    """Connections that several wires use, until the last of them is closed."""

    def __init__(self, pool: httpcore2.ConnectionPool) -> None:
        self.pool = pool
        self.users = 0


_pools: dict[_PoolKey, _Shared] = {}
_pools_lock = threading.Lock()


def _acquire(key: _PoolKey) -> httpcore2.ConnectionPool:
    with _pools_lock:
        if key not in _pools:
            _pools[key] = _Shared(_make_pool(key))
        _pools[key].users += 1
        return _pools[key].pool


def _release(key: _PoolKey) -> None:
    with _pools_lock:
        shared = _pools[key]
        shared.users -= 1
        if not shared.users:
            del _pools[key]
            shared.pool.close()


def _make_pool(key: _PoolKey) -> httpcore2.ConnectionPool:
    return httpcore2.ConnectionPool(
        # Reading the certificates costs milliseconds, which plain addresses need not pay.
        ssl_context=httpcore2.default_ssl_context() if key.is_secure else None,
        proxy=_proxy(key.proxy) if key.proxy else None,
        max_connections=None,
        max_keepalive_connections=32,
        keepalive_expiry=_KEEP_ALIVE_S,
        network_backend=Backend(),
    )


def _proxy(address: str) -> httpcore2.Proxy:
    parts = urlsplit(address)
    bare = f"{parts.scheme}://{parts.hostname}:{parts.port or 80}"
    if parts.username is None:
        return httpcore2.Proxy(bare)
    return httpcore2.Proxy(bare, auth=(parts.username, parts.password or ""))


def payloads(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The data of each server-sent event; names, ids and comments of events are not needed."""
    rest = b""
    data: list[bytes] = []
    for chunk in chunks:
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        if len(rest) > _MOST_BYTES:
            raise _endless()
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:].strip())
            elif data and (not line or line == b"\r"):
                yield data[0] if len(data) == 1 else b"\n".join(data)
                data = []
    if rest.startswith(b"data:"):
        data.append(rest[5:].strip())
    if data:
        yield b"\n".join(data)


def _endless() -> ModelError:
    return ModelError(
        "The answer of the model's server has no end.", fix="Check what answers at its address."
    )
