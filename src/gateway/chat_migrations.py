"""ChatMigrations: a chat that gets another id on its platform keeps its first one inside the gateway.

So its conversations, what waits to be sent there and whose home it is stay as they are stored, and one
value says where the chat is now: whoever tells of the move first, all follow at once. The name of a
message or a thread is good in one chat alone; outside of the first one it goes with the chat it is of.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
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


class _Moved(msgspec.Struct, frozen=True):
    """The chats of a platform that moved."""

    now: dict[str, str] = {}
    """The first id of each, and the one it has now."""
    first: dict[str, str] = {}
    """Every later id, and the first one of that chat."""


class _Place(NamedTuple):
    """A chat by its first id, and one of the ids that it had or has."""

    first: str
    id: str

    def inside(self, name: str | None) -> str | None:
        """The name of a message or a thread in this place, as the gateway has it."""
        return name if name is None or self.id == self.first else f"{self.id}/{name}"

    def outside(self, name: str | None) -> str | None:
        """The name as the platform has it; None when it is good in another place alone."""
        if name is None or self.id == self.first:
            return name
        own = f"{self.id}/"
        return name.removeprefix(own) if name.startswith(own) else None

    def known(self, metadata: SendMetadata | None) -> SendMetadata:
        """What goes along with a piece, without a thread of another place."""
        known = SendMetadata(**metadata or {})
        thread_id = self.outside(known.pop("thread_id", None))
        if thread_id is not None:
            known["thread_id"] = thread_id
        return known


class ChatMigrations:
    """Which chats moved. May be used from several threads."""

    def __init__(
        self, store: Store, platforms: Iterable[str], is_spoken_in: Callable[[str, str], bool]
    ) -> None:
        """`is_spoken_in` tells of a platform's chat whether there is a conversation in it."""
        self._store = store
        self._is_spoken_in = is_spoken_in
        self._lock = threading.Lock()
        self._moved = {name: _read(store.read(meta.get, _key(name))) for name in platforms}

    async def note(self, platform: Platform, old_chat: str, new_chat: str) -> None:
        """Note that a chat has another id; raises StoreError."""
        await run_blocking(partial(self._note, platform.value, old_chat, new_chat))

    def _note(self, platform: str, old: str, new: str) -> None:
        with self._lock:
            moved = self._moved.get(platform, _Moved())
            first = moved.first.get(old, old)
            if moved.now.get(first, first) == new:
                return
            later = dict(moved.first)
            # Who was answered there already goes on there, in a conversation of its own.
            if new not in later and new != first and not self._is_spoken_in(platform, new):
                later[new] = first
            noted = _Moved({**moved.now, first: new}, later)
            self._store.write(meta.put, _key(platform), msgspec.json.encode(noted).decode())
            self._moved[platform] = noted
        logger.info("the chat %s of %s is %s from now on", old, platform, new)

    def heard(self, event: MessageEvent) -> None:
        """Give a message the names that the gateway has; once more changes nothing."""
        source = event.source
        moved = self._moved.get(source.platform.value) if source is not None else None
        if source is None or moved is None or source.chat_id not in moved.first:
            return
        place = _Place(moved.first[source.chat_id], source.chat_id)
        thread_id = place.inside(source.thread_id)
        event.source = replace(source, chat_id=place.first, thread_id=thread_id)
        event.message_id = place.inside(event.message_id)
        event.edits = place.inside(event.edits)
        event.parts = [place.inside(one) or "" for one in event.parts]
        event.reply_to_message_id = place.inside(event.reply_to_message_id)

    def through(
        self, adapters: Mapping[str, BasePlatformAdapter]
    ) -> dict[str, BasePlatformAdapter]:
        """Adapters that find chats where they are now."""
        return {name: _Following(one, partial(self._now, name)) for name, one in adapters.items()}

    def _now(self, platform: str, chat_id: str) -> _Place:
        moved = self._moved.get(platform, _Moved())
        return _Place(chat_id, moved.now.get(chat_id, chat_id))


class _Following(BasePlatformAdapter):
    """An adapter for who knows chats by their first ids."""

    def __init__(self, adapter: BasePlatformAdapter, now: Callable[[str], _Place]) -> None:
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
        place = self._now(chat_id)
        known = place.known(metadata)
        result = await called(self._adapter.send, place.id, content, place.outside(reply_to), known)
        others = [place.inside(one) or "" for one in result.continuation_message_ids]
        message_id = place.inside(result.message_id)
        return replace(result, message_id=message_id, continuation_message_ids=tuple(others))

    async def edit_message(
        self, chat_id: str, message_id: str, content: str, metadata: SendMetadata | None = None
    ) -> SendResult:
        place = self._now(chat_id)
        named = place.outside(message_id)
        if named is None:
            gone = "The message is in the chat that this one was before."
            return SendResult(success=False, error=gone, error_kind="refused")
        known = place.known(metadata)
        result = await called(self._adapter.edit_message, place.id, named, content, known)
        return replace(result, message_id=place.inside(result.message_id))

    async def find_sent(self, chat_id: str, key: str) -> str | None:
        place = self._now(chat_id)
        return place.inside(await called(self._adapter.find_sent, place.id, key))

    async def send_typing(self, chat_id: str, metadata: SendMetadata | None = None) -> None:
        place = self._now(chat_id)
        await called(self._adapter.send_typing, place.id, place.known(metadata))

    async def stop_typing(self, chat_id: str, metadata: SendMetadata | None = None) -> None:
        place = self._now(chat_id)
        await called(self._adapter.stop_typing, place.id, place.known(metadata))

    async def announce_commands(self, commands: Sequence[tuple[str, str]]) -> None:
        await called(self._adapter.announce_commands, commands)

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        return await called(self._adapter.connect, is_reconnect=is_reconnect)

    async def disconnect(self) -> None:
        await called(self._adapter.disconnect)


def _key(platform: str) -> str:
    return f"gateway.moved.{platform}"


def _read(said: str | None) -> _Moved:
    return msgspec.json.decode(said, type=_Moved) if said else _Moved()
