"""A connection to one server: kept and shared, answers as they come, failures in our words.

What it takes to connect costs 30 ms to import, so only what is about to ask imports this module.
"""

import contextlib
import logging
from collections.abc import Generator, Iterable, Iterator, Mapping
from http.client import HTTPResponse
from urllib.parse import quote, urlsplit

from hermes_agent.models.link import Link, Place, links, pass_for
from hermes_agent.models.network import CutError, Line, NetworkError, SilentError, UnreachedError
from hermes_agent.models.proxy import proxy_for
from hermes_agent.models.wire import CONNECT_S, Page, host_of
from hermes_agent.stop import Stop
from hermes_core import config
from hermes_core.errors import Interrupted, ModelError, ModelUnreachableError
from hermes_core.version import VERSION

logger = logging.getLogger(__name__)

_DRAIN_S = 0.25
"""How long the end of a stream is waited for once the reply is complete."""
_MOST_BYTES = 64 * 1024 * 1024
"""More than any reply; a server that sends more is not listened to."""


class Answer:
    """A server's answer, whose body is read as it comes."""

    def __init__(self, link: Link, response: HTTPResponse, stop: Stop) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        self.chunks: Iterator[bytes] = link.chunks(response)
        self._link = link
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

    def drain(self) -> None:
        """Read the end of the body, without which the connection could not be used again."""
        with contextlib.suppress(NetworkError):
            self._link.be_patient(_DRAIN_S)
            for _ in self.chunks:
                pass


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
        self._silence_s, self._connect_s = silence_s, connect_s
        self._host = host_of(self.base_url)
        parts = urlsplit(self.base_url)
        is_secure = parts.scheme == "https"
        self._place = Place(
            parts.hostname or "",
            parts.port or (443 if is_secure else 80),
            is_secure,
            proxy_for(self.base_url, config.proxies()),
        )
        carried = {"Host": _ascii(self._host), "User-Agent": f"hermes/{VERSION}", **headers}
        self._head = "".join(_line(name, value, provider) for name, value in carried.items())
        self._target = quote(parts.path, safe="/%:@!$&'()*+,;=~")
        if self._place.is_asked_by_proxy:
            self._target = f"http://{_ascii(self._host)}{self._target}"
            self._head += pass_for(self._place.proxy)
        self._is_open = True
        links.join(self._place)

    @contextlib.contextmanager
    def post(self, path: str, body: bytes, stop: Stop) -> Generator[Answer]:
        """Send a body and hand over the answer; raises ModelUnreachableError and Interrupted."""
        more = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        with self._ask(self._request("POST", path, more) + body, stop, self._silence_s) as answer:
            yield answer

    def get(self, path: str, stop: Stop, *, silence_s: float) -> Page:
        """Fetch a small page; raises as `post` does."""
        with self._ask(self._request("GET", path), stop, silence_s) as answer:
            return Page(answer.status, answer.read())

    def close(self) -> None:
        """Let go of the connections."""
        if self._is_open:
            self._is_open = False
            links.leave(self._place)

    def _request(self, method: str, path: str, more: str = "") -> bytes:
        head = f"{method} {self._target}{path} HTTP/1.1\r\n{self._head}{more}\r\n"
        return head.encode("latin-1")

    @contextlib.contextmanager
    def _ask(self, request: bytes, stop: Stop, silence_s: float) -> Generator[Answer]:
        stop.check()
        line = Line(stop)
        try:
            with stop.undoing(line.cut), self._linked(request, silence_s, line) as answer:
                yield answer
                answer.drain()
        except NetworkError as error:
            if stop.is_set:
                raise Interrupted from None
            raise self._unreachable(error) from error

    @contextlib.contextmanager
    def _linked(self, request: bytes, silence_s: float, line: Line) -> Generator[Answer]:
        """The link of one call, with its answer; afterwards it is kept for the next one, or closed."""
        link, response = self._answered(request, silence_s, line)
        try:
            yield Answer(link, response, line.stop)
        finally:
            line.let_go()
            if link.can_serve_again and not line.stop.is_set:
                links.keep(self._place, link)
            else:
                link.close()

    def _answered(self, request: bytes, silence_s: float, line: Line) -> tuple[Link, HTTPResponse]:
        """Send a request; once more when the connection turns out to have been dead before.

        Servers hang up on connections that they think are done with; what was sent into such a one
        was not heard.
        """
        while True:
            link = links.take(self._place)
            is_new = link is None
            if link is None:
                link = links.reach(self._place, self._connect_s, line)
            try:
                line.hold(link.sock)
                return link, link.ask(request, silence_s)
            except BaseException as error:
                line.let_go()
                link.close()
                if is_new or line.stop.is_set or not isinstance(error, CutError):
                    raise

    def _unreachable(self, error: NetworkError) -> ModelUnreachableError:
        host = self._host
        logger.info("%s at %s: %r", self.provider, host, error.__cause__ or error)
        if isinstance(error, UnreachedError):
            message = f"{self.provider} at {host} cannot be reached: {error}."
            fix = self._what_to_start(host)
        elif isinstance(error, SilentError):
            message = f"{self.provider} at {host} is silent."
            fix = "Ask again, or raise model.timeout_s when the model is that slow."
        else:
            message = f"{self.provider} at {host} cut the connection: {error}."
            fix = "Ask again."
        return ModelUnreachableError(message, fix=fix, retryable=True, provider=self.provider)

    def _what_to_start(self, host: str) -> str:
        if self._place.proxy:
            return f"Check the network and the proxy {urlsplit(self._place.proxy).hostname}."
        if host.startswith(("127.", "localhost", "[::1]")):
            return f"Start the model's server so that it listens on {host}, or see `hermes model`."
        return "Check the network and the address, or see `hermes model` for another model."


def _line(name: str, value: str, provider: str) -> str:
    """One line of a request's head; a key that was pasted with more than itself would break it."""
    if not value.isascii() or not value.isprintable():
        raise ModelError(
            f"The {name} header for {provider} holds characters that cannot be sent.",
            fix="Enter the key again, without quotes and line breaks, with `hermes model`.",
            provider=provider,
        )
    return f"{name}: {value}\r\n"


def _ascii(host: str) -> str:
    return host if host.isascii() else host.encode("idna").decode()


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
