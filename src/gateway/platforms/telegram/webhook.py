"""The webhook: Telegram posts each update to us and posts it again until we answer 200."""

import asyncio
import contextlib
import hmac
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from telegram.error import InvalidToken, TelegramError

from gateway.platforms.base import PlatformError
from gateway.platforms.listener import read_body
from gateway.platforms.refusal import RefusedRequest
from gateway.platforms.telegram.failures import connection_error
from gateway.platforms.telegram.wire import Wire, table
from hermes_core.errors import StoreError

SECRET_HEADER = "x-telegram-bot-api-secret-token"
_MAX_BODY_BYTES = 1 << 20
_log = logging.getLogger(__name__)


class Webhook:
    """The ASGI application: one path, only for requests that bring the secret."""

    def __init__(
        self, path: str, secret: str, deliver: Callable[[Sequence[dict[str, Any]]], Awaitable[None]]
    ) -> None:
        self._path = path
        self._secret = secret.encode()
        self._deliver = deliver

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            status = await self._answer(Request(scope, receive))
        except RefusedRequest as refused:
            status = refused.status
        await Response(status_code=status)(scope, receive, send)

    async def _answer(self, request: Request) -> int:
        """Return 200 when the update is on disk, or was skipped for good."""
        if request.method != "POST" or request.url.path != self._path:
            return HTTPStatus.NOT_FOUND
        if not hmac.compare_digest(request.headers.get(SECRET_HEADER, "").encode(), self._secret):
            return HTTPStatus.FORBIDDEN
        try:
            update = table(json.loads(await read_body(request, _MAX_BODY_BYTES)))
        except ValueError:
            return HTTPStatus.BAD_REQUEST
        return await self._accept(update) if "update_id" in update else HTTPStatus.BAD_REQUEST

    async def _accept(self, update: dict[str, Any]) -> int:
        try:
            await self._deliver([update])
        except StoreError as error:
            _log.warning("A message of Telegram waits for the store: %s", error)
            return HTTPStatus.SERVICE_UNAVAILABLE
        except Exception:  # noqa: BLE001 -- the boundary: Telegram is told, and delivers again
            _log.exception("An update of Telegram could not be accepted.")
            return HTTPStatus.INTERNAL_SERVER_ERROR
        return HTTPStatus.OK


class Watch:
    """Checks periodically whether Telegram still sends to us, and whether it gets through."""

    def __init__(self, wire: Wire, url: str, interval_s: float) -> None:
        self._wire = wire
        self._url = url
        self._interval_s = interval_s
        self._reported: object = None
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Check until stopped; raises PlatformError when the webhook is not ours any more."""
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._stopping.wait()
                return
            await self._check()

    async def _check(self) -> None:
        try:
            info = await self._wire.get_webhook_info()
        except InvalidToken as error:
            raise connection_error(error) from None
        except TelegramError as error:
            _log.debug("The webhook could not be checked: %s", type(error).__name__)
            return
        if info.url != self._url:
            raise PlatformError(
                "Another program took over the webhook of this Telegram bot.",
                fix="Let only one program use the token, or revoke it with @BotFather.",
            )
        if info.pending_update_count and info.last_error_date != self._reported:
            self._reported = info.last_error_date
            _log.warning("Telegram cannot reach the webhook: %s", info.last_error_message)
