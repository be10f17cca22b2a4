"""Translate Telegram's errors, for a piece that was to be sent and for the connection."""

import httpx
from telegram.error import (
    BadRequest,
    Conflict,
    Forbidden,
    InvalidToken,
    TelegramError,
)

from gateway.platforms.base import ErrorKind, PlatformError, SendResult
from gateway.platforms.telegram.wire import FloodError
from hermes_core.secrets import redact

_NOT_WRITTEN = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
    httpx.WriteTimeout,
    RuntimeError,
)
"""Causes that leave no doubt: of a request without its end nothing is carried out. (A RuntimeError: the
client had been closed. A write that fails otherwise is not among them: the library then still reads.)"""

_TOKEN_FIX = (
    "Get one from @BotFather and put it into the environment variable TELEGRAM_BOT_TOKEN, or into "
    "config.toml as token under [gateway.platforms.telegram]."
)


def send_result(error: TelegramError) -> SendResult:
    """Return the outcome of a send that raised this error."""
    return SendResult(
        success=False,
        error=redact(error.message),
        error_kind=_kind(error),
        retry_after=error.retry_after if isinstance(error, FloodError) else None,
    )


def _kind(error: TelegramError) -> ErrorKind:
    if isinstance(error, FloodError):
        return "rate_limited"
    if isinstance(error, BadRequest):
        return "too_long" if "too_long" in error.message.lower().replace(" ", "_") else "refused"
    if isinstance(error, Forbidden):
        return "refused"
    if isinstance(error, InvalidToken) or isinstance(error.__cause__, _NOT_WRITTEN):
        return "network"
    return "unsure"  # a time-out, a cut connection or a broken server: it may have been carried out


def is_unchanged(error: TelegramError) -> bool:
    """Return whether an edit failed because the message has this text already."""
    return isinstance(error, BadRequest) and "not modified" in error.message.lower()


def is_about_entities(result: SendResult) -> bool:
    """Return whether a text was refused for its entities, as for too many links."""
    return result.error_kind in ("refused", "too_long") and "entit" in (result.error or "").lower()


def connection_error(error: TelegramError) -> PlatformError:
    """Explain to a person why the bot cannot be used now."""
    if isinstance(error, InvalidToken):
        return PlatformError(
            "Telegram does not know this bot token.", fix=_TOKEN_FIX, is_fatal=True
        )
    if isinstance(error, Conflict):
        return PlatformError(
            "Another program polls this Telegram bot token, and only one can.",
            fix="Stop the other program, or revoke the token with @BotFather and use the new one.",
        )
    return PlatformError(
        f"Telegram cannot be reached: {redact(error.message)}.",
        fix="The gateway tries again. Check the network and api_url if this stays.",
    )


def missing_token() -> PlatformError:
    """Return the error for a missing or malformed token."""
    return PlatformError(
        "The Telegram bot token is missing or malformed.", fix=_TOKEN_FIX, is_fatal=True
    )
