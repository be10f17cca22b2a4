"""Joins rooms on invitation, in the background when that takes long.

A room may be on a server that does not answer, and anybody can invite us there.
"""

import asyncio
import logging
from pathlib import Path
from typing import cast

import msgspec
from nio import InviteEvent, InviteMemberEvent
from nio.responses import InviteInfo, Response

from gateway.platforms.matrix.client import Client
from gateway.platforms.matrix.homeserver import RequestFailed, request
from hermes_core import clock
from hermes_core.paths import write_private

_log = logging.getLogger(__name__)

_JOIN_TIMEOUT_S = 5.0
"""How long the reader waits for a room."""
_TIMEOUT_S = 300.0
_FIRST_PAUSE_S = 1.0
_MAX_PAUSE_S = 600.0
_GIVE_UP_AFTER_S = 24 * 3600.0


def inviter_of(info: InviteInfo, user_id: str) -> str:
    """Return the person who invites a user to a room; empty when the server does not say."""
    senders = [
        event.sender
        for event in cast("list[InviteEvent]", info.invite_state)
        if isinstance(event, InviteMemberEvent)
        and (event.state_key, event.membership) == (user_id, "invite")
    ]
    return senders[-1] if senders else ""


class Invitations:
    """The rooms to join; on disk, because the server does not invite us again."""

    def __init__(self, client: Client, folder: Path) -> None:
        self._client = client
        self._path = folder / "invited.json"
        self._since = self._load()
        self._entering: dict[str, asyncio.Task[None]] = {}

    def resume(self) -> None:
        """Continue with the rooms that an earlier run did not join."""
        for room_id in self._since:
            self._begin(room_id)

    async def enter(self, room_id: str) -> None:
        """Join a room; store the invitation when that takes long."""
        task = self._entering.get(room_id) or self._begin(room_id)
        await asyncio.wait([task], timeout=_JOIN_TIMEOUT_S)
        if not task.done() and room_id not in self._since:
            self._since[room_id] = clock.now()
            self._save()

    async def close(self) -> None:
        tasks = list(self._entering.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, room_id: str) -> "asyncio.Task[None]":
        task = self._entering[room_id] = asyncio.create_task(self._enter(room_id))
        return task

    async def _enter(self, room_id: str) -> None:
        try:
            await self._join(room_id)
        except RequestFailed as error:
            _log.warning("Matrix: the room %s cannot be joined: %s", room_id, error)
        else:
            _log.info("Matrix: joined %s.", room_id)
        del self._entering[room_id]
        if self._since.pop(room_id, None) is not None:
            self._save()

    async def _join(self, room_id: str) -> None:
        """Retry until we are in; raises RequestFailed for a refusal, or after a day."""
        give_up_at = self._since.get(room_id, clock.now()) + _GIVE_UP_AFTER_S
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                await request(Response, self._client.join(room_id), timeout_s=_TIMEOUT_S)
            except RequestFailed as error:
                if not error.is_transient or clock.now() > give_up_at:
                    raise
                await asyncio.sleep(error.retry_after or pause_s)
                pause_s = min(pause_s * 2, _MAX_PAUSE_S)
            else:
                return

    def _save(self) -> None:
        write_private(self._path, msgspec.json.encode(self._since).decode())

    def _load(self) -> dict[str, float]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, float])
        except FileNotFoundError:
            return {}
        except msgspec.DecodeError:
            _log.error("Matrix: %s cannot be read; people must invite us again.", self._path)
            return {}
