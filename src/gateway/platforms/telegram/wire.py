"""The Bot API as we call it: updates as raw JSON, of what was sent the id alone, flood limits as an
error of ours, and a quiet log.
"""

import json
import logging
from typing import Any, cast

from telegram import Bot
from telegram.error import BadRequest, TelegramError
from telegram.request import HTTPXRequest

from gateway.platforms.telegram.manifest import TelegramSettings
from hermes_core import secrets

KINDS = ["message", "edited_message", "channel_post", "edited_channel_post", "callback_query"]
"""The updates that we ask for."""

_SHOWS = frozenset({"sendMessage", "sendPhoto", "sendDocument", "editMessageText"})
"""What has the message that it shows for an answer."""
_NOWHERE = {"id": 0, "type": "private"}
_CHATTY = ("httpx", "httpcore", "telegram")
_MARGIN_S = 10.0
_READ_S = 20.0
_CONNECT_S = 10.0
_MEDIA_S = 120.0
_TOO_LARGE = 413
_TOO_MANY = 429


class FloodError(TelegramError):
    """We have to be silent for a while. (The library's own error warns whenever it is made.)"""

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
            request=_request(_READ_S, connections=64),
            get_updates_request=_request(settings.poll_s + _MARGIN_S, connections=2),
        )

    async def updates(self, offset: int, timeout_s: int, limit: int = 100) -> list[dict[str, Any]]:
        """What is new from `offset` on; what lies below it is confirmed by asking."""
        asked = {"offset": offset, "timeout": timeout_s, "limit": limit, "allowed_updates": KINDS}
        return cast("list[dict[str, Any]]", await self._post("getUpdates", asked))

    async def _post(self, endpoint: str, *args: Any, **named: Any) -> Any:  # noqa: ANN401
        done = await super()._post(endpoint, *args, **named)
        if endpoint not in _SHOWS:
            return done
        return {"message_id": table(done).get("message_id", 0), "date": 0, "chat": _NOWHERE}


class _Request(HTTPXRequest):
    """The library's way of asking, with our own error for flood limits.

    What is too large it takes for a failure of the network, which could pass.
    """

    async def do_request(self, *args: Any, **named: Any) -> tuple[int, bytes]:  # noqa: ANN401
        code, payload = await super().do_request(*args, **named)
        if code == _TOO_MANY:
            raise FloodError(_retry_after(payload))
        if code == _TOO_LARGE:
            raise BadRequest("Telegram takes no file of this size")
        return code, payload


def keep_quiet(token: str) -> None:
    """Keep the token, which is part of every address, out of the log."""
    secrets.register({"TELEGRAM_BOT_TOKEN": token})
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


def table(value: object) -> dict[str, Any]:
    """An object of what came over the wire; empty where there is something else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _request(read_s: float, connections: int) -> _Request:
    return _Request(
        connection_pool_size=connections,
        read_timeout=read_s,
        write_timeout=_READ_S,
        connect_timeout=_CONNECT_S,
        pool_timeout=_CONNECT_S,
        media_write_timeout=_MEDIA_S,
    )


def _retry_after(payload: bytes) -> float:
    try:
        return float(json.loads(payload)["parameters"]["retry_after"])
    except (ValueError, KeyError, TypeError):
        return 1.0
