"""Translates an event, with its file and the messages it refers to, and passes it to the ingress."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from nio import MatrixRoom, MegolmEvent
from nio.exceptions import EncryptionError
from nio.responses import RoomGetEventResponse, WhoamiResponse

from gateway.config import Platform
from gateway.platforms.base import IncomingFile, Ingress, MessageEvent, PlatformError
from gateway.platforms.matrix import media
from gateway.platforms.matrix.client import Client
from gateway.platforms.matrix.homeserver import RequestFailed, request, with_retries
from gateway.platforms.matrix.translate import (
    Json,
    Me,
    Media,
    Room,
    text_of,
    thread_of,
    translate,
    version_of,
)
from gateway.source import SessionSource
from hermes_core.errors import StoreError
from hermes_state.store_retry import StoreRetry

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class Receiver:
    """Passes messages on, and returns only when the ingress has them on disk."""

    def __init__(self, client: Client, ingress: Ingress, me: Me) -> None:
        self._client = client
        self._ingress = ingress
        self._me = me

    async def accept(self, room_id: str, source: Json) -> None:
        """Pass on the message of an event, if there is one."""
        found = translate(source, self._room(room_id, source), self._me)
        if found is None:
            return
        if found.media:
            fetch = partial(self._fetch, found.media)
            found.event.files.append(IncomingFile(found.media.name, fetch))
        await self._look_up(room_id, found.event)
        await _until_stored(lambda: self._ingress.accept(found.event))

    def is_direct(self, room_id: str) -> bool:
        room = self._client.rooms.get(room_id)
        return room is None or room.member_count <= 2

    def _room(self, room_id: str, source: Json) -> Room:
        room: MatrixRoom | None = self._client.rooms.get(room_id)
        if room is None:
            return Room(room_id)
        sender = str(source.get("sender", ""))
        return Room(
            room_id,
            name=room.display_name,
            topic=room.topic or "",
            is_direct=self.is_direct(room_id),
            sender_name=room.user_name(sender) or sender,
        )

    async def _fetch(self, file: Media) -> bytes:
        """Fetch a file from the homeserver; raises PlatformError."""
        try:
            return await with_retries(lambda: media.fetch(self._client, file))
        except RequestFailed as error:
            if error.is_logged_out:
                raise
            is_silent = error.is_unreached or error.code == media.TOO_LONG
            if is_silent and not await self._is_server_there():
                # The message is not acknowledged, and comes again.
                raise RequestFailed("network", str(error)) from error
            _log.warning("Matrix: the file %s cannot be fetched: %s", file.url, error)
            raise PlatformError(str(error)) from error

    async def _is_server_there(self) -> bool:
        """Return whether the homeserver answers; a file of another one may never be reachable."""
        try:
            await request(WhoamiResponse, self._client.whoami())
        except RequestFailed as error:
            return not error.ends_reading
        return True

    async def _look_up(self, room_id: str, event: MessageEvent) -> None:
        """Complete a message from the one that it replies to, or is a new version of."""
        if event.reply_to_message_id:
            replied = await self._find(room_id, event.reply_to_message_id)
            newest = await self._newest(room_id, replied)
            event.reply_to_text = text_of(newest) or event.reply_to_text
            event.reply_to_is_own_message = replied.get("sender") == self._me.user_id
            event.is_mention = event.is_mention or event.reply_to_is_own_message
        if event.edits and event.source:
            event.source.thread_id = thread_of(await self._find(room_id, event.edits))

    async def _newest(self, room_id: str, source: Json) -> Json:
        """Return the last version of an event by its own sender."""
        name = version_of(source)
        found: Json = await self._find(room_id, name) if name else {}
        return found if found.get("sender") == source.get("sender") else source

    async def _find(self, room_id: str, event_id: str) -> Json:
        """Fetch an event of a room; empty when that fails."""
        get = self._client.room_get_event
        try:
            found = (
                await with_retries(lambda: request(RoomGetEventResponse, get(room_id, event_id)))
            ).event
        except RequestFailed as error:
            if error.ends_reading:
                raise
            _log.info("Matrix: %s was not found: %s", event_id, error)
            return {}
        if not isinstance(found, MegolmEvent):
            return found.source
        found.room_id = room_id
        try:
            read = self._client.decrypt_event(found).source
            return {**read, "unsigned": found.source.get("unsigned", {})}
        except EncryptionError:
            return found.source

    async def may_invite(self, room_id: str, inviter: str) -> bool:
        """Return whether to join a room on the invitation of a person."""
        source = SessionSource(Platform.MATRIX, room_id, user_id=inviter)
        return await _until_stored(lambda: self._ingress.may_invite(source))

    async def moved(self, old_room: str, new_room: str) -> None:
        """Report that a room replaces another one."""
        await _until_stored(lambda: self._ingress.moved(Platform.MATRIX, old_room, new_room))


async def _until_stored(use: Callable[[], Awaitable[_T]]) -> _T:
    """Repeat a use of the store until it works: later events must wait."""
    retry = StoreRetry("An event of Matrix")
    while True:
        try:
            return await use()
        except StoreError as error:
            await asyncio.sleep(retry.pause_after(error))
