"""Posts a reply to the address of a hook, and reports the outcome."""

import hashlib
import re
from urllib.parse import urlsplit

import httpx2

from gateway.platforms.base import ErrorKind, SendResult
from gateway.platforms.webhook import signature
from gateway.platforms.webhook.manifest import HookSettings
from hermes_agent.models.proxy import proxy_for
from hermes_core import config

_TIMEOUT_S = 20.0
_RETRY_AFTER_S = 30.0
_PLAIN = re.compile(r"[\w.:-]{1,128}", re.ASCII)


class Poster:
    """Posts over connections that stay open as long as the adapter is connected."""

    def __init__(self) -> None:
        self._clients: dict[str, httpx2.AsyncClient] = {}

    async def post(self, hook: HookSettings, key: str, body: bytes) -> SendResult:
        """Post one piece. Its key is the delivery id, so a receiver recognizes a repeat."""
        delivery = key if _PLAIN.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()
        headers = signature.sign(hook.style, hook.secret, delivery, body)
        headers["Content-Type"] = "application/json"
        try:
            client = self._client(hook.deliver)
            answer = await client.post(hook.deliver, content=body, headers=headers)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return _failed("network", f"{_receiver(hook)} cannot be reached: {error}.")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return _failed("unsure", f"{_receiver(hook)} did not answer: {error!r}.")
        return _outcome(answer, delivery)

    async def close(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    def _client(self, url: str) -> httpx2.AsyncClient:
        proxy = proxy_for(url, config.proxies())
        if proxy not in self._clients:
            self._clients[proxy] = httpx2.AsyncClient(
                timeout=_TIMEOUT_S, follow_redirects=False, trust_env=False, proxy=proxy or None
            )
        return self._clients[proxy]


def _receiver(hook: HookSettings) -> str:
    """Return the receiver as a log may name it: without passwords and paths."""
    return urlsplit(hook.deliver).hostname or ""


def _outcome(answer: httpx2.Response, delivery: str) -> SendResult:
    if answer.is_success:
        return SendResult(success=True, message_id=delivery)
    status, message = answer.status_code, f"The receiver answered {answer.status_code}."
    if status == 429 or (status == 503 and "retry-after" in answer.headers):
        return _failed("rate_limited", message, _seconds(answer.headers.get("retry-after", "")))
    if status == 413:
        return _failed("too_long", message)
    return _failed("unsure" if status == 408 or status >= 500 else "refused", message)


def _seconds(text: str) -> float:
    return float(text) if text.isdecimal() else _RETRY_AFTER_S


def _failed(kind: ErrorKind, message: str, retry_after: float | None = None) -> SendResult:
    return SendResult(success=False, error=message, error_kind=kind, retry_after=retry_after)
