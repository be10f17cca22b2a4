"""Accepts updates: translates them and passes them to the gateway, which stores them."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from telegram import Update
from telegram.error import TelegramError

from gateway.config import Platform
from gateway.platforms.base import IncomingFile, Ingress, MessageEvent, PlatformError
from gateway.platforms.telegram.bursts import album
from gateway.platforms.telegram.rich import UNREADABLE, as_plain
from gateway.platforms.telegram.translate import (
    FileRef,
    Received,
    join_album,
    join_texts,
    moved,
    translate,
)
from gateway.platforms.telegram.wire import FloodError, Wire, table
from hermes_core.secrets import redact

FILE_LIMIT = 20_000_000
"""The largest file that the Bot API delivers."""

_ATTEMPTS = 3
_BASIC_FIELDS = (
    "message_id", "date", "chat", "from", "sender_chat", "text", "message_thread_id", "is_topic_message"
)  # fmt: skip
_log = logging.getLogger(__name__)


class Receiver:
    """Passes the updates of a bot to the ingress of the gateway."""

    def __init__(self, wire: Wire, ingress: Ingress, pause_s: float = 1.0) -> None:
        self._wire = wire
        self._ingress = ingress
        self._pause_s = pause_s

    async def accept(self, updates: Sequence[dict[str, Any]]) -> None:
        """Accept an update, or those of an album or a long text as one message; skip others.

        Raises StoreError when they must be delivered again.
        """
        for move in filter(None, map(moved, updates)):
            await self._ingress.moved(Platform.TELEGRAM, *move)
        received = [message for message in map(self._translate, updates) if message is not None]
        if len(received) > 1 and not album(updates[0]):
            received = await self._new_parts(received)
        if received:
            join = join_album if album(updates[0]) else join_texts
            await self._ingress.accept(self._with_files(join(received)))
        for update in updates:
            await self._release(table(update.get("callback_query")).get("id"))

    async def _new_parts(self, parts: Sequence[Received]) -> list[Received]:
        """Leave out the first parts of a text if they were accepted before the others arrived."""
        for number in range(len(parts) - 1, 0, -1):
            earlier = replace(join_texts(parts[:number]).event, must_be_known=True)
            if (await self._ingress.accept(earlier)).outcome != "ignored":
                return list(parts[number:])
        return list(parts)

    def _translate(self, raw: dict[str, Any]) -> Received | None:
        """Translate an update; one that the library cannot read becomes a note that something came."""
        for version in (raw, _basic(raw)):
            try:
                return translate(Update.de_json(as_plain(version), self._wire), self._wire.bot)
            except Exception:  # noqa: BLE001 -- the boundary: an update that cannot be read must not stop others
                _log.exception("Update %s of Telegram cannot be read.", raw.get("update_id"))
        return None

    def _with_files(self, received: Received) -> MessageEvent:
        event = received.event
        event.files = [
            IncomingFile(file.name, partial(self._fetch, file)) for file in received.files
        ]
        return event

    async def _fetch(self, file: FileRef) -> bytes:
        """Fetch a file from Telegram; raises PlatformError."""
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
                        f"Telegram did not deliver it ({redact(error.message)})."
                    ) from None
                wait = (
                    error.retry_after if isinstance(error, FloodError) else self._pause_s * attempt
                )
                await asyncio.sleep(wait)
            else:
                return bytes(content)
        raise AssertionError("The last attempt returns or raises.")

    async def _release(self, query_id: str | None) -> None:
        """End the progress indicator of a pressed button."""
        if query_id is None:
            return
        try:
            await self._wire.answer_callback_query(query_id)
        except TelegramError as error:
            _log.debug("A button could not be released: %s", redact(error.message))


def _basic(raw: dict[str, Any]) -> dict[str, Any]:
    """Reduce an update to its chat, person and text."""
    return {
        key: {"text": UNREADABLE} | {name: part[name] for name in _BASIC_FIELDS if name in part}
        if (part := table(value))
        else value
        for key, value in raw.items()
    }


def _too_large(size: int | None) -> PlatformError:
    amount = f" with {size / 1e6:.0f} MB" if size else ""
    return PlatformError(f"it is too large{amount}; Telegram gives bots files of up to 20 MB.")
