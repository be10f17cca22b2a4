"""Taking an update in: translated, with the way to its files, on disk; only then is it acknowledged."""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from telegram import Update
from telegram.error import TelegramError

from gateway.config import Platform
from gateway.platforms.base import IncomingFile, Ingress, MessageEvent, PlatformError
from gateway.platforms.telegram.rich import UNREADABLE, as_plain
from gateway.platforms.telegram.translate import (
    FileRef,
    Heard,
    moved,
    together,
    translate,
)
from gateway.platforms.telegram.wire import FloodError, Wire, table
from hermes_core.secrets import redact

FILE_LIMIT = 20_000_000
"""The largest file that the Bot API hands out."""

_ATTEMPTS = 3
_BARE = (
    "message_id", "date", "chat", "from", "sender_chat", "text", "message_thread_id", "is_topic_message"
)  # fmt: skip
_log = logging.getLogger(__name__)


class Intake:
    """Hands what a bot hears to the gateway's ingress."""

    def __init__(self, wire: Wire, ingress: Ingress, pause_s: float = 1.0) -> None:
        self._wire = wire
        self._ingress = ingress
        self._pause_s = pause_s

    async def take(self, updates: Sequence[dict[str, Any]]) -> None:
        """Take in an update, or those of an album as one message; what says nothing to us is skipped.

        Raises StoreError when they have to come again.
        """
        for move in filter(None, map(moved, updates)):
            await self._ingress.moved(Platform.TELEGRAM, *move)
        heard = [one for one in map(self._understand, updates) if one is not None]
        if heard:
            await self._ingress.accept(self._with_files(together(heard)))
        for one in updates:
            await self._release(table(one.get("callback_query")).get("id"))

    def _understand(self, raw: dict[str, Any]) -> Heard | None:
        """What an update says; of what the library cannot read, that something was sent."""
        for one in (raw, _bare(raw)):
            try:
                return translate(Update.de_json(as_plain(one), self._wire), self._wire.bot)
            except Exception:  # noqa: BLE001 -- the boundary: an update nobody foresaw stops no other
                _log.exception("Update %s of Telegram cannot be read.", raw.get("update_id"))
        return None

    def _with_files(self, heard: Heard) -> MessageEvent:
        event = heard.event
        event.files = [IncomingFile(one.name, partial(self._fetch, one)) for one in heard.files]
        return event

    async def _fetch(self, file: FileRef) -> bytes:
        """A file that lies at Telegram; raises PlatformError when it is not to be had."""
        if file.size is not None and file.size > FILE_LIMIT:
            raise _too_large(file.size)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                content = await (await self._wire.get_file(file.id)).download_as_bytearray()
            except TelegramError as error:
                if "too big" in error.message:
                    raise _too_large(file.size) from None
                if attempt == _ATTEMPTS:
                    raise PlatformError(
                        f"Telegram did not give it ({redact(error.message)})."
                    ) from None
                wait = (
                    error.retry_after if isinstance(error, FloodError) else self._pause_s * attempt
                )
                await asyncio.sleep(wait)
            else:
                return bytes(content)
        raise AssertionError("The last attempt returns or raises.")

    async def _release(self, query_id: str | None) -> None:
        """Let a pressed button look pressed no more."""
        if query_id is None:
            return
        try:
            await self._wire.answer_callback_query(query_id)
        except TelegramError as error:
            _log.debug("A button could not be released: %s", redact(error.message))


def _bare(raw: dict[str, Any]) -> dict[str, Any]:
    """An update of which only the place, the person and the text are left."""
    return {
        key: {"text": UNREADABLE} | {name: part[name] for name in _BARE if name in part}
        if (part := table(value))
        else value
        for key, value in raw.items()
    }


def _too_large(size: int | None) -> PlatformError:
    known = f" with {size / 1e6:.0f} MB" if size else ""
    return PlatformError(f"it is too large{known}; Telegram gives bots files of up to 20 MB.")
