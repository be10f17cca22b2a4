"""The Telegram bot as the gateway holds it: connected by polling or webhook, sending and editing."""

import asyncio
import logging
import mimetypes
import re
import secrets as randomness
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from telegram import (
    BotCommand,
    InputFile,
    LinkPreviewOptions,
    Message,
    MessageEntity,
    ReplyParameters,
)
from telegram.error import ChatMigrated, TelegramError

from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import (
    Abilities,
    BasePlatformAdapter,
    PlatformError,
    SendMetadata,
    SendResult,
)
from gateway.platforms.telegram import failures
from gateway.platforms.telegram.keyboard import keyboard
from gateway.platforms.telegram.manifest import TelegramSettings
from gateway.platforms.telegram.markdown import Formatted, render, utf16
from gateway.platforms.telegram.polling import Poller
from gateway.platforms.telegram.receiving import Receiver
from gateway.platforms.telegram.wire import KINDS, Wire
from hermes_core import secrets
from hermes_core.errors import StoreError
from hermes_core.secrets import redact
from hermes_core.text import truncate, without_surrogates

TEXT_LIMIT = 4096
_PHOTO_LIMIT = 10_000_000
_PHOTOS = ("image/jpeg", "image/png")
_GENERAL_TOPIC = "1"
_COMMANDS_LIMIT = 100
_DESCRIPTION_LIMIT = 256
_MENU_BYTES = 4000
"""The limit of the whole menu. It is undocumented: Telegram rejects about 5,300 bytes and more."""
_MAX_WAIT_S = 60.0
_TOKEN = re.compile(r"\d+:[\w-]{20,}")
_COMMAND = re.compile(r"[a-z0-9_]{1,32}")
_MESSAGE_ID = re.compile(r"\d+")
_NO_PREVIEW = LinkPreviewOptions(is_disabled=True)
_log = logging.getLogger(__name__)


