"""Requests to the homeserver, and what its refusals and its silence mean."""

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

_ATTEMPTS = 5
_AWAY_AFTER = 3
"""So many attempts, over some seconds, and a server that does not answer is taken to be away."""
_LONGEST_PAUSE_S = 60.0
_TOO_LARGE = 413
_NOT_LOGGED_IN = {"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED"}


class RequestFailed(HermesError):
    """The server did not do what it was asked; `kind` says whether asking again is of use."""

    def __init__(
        self, kind: ErrorKind, text: str, *, code: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(text)
        self.kind: ErrorKind = kind
        self.code = code
        """The server's own word for it, such as M_FORBIDDEN."""
        self.retry_after = retry_after
        self.is_device_kept = False
        """Whether who is logged out may come back as the same device."""

    @property
    def is_logged_out(self) -> bool:
        return self.code in _NOT_LOGGED_IN

    @property
    def is_unreached(self) -> bool:
        """Whether nobody was there to answer."""
        return self.kind == "network" and not self.code

    @property
    def ends_reading(self) -> bool:
        """Whether nothing more can be asked for now, whatever it is."""
        return self.is_logged_out or self.is_unreached

    @property
    def is_transient(self) -> bool:
        return self.kind in ("network", "rate_limited")

    def as_result(self) -> SendResult:
        return SendResult(
            success=False, error=str(self), error_kind=self.kind, retry_after=self.retry_after
        )


async def answered(kind: type[T], call: Awaitable[object], *, within_s: float = 60.0) -> T:
    """What the server answered; raises RequestFailed when it refused, or did not answer in time."""
    response = await reached(call, within_s=within_s)
    if isinstance(response, ErrorResponse):
        raise _refusal(response)
    if not isinstance(response, kind):
        raise RequestFailed("network", "The homeserver answered what nobody asked.")
    return response


async def reached(call: Awaitable[T], *, within_s: float = 60.0) -> T:
    """Whatever the server answered; raises RequestFailed when it did not.

    A request that was cut off is `network`, though it may have arrived: whatever we send has a
    transaction id, and a second one with the same id changes nothing.
    """
    try:
        async with asyncio.timeout(within_s):
            return await call
    except ProtocolError as error:
        raise RequestFailed("network", f"Nothing was asked: {error}", code="client") from error
    except (ClientError, OSError) as error:
        said = str(error) or type(error).__name__
        raise RequestFailed("network", f"The homeserver was not reached: {said}.") from error


async def persistently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again when the answer is lost or put off; whoever is limited waits as long as they are told.

    Raises RequestFailed when the server refuses, logs us out, is away for longer than a moment, or is
    there and fails at this one again and again.
    """
    failures = 0
    while True:
        try:
            return await ask()
        except RequestFailed as error:
            failures += 1
            if not _is_worth_another(error, failures):
                raise
            if failures == 1:
                _log.warning("Matrix: %s Trying again.", error)
            pause = min(2.0**failures / 2, _LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)
            await asyncio.sleep(error.retry_after or pause)


def _is_worth_another(error: RequestFailed, failures: int) -> bool:
    if error.is_logged_out or not error.is_transient:
        return False
    if error.kind == "rate_limited":
        return True
    return failures < (_AWAY_AFTER if error.is_unreached else _ATTEMPTS)


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
    # Before the homeserver there is often something that takes less than it does, and has no code.
    if code == "M_TOO_LARGE" or status == _TOO_LARGE:
        return RequestFailed("too_long", text, code=code)
    # Without a code it was not the homeserver that answered, but something before it.
    if code in _NOT_LOGGED_IN or not code or status >= 500:
        failed = RequestFailed("network", text, code=code)
        failed.is_device_kept = response.soft_logout
        return failed
    return RequestFailed("refused", text, code=code)
