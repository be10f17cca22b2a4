"""The Matrix adapter: reads the rooms of an account in the background, and sends."""

import asyncio
import contextlib
import logging
import uuid
from pathlib import Path
from typing import Any

import msgspec
from nio.responses import ProfileGetDisplayNameResponse, Response
from peewee import PeeweeException

from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import (
    Abilities,
    BasePlatformAdapter,
    PlatformError,
    SendMetadata,
    SendResult,
)
from gateway.platforms.matrix import content as contents
from gateway.platforms.matrix import media, room_upgrades
from gateway.platforms.matrix.account import log_in
from gateway.platforms.matrix.client import Client
from gateway.platforms.matrix.cursor import Cursor
from gateway.platforms.matrix.homeserver import RequestFailed, request
from gateway.platforms.matrix.invitations import Invitations
from gateway.platforms.matrix.manifest import MatrixSettings
from gateway.platforms.matrix.reader import Reader
from gateway.platforms.matrix.receiving import Receiver
from gateway.platforms.matrix.translate import Me
from gateway.platforms.matrix.undecrypted import UndecryptedMessages
from hermes_core.paths import make_folder

_log = logging.getLogger(__name__)

_TYPING_MS = 30_000
_ROOM_RETRY_S = 30.0


class MatrixAdapter(BasePlatformAdapter):
    """A device of an account on a homeserver."""

    abilities = Abilities(
        text_limit=contents.TEXT_LIMIT,
        measure=contents.measure,
        resend="same",
        can_edit=True,
        edit_every_s=1.5,
        has_typing=True,
        typing_every_s=_TYPING_MS / 1000 * 0.7,
        can_send_files=True,
        can_send_whole=True,
    )
    key_timeout_s = 60.0
    """How long the key of a message may take before we report it in the room."""

    def __init__(self, config: PlatformConfig, settings: MatrixSettings, folder: Path) -> None:
        super().__init__(config, Platform.MATRIX)
        prefix = settings.command_prefix or "/"
        self.abilities = msgspec.structs.replace(self.abilities, command_prefix=prefix)  # pyright: ignore[reportAttributeAccessIssue] -- as its settings are
        self._settings = settings
        self._folder = folder
        self._client: Client | None = None
        self._reading: asyncio.Task[None] | None = None

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        del is_reconnect
        await self.disconnect()
        try:
            client = Client(self._settings.homeserver, make_folder(self._folder))
            async with contextlib.AsyncExitStack() as on_failure:
                on_failure.push_async_callback(client.close)
                await self._start(client)
                on_failure.pop_all()
        except (OSError, PeeweeException) as error:
            raise PlatformError(
                f"The files of Matrix in {self._folder} cannot be used: {error}",
                fix="Check the disk and the permissions of that folder.",
            ) from error
        return True

    def invitation(self, code: str) -> str:
        name = self._client.user_id if self._client is not None else self._settings.user
        return (
            f"Open a direct chat with this account:\n  https://matrix.to/#/{name}\n"
            f"Send it this code: {code}"
        )

    async def _start(self, client: Client) -> None:
        settings = self._settings
        if not settings.ignore_unverified_devices:
            client.verified = {"".join(key.split()) for key in settings.verified_devices}
        await log_in(client, settings, self._folder)
        try:
            profile = await request(ProfileGetDisplayNameResponse, client.get_displayname())
            me = Me(client.user_id, profile.displayname or "", settings.command_prefix)
            reader = Reader(
                client,
                Receiver(client, self.ingress, me),
                Cursor(self._folder, client.user_id, self.mark),
                UndecryptedMessages(self._folder),
                Invitations(client, self._folder),
                auto_join=settings.auto_join,
                key_timeout_s=self.key_timeout_s,
            )
            first = await reader.begin()
        except RequestFailed as error:
            raise PlatformError(f"Matrix refused the first sync. {error}") from error
        self._client = client
        self._reading = asyncio.create_task(reader.run(first))
        self._reading.add_done_callback(self._reading_ended)

    def _reading_ended(self, task: asyncio.Task[None]) -> None:
        """Report to the gateway why reading ended, also after a bug of ours."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, PlatformError):
            self.lost(error)
        elif error is not None:
            _log.error("Matrix: reading ended.", exc_info=error)
            self.lost(PlatformError(f"Matrix: reading ended: {error}"))

    async def disconnect(self) -> None:
        reading, client = self._reading, self._client
        self._reading = self._client = None
        if reading:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        if client:
            await client.close()

    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: SendMetadata | None = None,
    ) -> SendResult:
        about = metadata or {}
        key = about.get("key") or uuid.uuid4().hex
        try:
            client = self._connected()
            ids: list[str] = []
            if content.strip():
                words = contents.message(content, is_plain=about.get("plain", False))
                text = contents.related(words, reply_to, about.get("thread_id"))
                ids.append(await client.post(chat_id, text, key))
            for number, path in enumerate(about.get("files", []), start=1):
                is_whole = about.get("whole", False)
                file = await self._file(client, chat_id, Path(path), is_whole=is_whole)
                file = contents.related(file, None, about.get("thread_id"))
                ids.append(await client.post(chat_id, file, f"{key}.{number}"))
        except RequestFailed as error:
            return await self._failed(chat_id, error)
        return SendResult(
            success=True,
            message_id=ids[0] if ids else None,
            continuation_message_ids=tuple(ids[1:]),
        )

    async def _failed(self, chat_id: str, error: RequestFailed) -> SendResult:
        """Return the outcome of a send; one to a replaced room waits until we are in the new one."""
        client, result = self._client, error.as_result()
        if client and error.kind == "refused" and await room_upgrades.is_replaced(client, chat_id):
            result.error_kind, result.retry_after = "network", _ROOM_RETRY_S
        return result

    async def _file(
        self, client: Client, chat_id: str, path: Path, *, is_whole: bool
    ) -> dict[str, Any]:
        """Build the message of a file; a sentence stands for one that cannot be sent.

        With `is_whole`, raise RequestFailed instead.
        """
        room = client.rooms.get(chat_id)
        try:
            return await media.upload(client, path, encrypt=room is not None and room.encrypted)
        except RequestFailed as error:
            if error.is_transient or is_whole:
                raise
            return contents.message(f"The file {path.name} could not be sent. {error}")

    async def edit_message(
        self, chat_id: str, message_id: str, content: str, metadata: SendMetadata | None = None
    ) -> SendResult:
        del metadata
        try:
            # An edit that arrives twice changes nothing, and two edits must never be taken for one.
            await self._connected().post(
                chat_id, contents.edit(content, message_id), uuid.uuid4().hex
            )
        except RequestFailed as error:
            return error.as_result()
        return SendResult(success=True, message_id=message_id)

    async def send_typing(self, chat_id: str, metadata: SendMetadata | None = None) -> None:
        del metadata
        await self._type(chat_id, is_typing=True)

    async def stop_typing(self, chat_id: str, metadata: SendMetadata | None = None) -> None:
        del metadata
        await self._type(chat_id, is_typing=False)

    async def _type(self, chat_id: str, *, is_typing: bool) -> None:
        with contextlib.suppress(RequestFailed):  # not worth an error
            client = self._connected()
            await request(Response, client.room_typing(chat_id, is_typing, _TYPING_MS))

    def _connected(self) -> Client:
        if self._client is None:
            raise RequestFailed("network", "Matrix is not connected.")
        return self._client
