"""The Bot API as we call it: raw updates, only the ids of sent messages, our own flood error."""

import json
import logging
from typing import Any, cast

from telegram import Bot
from telegram.error import BadRequest, TelegramError
from telegram.request import HTTPXRequest

from gateway.platforms.telegram.manifest import TelegramSettings
from hermes_core import secrets

KINDS = ["message", "edited_message", "channel_post", "edited_channel_post", "callback_query"]
"""The updates that we request."""

_SENDING = frozenset({"sendMessage", "sendPhoto", "sendDocument", "editMessageText"})
"""The methods that return the message that they show."""
_NOWHERE = {"id": 0, "type": "private"}
_VERBOSE_LOGGERS = ("httpx", "httpcore", "telegram")
_POLL_MARGIN_S = 10.0
_READ_TIMEOUT_S = 20.0
_CONNECT_TIMEOUT_S = 10.0
_MEDIA_TIMEOUT_S = 120.0
_TOO_LARGE = 413
_TOO_MANY = 429


class FloodError(TelegramError):
    """Telegram limits our rate. (The library's own error warns whenever it is created.)"""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"Telegram wants us to wait for {retry_after:g} s.")
        self.retry_after = retry_after


class Wire(Bot):
    """The library's bot, and a poll whose updates are parsed one by one: an odd one spoils no other.

    Of a message that was sent only the id is read. With it comes what it replies to, which may be
    something that the library cannot read; that must not make a success a failure.
    """

    def __init__(self, settings: TelegramSettings) -> None:
        keep_quiet(settings.token)
        base = settings.api_url.rstrip("/")
        super().__init__(
            settings.token,
            base_url=f"{base}/bot",
            base_file_url=f"{base}/file/bot",
            request=_request(_READ_TIMEOUT_S, connections=64),
            get_updates_request=_request(settings.poll_s + _POLL_MARGIN_S, connections=2),
        )

    async def updates(self, offset: int, timeout_s: int, limit: int = 100) -> list[dict[str, Any]]:
        """Fetch updates from `offset` on; that acknowledges those below it."""
        fields = {"offset": offset, "timeout": timeout_s, "limit": limit, "allowed_updates": KINDS}
        return cast("list[dict[str, Any]]", await self._post("getUpdates", fields))

    async def _post(self, endpoint: str, *args: Any, **named: Any) -> Any:  # noqa: ANN401
        done = await super()._post(endpoint, *args, **named)
        if endpoint not in _SENDING:
            return done
        return {"message_id": table(done).get("message_id", 0), "date": 0, "chat": _NOWHERE}


class _Request(HTTPXRequest):
    """The library's requests, with our own error for flood limits.

    The library takes 413 for a failure of the network, which could pass.
    """

    async def do_request(self, *args: Any, **named: Any) -> tuple[int, bytes]:  # noqa: ANN401
        code, payload = await super().do_request(*args, **named)
        if code == _TOO_MANY:
            raise FloodError(_retry_after(payload))
        if code == _TOO_LARGE:
            raise BadRequest("Telegram does not accept a file of this size")
        return code, payload


def keep_quiet(token: str) -> None:
    """Keep the token, which is part of every address, out of the log."""
    secrets.register({"TELEGRAM_BOT_TOKEN": token})
    for name in _VERBOSE_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)


def table(value: object) -> dict[str, Any]:
    """Return an object of a JSON payload; empty when it is something else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _request(read_s: float, connections: int) -> _Request:
    return _Request(
        connection_pool_size=connections,
        read_timeout=read_s,
        write_timeout=_READ_TIMEOUT_S,
        connect_timeout=_CONNECT_TIMEOUT_S,
        pool_timeout=_CONNECT_TIMEOUT_S,
        media_write_timeout=_MEDIA_TIMEOUT_S,
    )


def _retry_after(payload: bytes) -> float:
    try:
        return float(json.loads(payload)["parameters"]["retry_after"])
    except (ValueError, KeyError, TypeError):
        return 1.0