class TelegramAdapter(BasePlatformAdapter):
    """One bot."""

    abilities: ClassVar[Abilities] = Abilities(
        text_limit=TEXT_LIMIT,
        measure=utf16,
        resend="marked",
        can_edit=True,
        edit_every_s=1.0,
        has_typing=True,
        typing_every_s=4.0,
        has_buttons=True,
        can_send_files=True,
        can_send_whole=True,
    )

    def __init__(self, config: PlatformConfig, settings: TelegramSettings) -> None:
        super().__init__(config, Platform.TELEGRAM)
        self.pause_s = 1.0
        """The pause after a first failure; it doubles with each further one."""
        self.watch_s = 60.0
        """Seconds between two checks of a webhook."""
        self._settings = settings
        self._wire: Wire | None = None
        self._stop: Callable[[], Awaitable[None]] | None = None
        self._receiving: asyncio.Task[None] | None = None

    def check(self) -> None:
        if not _TOKEN.fullmatch(self._settings.token):
            raise failures.missing_token()

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        """Check the token and start receiving; raises PlatformError."""
        del is_reconnect
        await self.disconnect()
        self.check()
        self._wire = Wire(self._settings)
        try:
            await self._wire.initialize()
            await (self._listen if self._settings.mode == "webhook" else self._poll)(self._wire)
        except TelegramError as error:
            await self.disconnect()
            raise failures.connection_error(error) from None
        except PlatformError:
            await self.disconnect()
            raise
        return True

    async def disconnect(self) -> None:
        """Stop receiving, after finishing and confirming the updates under way."""
        stop, self._stop = self._stop, None
        if stop is not None:
            await stop()
        if self._receiving is not None:
            await self._receiving
            self._receiving = None
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.shutdown()

    def invitation(self, code: str) -> str:
        name = self._wire.username if self._wire is not None else ""
        return (
            f"Open this link and press Start:\n  https://t.me/{name}?start={code}\n"
            f"Or send @{name} this code: {code}"
        )

    async def _poll(self, wire: Wire) -> None:
        # Updates that wait for a webhook stay, and come with the first poll.
        await wire.delete_webhook()
        receiver = Receiver(wire, self.ingress, self.pause_s)
        poller = Poller(wire, receiver.accept, self._settings.poll_s, self.pause_s)
        self._stop = poller.stop
        self._receiving = asyncio.create_task(self._until_lost(poller.run()))

    async def _until_lost(self, receiving: Coroutine[Any, Any, None]) -> None:
        try:
            await receiving
        except PlatformError as error:
            self.lost(error)
        except Exception:  # noqa: BLE001 -- the boundary: the gateway is told, and connects again
            _log.exception("The connection to Telegram broke off.")
            self.lost(
                PlatformError(
                    "The connection to Telegram broke off.", fix="The log has the reason."
                )
            )

    async def _listen(self, wire: Wire) -> None:
        from gateway.platforms.listener import Listener  # noqa: PLC0415 -- a web server: 10 MB
        from gateway.platforms.telegram.webhook import Watch, Webhook  # noqa: PLC0415 -- the same

        url = self._settings.webhook_url
        if not urlsplit(url).hostname:
            raise PlatformError(
                "The webhook of Telegram has no address.",
                fix="Set webhook_url under [gateway.platforms.telegram], or mode to polling.",
                is_fatal=True,
            )
        secret = randomness.token_urlsafe(32)
        secrets.register({"TELEGRAM_WEBHOOK_SECRET": secret})
        receiver = Receiver(wire, self.ingress, self.pause_s)
        webhook = Webhook(urlsplit(url).path or "/", secret, receiver.accept)
        listener = Listener(webhook, self._settings.webhook_host, self._settings.webhook_port)
        watch = Watch(wire, url, self.watch_s)

        async def stop() -> None:
            watch.stop()
            await listener.stop()

        self._stop = stop
        await listener.start()
        # One connection, so that the messages of a chat keep their order.
        await wire.set_webhook(url, secret_token=secret, allowed_updates=KINDS, max_connections=1)
        self._receiving = asyncio.create_task(self._until_lost(watch.run()))

    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: SendMetadata | None = None,
    ) -> SendResult:
        """Send a text, then its files; a file that fails is named in the chat, the text stays sent."""
        more: SendMetadata = metadata or {}
        files = [Path(path) for path in more.get("files", [])]
        target: dict[str, Any] = {
            "message_thread_id": _thread(more),
            "reply_parameters": _reply(reply_to),
        }
        first: SendResult | None = None
        if content.strip() or not files:
            first = await self._send_text(chat_id, content, target, more)
            if not first.success:
                return first
            target["reply_parameters"] = None
        is_whole = more.get("whole", False)
        return await self._send_files(chat_id, files, target, first, is_whole=is_whole)

    async def _send_text(
        self, chat_id: str, content: str, target: dict[str, Any], more: SendMetadata
    ) -> SendResult:
        markup = keyboard(more.get("question", ""), more.get("buttons", []))

        def call(written: Formatted, wire: Wire, chat: int | str) -> Awaitable[Message]:
            return wire.send_message(
                chat,
                written.text,
                entities=_entities(written),
                reply_markup=markup,
                link_preview_options=_NO_PREVIEW,
                **target,
            )

        return await self._attempt_text(chat_id, content, call, is_plain=more.get("plain", False))

    async def _attempt_text(
        self,
        chat_id: str,
        content: str,
        call: Callable[[Formatted, Wire, int | str], Awaitable[Message | bool]],
        *,
        is_plain: bool = False,
    ) -> SendResult:
        """Make one call for a text; without entities where Telegram does not accept them."""
        written = plain(content) if is_plain else formatted(content)
        if utf16(written.text) > TEXT_LIMIT:
            return SendResult(success=False, error="The text is too long.", error_kind="too_long")
        result = await self._attempt(chat_id, partial(call, written))
        if written.entities and failures.is_about_entities(result):
            result = await self._attempt(chat_id, partial(call, plain(content)))
        return result

    async def _send_files(
        self,
        chat_id: str,
        files: Sequence[Path],
        target: dict[str, Any],
        first: SendResult | None,
        *,
        is_whole: bool,
    ) -> SendResult:
        sent: list[str] = []
        for path in files:
            result = await self._send_file(chat_id, path, target)
            if result.retryable and (first or sent):
                # The rest of the piece is there: waiting here is the only way to repeat nothing of it.
                await asyncio.sleep(min(result.retry_after or self.pause_s, _MAX_WAIT_S))
                chat_id = (
                    result.raw_response or chat_id
                )  # the chat may be another one since the text
                result = await self._send_file(chat_id, path, target)
            if result.success:
                sent.append(str(result.message_id))
                continue
            if is_whole:
                return result
            is_hopeless = result.error_kind in ("refused", "too_long")
            if first is None and not sent and not is_hopeless:
                return result  # nothing of the piece has arrived: it is tried again as a whole
            note = f"The file {path.name} could not be sent: {result.error}"
            _log.warning("%s", note)
            notice = await self._send_text(chat_id, note, target, {})
            if first is None and not sent:
                first = notice
        if first is None:
            return SendResult(
                success=True, message_id=sent[0], continuation_message_ids=tuple(sent[1:])
            )
        first.continuation_message_ids = tuple(sent)
        return first

    async def _send_file(self, chat_id: str, path: Path, target: dict[str, Any]) -> SendResult:
        try:
            content = await asyncio.to_thread(path.read_bytes)
        except OSError as error:
            return SendResult(success=False, error=str(error), error_kind="refused")
        kind, _ = mimetypes.guess_type(path.name)
        file = InputFile(content, filename=path.name)

        if kind in _PHOTOS and len(content) <= _PHOTO_LIMIT:
            result = await self._attempt(
                chat_id, lambda wire, chat: wire.send_photo(chat, file, **target)
            )
            if result.error_kind != "refused":
                return result
            # Telegram does not show every picture, such as a very long one; it accepts it as a file.
        return await self._attempt(
            chat_id, lambda wire, chat: wire.send_document(chat, file, **target)
        )

    async def edit_message(
        self, chat_id: str, message_id: str, content: str, metadata: SendMetadata | None = None
    ) -> SendResult:
        """Replace the text of a message, and its buttons by those in `metadata`."""
        more: SendMetadata = metadata or {}
        if not message_id.isdecimal():
            return SendResult(False, error=f"No message: {message_id}.", error_kind="refused")
        markup = keyboard(more.get("question", ""), more.get("buttons", []))

        def call(written: Formatted, wire: Wire, chat: int | str) -> Awaitable[Message | bool]:
            return wire.edit_message_text(
                written.text,
                chat,
                int(message_id),
                entities=_entities(written),
                reply_markup=markup,
                link_preview_options=_NO_PREVIEW,
            )

        result = await self._attempt_text(chat_id, content, call)
        if result.error_kind == "unsure":
            result.error_kind = "network"  # the same edit twice is one edit: it may be tried again
        return SendResult(True, message_id) if result.success else result

    async def _attempt(
        self, chat_id: str, call: Callable[[Wire, int | str], Awaitable[Message | bool]]
    ) -> SendResult:
        """Make one call for a chat."""
        wire = self._wire
        if wire is None:
            return SendResult(
                success=False, error="Telegram is not connected.", error_kind="network"
            )
        chat = int(chat_id) if chat_id.removeprefix("-").isdecimal() else chat_id
        try:
            done = await call(wire, chat)
        except ChatMigrated as error:
            return await self._report_move(chat_id, str(error.new_chat_id))
        except TelegramError as error:
            if failures.is_unchanged(error):
                return SendResult(success=True)
            return failures.send_result(error)
        message_id = isinstance(done, Message) and done.message_id
        return SendResult(True, str(message_id) if message_id else None)

    async def _report_move(self, old: str, new: str) -> SendResult:
        """Report that a chat has a new id; nothing was sent, and a retry finds the new one."""
        try:
            await self.ingress.moved(self.platform, old, new)
        except StoreError as error:
            return SendResult(success=False, error=str(error), error_kind="network")
        text = f"The chat is {new} now."
        return SendResult(
            False, error=text, raw_response=new, retry_after=0.0, error_kind="network"
        )

    async def send_typing(self, chat_id: str, metadata: SendMetadata | None = None) -> None:
        """Show the typing indicator for five seconds."""
        if self._wire is None:
            return
        try:
            await self._wire.send_chat_action(
                chat_id, "typing", message_thread_id=_thread(metadata or {})
            )
        except TelegramError as error:
            _log.debug("Typing could not be shown: %s", redact(error.message))

    async def announce_commands(self, commands: Sequence[tuple[str, str]]) -> None:
        """Show the commands in Telegram's menu; it takes underscores where others have dashes."""
        if self._wire is None:
            return
        try:
            await self._wire.set_my_commands(_menu(commands))
        except TelegramError as error:
            reason = redact(error.message)
            raise PlatformError(f"The commands could not be announced: {reason}.") from error


