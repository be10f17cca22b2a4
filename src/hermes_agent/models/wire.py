"""Requests to one server, as adapters make them. What connects is loaded with the first one."""

import contextlib
import threading
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import SplitResult, urlsplit

import msgspec

from hermes_agent.stop import Stop
from hermes_core.errors import ConfigError
from hermes_core.loading import loading
from hermes_core.secrets import redact_bytes
from hermes_core.text import without_surrogates

if TYPE_CHECKING:
    from hermes_agent.models.connection import Answer, Connection

CONNECT_S = 10.0

_encoder = msgspec.json.Encoder()


def encode(body: Mapping[str, Any]) -> bytes:
    """The bytes of a request: the same for the same content, without secrets."""
    try:
        return redact_bytes(_encoder.encode(body))
    except UnicodeEncodeError:  # half characters somewhere inside: rare, so found out the slow way
        return redact_bytes(_encoder.encode(_whole(body)))


def _whole(value: Any) -> Any:  # noqa: ANN401 -- whatever JSON is
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        return {_whole(key): _whole(item) for key, item in pairs}
    if isinstance(value, list | tuple):
        return [_whole(item) for item in cast("list[Any]", value)]
    return value


class Page(NamedTuple):
    """A small answer, read to its end."""

    status: int
    body: bytes


class Wire:
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
        """Nothing is connected yet; raises ConfigError for what is no address."""
        self.base_url = base_url.rstrip("/")
        self.provider = provider
        host_of(self.base_url)
        self._headers = headers
        self._limits = silence_s, connect_s
        self._lock = threading.Lock()
        self._made: Connection | None = None

    @contextlib.contextmanager
    def post(self, path: str, body: bytes, stop: Stop) -> "Generator[Answer]":
        """Send a body and hand over the answer; raises ModelUnreachableError and Interrupted."""
        with self._connection().post(path, body, stop) as answer:
            yield answer

    def get(self, path: str, stop: Stop, *, silence_s: float) -> Page:
        """Fetch a small page; raises as `post` does."""
        return self._connection().get(path, stop, silence_s=silence_s)

    def close(self) -> None:
        """Let go of the connections."""
        if self._made is not None:
            self._made.close()

    def _connection(self) -> "Connection":
        with self._lock:
            if self._made is None:
                with loading:
                    from hermes_agent.models.connection import Connection  # noqa: PLC0415 -- 30 ms

                silence_s, connect_s = self._limits
                self._made = Connection(
                    self.base_url,
                    self._headers,
                    provider=self.provider,
                    silence_s=silence_s,
                    connect_s=connect_s,
                )
            return self._made


def _names_a_server(parts: SplitResult) -> bool:
    host = parts.hostname or ""
    try:
        if not host.isascii():
            host.encode("idna")
        return bool(host) and parts.port != 0
    except ValueError:  # a name that none can have; no number, or one that no port has
        return False


def host_of(url: str) -> str:
    """The host and port in an address; raises ConfigError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not _names_a_server(parts):
        raise ConfigError(
            f"{url!r} is no address of a model's server.",
            fix="Give one like http://127.0.0.1:8080/v1 as model.base_url.",
        )
    return parts.netloc.rpartition("@")[2]
