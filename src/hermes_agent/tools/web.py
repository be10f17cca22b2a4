"""Fetching from the web: only public addresses, at every redirect, within a size and a time.

A name is looked up once, every address it has is vetted, and the connection goes to a vetted address, so
that a name that changes its mind in between leads nowhere.
"""

import time
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import urljoin, urlsplit

from hermes_agent.addresses import Address, is_public, look_up
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ToolError
from hermes_core.secrets import redact
from hermes_core.version import VERSION

if TYPE_CHECKING:
    import httpx2

_MAX_REDIRECTS = 5
_MAX_ADDRESSES = 4
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_AGENT = f"Mozilla/5.0 (compatible; Hermes/{VERSION})"
T = TypeVar("T")


class Page(NamedTuple):
    """The response of an address."""

    url: str
    status: int
    content_type: str
    charset: str
    body: bytes
    is_cut: bool


class Web:
    """A way to the web; `trusted` names origins (host:port) that may lie anywhere."""

    def __init__(
        self,
        trusted: Collection[str] = (),
        *,
        most_bytes: int = 5 * 1024 * 1024,
        timeout_s: float = 30.0,
    ) -> None:
        self._trusted = frozenset(trusted)
        self._max_bytes = most_bytes
        self._timeout_s = timeout_s

    def fetch(self, url: str, stop: Stop) -> Page:
        """Get a page; raises ToolError, and Interrupted soon after a stop."""
        if redact(url) != url:
            raise ToolError("The address has a secret in it.", fix="Leave the secret out.")
        return stop.abandonable(lambda: self._fetch(url, stop), "web")

    def _fetch(self, url: str, stop: Stop) -> Page:
        import httpx2  # noqa: PLC0415 -- a tenth of a second that only web tools need

        deadline = time.monotonic() + self._timeout_s
        timeout = httpx2.Timeout(self._timeout_s, connect=10.0)
        try:
            with httpx2.Client(timeout=timeout, trust_env=False, follow_redirects=False) as client:
                for _ in range(_MAX_REDIRECTS + 1):
                    page, target = self._get(client, url, stop, deadline)
                    if not target:
                        return page
                    url = target
        except httpx2.InvalidURL as error:
            raise ToolError(f"{url!r} is not a web address.", fix="Give https://…") from error
        except httpx2.TimeoutException as error:
            raise ToolError(f"{url} did not answer in time.") from error
        except httpx2.HTTPError as error:
            raise ToolError(f"{url} cannot be fetched: {error}.") from error
        raise ToolError(f"{url} redirects again and again.")

    def _get(
        self, client: "httpx2.Client", url: str, stop: Stop, deadline: float
    ) -> tuple[Page, str]:
        """One request; the second value is where it redirects to."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme not in ("http", "https") or not host:
            raise ToolError(f"{url!r} is not a web address.", fix="Give http:// or https://.")
        if parts.username or parts.password:
            raise ToolError("The address has a password in it.", fix="Leave it out.")
        response = _ask(client, url, self._vetted(host, _port(url)))
        try:
            location = response.headers.get("location", "")
            if response.status_code in _REDIRECTS and location:
                return Page(url, response.status_code, "", "", b"", is_cut=False), urljoin(
                    url, location
                )
            body, is_cut = self._body(response, stop, deadline)
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            charset = response.charset_encoding or ""
            return Page(url, response.status_code, kind, charset, body, is_cut), ""
        finally:
            response.close()

    def _vetted(self, host: str, port: int) -> list[Address]:
        """The addresses to connect to; raises ToolError when the name leads to a private one."""
        addresses = look_up(host, port)
        if f"{host}:{port}" not in self._trusted:
            for address in addresses:
                if not is_public(address):
                    raise ToolError(
                        f"{host} is an address of this machine or of a private network.",
                        fix="Only public addresses are fetched; for a local one use terminal.",
                    )
        return addresses

    def _body(self, response: "httpx2.Response", stop: Stop, deadline: float) -> tuple[bytes, bool]:
        body = bytearray()
        for chunk in response.iter_bytes():
            stop.check()
            body += chunk
            if len(body) > self._max_bytes or time.monotonic() > deadline:
                return bytes(body[: self._max_bytes]), True
        return bytes(body), False


def _ask(client: "httpx2.Client", url: str, addresses: list[Address]) -> "httpx2.Response":
    """Ask the first of the vetted addresses that can be reached, under the name of the host."""
    import httpx2  # noqa: PLC0415 -- loaded by whoever made the client

    parts = urlsplit(url)
    headers = {"Host": parts.netloc, "User-Agent": _AGENT, "Accept": "text/html,*/*;q=0.8"}
    extensions = {"sni_hostname": parts.hostname}
    failure: httpx2.TransportError = httpx2.ConnectError("no address")
    for address in addresses[:_MAX_ADDRESSES]:
        target = _with_host(url, str(address))
        request = client.build_request("GET", target, headers=headers, extensions=extensions)
        try:
            return client.send(request, stream=True)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            failure = error
    raise failure


def _port(url: str) -> int:
    parts = urlsplit(url)
    try:
        return parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise ToolError(f"{url!r} is not a web address.", fix="Correct the port.") from error


def origin(url: str) -> str:
    """The host and port of an address."""
    return f"{urlsplit(url).hostname or ''}:{_port(url)}"


def _with_host(url: str, address: str) -> str:
    """The same address, but for the vetted host."""
    parts = urlsplit(url)
    host = f"[{address}]" if ":" in address else address
    netloc = f"{host}:{parts.port}" if parts.port else host
    return parts._replace(netloc=netloc, fragment="").geturl()