def _menu(commands: Sequence[tuple[str, str]]) -> list[BotCommand]:
    """Build the menu of commands; the longest descriptions are cut until Telegram accepts it."""
    named = [(name.replace("-", "_"), text) for name, text in commands]
    listed = [
        (name, without_surrogates(text) or name) for name, text in named if _COMMAND.fullmatch(name)
    ]
    menu: list[tuple[str, str]] = []
    for length in range(_DESCRIPTION_LIMIT, 0, -1):
        menu = [(name, truncate(text, length)) for name, text in listed[:_COMMANDS_LIMIT]]
        if len("".join(name + text for name, text in menu).encode()) <= _MENU_BYTES:
            break
    return [BotCommand(name, text) for name, text in menu]


def formatted(content: str) -> Formatted:
    """Format Markdown for Telegram; leave it as it stands when that would be too long or empty."""
    content = without_surrogates(content)
    rendered = render(content)
    if rendered.text.strip() and utf16(rendered.text) <= TEXT_LIMIT:
        return rendered
    return plain(content)


def plain(content: str) -> Formatted:
    """Return the content as it stands."""
    return Formatted(without_surrogates(content), ())


def _entities(written: Formatted) -> list[MessageEntity]:
    return [
        MessageEntity(e.type, e.offset, e.length, url=e.url, language=e.language)
        for e in written.entities
    ]


def _thread(more: SendMetadata) -> int | None:
    """Return the topic; the general one of a forum is left out."""
    thread = more.get("thread_id", "")
    return int(thread) if thread.isdecimal() and thread != _GENERAL_TOPIC else None


def _reply(reply_to: str | None) -> ReplyParameters | None:
    """Return the message to reply to: the original of an edit, none for a pressed button."""
    found = _MESSAGE_ID.match(reply_to or "")
    if found is None:
        return None
    return ReplyParameters(int(found[0]), allow_sending_without_reply=True)
