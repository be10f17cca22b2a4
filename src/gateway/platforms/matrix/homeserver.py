"""Requests to the homeserver: timeouts, retries, and the meaning of its errors."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from aiohttp import ClientError
from nio.exceptions import ProtocolError
from nio.responses import ErrorResponse

from gateway.platforms.base import ErrorKind, SendResult
from hermes_core.errors import HermesError

_log = logging.getLogger(__name__)
T = TypeVar("T")

_MAX_ATTEMPTS = 5
_MAX_UNREACHED = 3
"""After so many attempts, over some seconds, a server that does not answer counts as away."""
_MAX_PAUSE_S = 60.0
_TOO_LARGE = 413
_NOT_LOGGED_IN = {"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED"}


class RequestFailed(HermesError):
    """A request failed; `kind` says whether a retry may help."""

    def __init__(
        self, kind: ErrorKind, text: str, *, code: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(text)
        self.kind: ErrorKind = kind
        self.code = code
        """The error code of the server, such as M_FORBIDDEN."""
        self.retry_after = retry_after
        self.is_device_kept = False
        """Whether a login after being logged out may use the same device."""

    @property
    def is_logged_out(self) -> bool:
        return self.code in _NOT_LOGGED_IN

    @property
    def is_unreached(self) -> bool:
        """Return whether the server did not answer."""
        return self.kind == "network" and not self.code

    @property
    def ends_reading(self) -> bool:
        """Return whether no other request can succeed now either."""
        return self.is_logged_out or self.is_unreached

    @property
    def is_transient(self) -> bool:
        return self.kind in ("network", "rate_limited")

    def as_result(self) -> SendResult:
        return SendResult(
            success=False, error=str(self), error_kind=self.kind, retry_after=self.retry_after
        )


async def request(kind: type[T], call: Awaitable[object], *, timeout_s: float = 60.0) -> T:
    """Return the response of the server; raises RequestFailed for an error or a timeout."""
    response = await response_of(call, timeout_s=timeout_s)
    if isinstance(response, ErrorResponse):
        raise _refusal(response)
    if not isinstance(response, kind):
        raise RequestFailed("network", "The homeserver sent an unexpected response.")
    return response


async def response_of(call: Awaitable[T], *, timeout_s: float = 60.0) -> T:
    """Return any response of the server; raises RequestFailed when there is none.

    A request that was cut off is `network`, though it may have arrived: everything we send has a
    transaction id, and a repeat with the same id changes nothing.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await call
    except ProtocolError as error:
        raise RequestFailed(
            "network", f"The request was not sent: {error}", code="client"
        ) from error
    except (ClientError, OSError) as error:
        reason = str(error) or type(error).__name__
        raise RequestFailed("network", f"The homeserver was not reached: {reason}.") from error


async def with_retries(send: Callable[[], Awaitable[T]]) -> T:
    """Send a request, and repeat it after failures that may pass; rate limits are waited out.

    Raises RequestFailed when the server refuses, logs us out, stays away, or fails again and again.
    """
    failures = 0
    while True:
        try:
            return await send()
        except RequestFailed as error:
            failures += 1
            if not _may_retry(error, failures):
                raise
            if failures == 1:
                _log.warning("Matrix: %s Retrying.", error)
            pause = min(2.0**failures / 2, _MAX_PAUSE_S) * random.uniform(0.5, 1.0)
            await asyncio.sleep(error.retry_after or pause)


def _may_retry(error: RequestFailed, failures: int) -> bool:
    if error.is_logged_out or not error.is_transient:
        return False
    if error.kind == "rate_limited":
        return True
    return failures < (_MAX_UNREACHED if error.is_unreached else _MAX_ATTEMPTS)


def _refusal(response: ErrorResponse) -> RequestFailed:
    transport = cast("Any", response.transport_response)
    status: int = transport.status if transport is not None else 0
    code = str(response.status_code or "")
    text = f"The homeserver refused: {response.message} ({code or status})"
    if code == "M_LIMIT_EXCEEDED" or status == 429:
        wait = response.retry_after_ms
        return RequestFailed(
            "rate_limited", text, code=code, retry_after=wait / 1000 if wait else 5.0
        )
    # A proxy before the homeserver often has a smaller limit, and sends no code.
    if code == "M_TOO_LARGE" or status == _TOO_LARGE:
        return RequestFailed("too_long", text, code=code)
    # Without a code it was a proxy that request, not the homeserver.
    if code in _NOT_LOGGED_IN or not code or status >= 500:
        failed = RequestFailed("network", text, code=code)
        failed.is_device_kept = response.soft_logout
        return failed
    return RequestFailed("refused", text, code=code)
