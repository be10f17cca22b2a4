"""ChatMigrations: a chat that gets another id on its platform keeps its first id inside the gateway.

Its conversations, outbox and admin chat stay as they are stored; one stored value says where the chat is
now. The id of a message or a thread is valid in one chat only; outside of the first one it is stored
together with its chat.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import msgspec

from gateway.adapter_calls import called
from gateway.blocking import run_blocking
from gateway.config import Platform
from gateway.platforms.base import BasePlatformAdapter, MessageEvent, SendMetadata, SendResult
from hermes_state.ledger import meta
from hermes_state.store import Store

logger = logging.getLogger(__name__)


class _Migrations(msgspec.Struct, frozen=True):
    """The migrated chats of a platform."""

    now: dict[str, str] = {}
    """The current id of each chat, by its first id."""
    first: dict[str, str] = {}
    """The first id of each chat, by its later ids."""


class _Chat(NamedTuple):
    """A chat by its first id, and one of the ids that it had or has."""

    first: str
    id: str

    def inside(self, name: str | None) -> str | None:
        """Return the id of a message or a thread in this chat, as the gateway stores it."""
        return name if name is None or self.id == self.first else f"{self.id}/{name}"

    def outside(self, name: str | None) -> str | None:
        """Return the id as the platform knows it; None when it belongs to another chat."""
        if name is None or self.id == self.first:
            return name
        own = f"{self.id}/"
        return name.removeprefix(own) if name.startswith(own) else None

    def metadata(self, stored: SendMetadata | None) -> SendMetadata:
        """Return metadata as the platform knows it, without a thread of another chat."""
        metadata = SendMetadata(**stored or {})
        thread_id = self.outside(metadata.pop("thread_id", None))
        if thread_id is not None:
            metadata["thread_id"] = thread_id
        return metadata


class ChatMigrations:
    """The migrated chats of all platforms. May be used from several threads."""

    def __init__(
        self, store: Store, platforms: Iterable[str], has_conversation: Callable[[str, str], bool]
    ) -> None:
        """`has_conversation` says of a platform's chat whether there is a conversation in it."""
        self._store = store
        self._is_spoken_in = has_conversation
        self._lock = threading.Lock()
        self._moved = {name: _read(store.read(meta.get, _key(name))) for name in platforms}

    async def record(self, platform: Platform, old_chat: str, new_chat: str) -> None:
        """Record that a chat has another id; raises StoreError."""
        await run_blocking(partial(self._record, platform.value, old_chat, new_chat))

    def _record(self, platform: str, old: str, new: str) -> None:
        with self._lock:
            moved = self._moved.get(platform, _Migrations())
            first = moved.first.get(old, old)
            if moved.now.get(first, first) == new:
                return
            later = dict(moved.first)
            # A chat that has a conversation already keeps it.
            if new not in later and new != first and not self._is_spoken_in(platform, new):
                later[new] = first
            updated = _Migrations({**moved.now, first: new}, later)
            self._store.write(meta.put, _key(platform), msgspec.json.encode(updated).decode())
            self._moved[platform] = updated
        logger.info("Chat %s of %s migrated to %s", old, platform, new)

    def translate(self, event: MessageEvent) -> None:
        """Give a message the ids that the gateway stores; repeating this changes nothing."""
        source = event.source
        moved = self._moved.get(source.platform.value) if source is not None else None
        if source is None or moved is None or source.chat_id not in moved.first:
            return
        chat = _Chat(moved.first[source.chat_id], source.chat_id)
        thread_id = chat.inside(source.thread_id)
        event.source = replace(source, chat_id=chat.first, thread_id=thread_id)
        event.message_id = chat.inside(event.message_id)
        event.edits = chat.inside(event.edits)
        event.parts = [chat.inside(part) or "" for part in event.parts]
        event.reply_to_message_id = chat.inside(event.reply_to_message_id)

    def forwarding(self, platform: str, adapter: BasePlatformAdapter) -> BasePlatformAdapter:
        """Return an adapter for chats by their first ids, which finds them where they are now."""
        return _Forwarding(adapter, partial(self._now, platform))

    def _now(self, platform: str, chat_id: str) -> _Chat:
        moved = self._moved.get(platform, _Migrations())
        return _Chat(chat_id, moved.now.get(chat_id, chat_id))


class _Forwarding(BasePlatformAdapter):
    """An adapter that takes chats by their first ids."""

    def __init__(self, adapter: BasePlatformAdapter, now: Callable[[str], _Chat]) -> None:
        super().__init__(adapter.config, adapter.platform)
        self.abilities = adapter.abilities  # pyright: ignore[reportAttributeAccessIssue] -- its own
        self._adapter = adapter
        self._now = now

    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: SendMetadata | None = None,
    ) -> SendResult:
        chat = self._now(chat_id)
        current = chat.metadata(metadata)
        result = await called(self._adapter.send, chat.id, content, chat.outside(reply_to), current)
        others = [chat.inside(name) or "" for name in result.continuation_message_ids]
        message_id = chat.inside(result.message_id)
        return replace(result, message_id=message_id, continuation_message_ids=tuple(others))

    async def edit_message(
        self, chat_id: str, message_id: str, content: str, metadata: SendMetadata | None = None
    ) -> SendResult:
        chat = self._now(chat_id)
        current_id = chat.outside(message_id)
        if current_id is None:
            reason = "The message is in the chat that this one was before."
            return SendResult(success=False, error=reason, error_kind="refused")
        current = chat.metadata(metadata)
        result = await called(self._adapter.edit_message, chat.id, current_id, content, current)
        return replace(result, message_id=chat.inside(result.message_id))

    async def find_sent(self, chat_id: str, key: str) -> str | None:
        chat = self._now(chat_id)
        return chat.inside(await called(self._adapter.find_sent, chat.id, key))

    async def send_typing(self, chat_id: str, metadata: SendMetadata | None = None) -> None:
        chat = self._now(chat_id)
        await called(self._adapter.send_typing, chat.id, chat.metadata(metadata))

    async def stop_typing(self, chat_id: str, metadata: SendMetadata | None = None) -> None:
        chat = self._now(chat_id)
        await called(self._adapter.stop_typing, chat.id, chat.metadata(metadata))

    async def announce_commands(self, commands: Sequence[tuple[str, str]]) -> None:
        await called(self._adapter.announce_commands, commands)

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        return await called(self._adapter.connect, is_reconnect=is_reconnect)

    async def disconnect(self) -> None:
        await called(self._adapter.disconnect)


def _key(platform: str) -> str:
    return f"gateway.moved.{platform}"


def _read(stored: str | None) -> _Migrations:
    return msgspec.json.decode(stored, type=_Migrations) if stored else _Migrations()
