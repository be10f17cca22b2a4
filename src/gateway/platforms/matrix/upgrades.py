"""Upgrades: a room that another one took the place of, when both say so.

Anybody can make a room that says it follows another one, and who may write in the old room can point at
any other; only both together are a move.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import cast

from nio.responses import RoomGetStateEventResponse

from gateway.platforms.matrix.answers import RequestFailed, answered, persistently
from gateway.platforms.matrix.client import Client
from gateway.platforms.matrix.translate import (
    CREATE,
    TOMBSTONE,
    Json,
    predecessor,
    replacement,
)


class Upgrades:
    """Finds out which rooms take the place of which."""

    def __init__(
        self,
        client: Client,
        join: Callable[[str], Awaitable[None]],
        note: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._client = client
        self._join = join
        self._note = note

    async def look(self, room_id: str, sources: Iterable[Json]) -> None:
        """Note what the events of a room say about it; a new room that we are not in is joined."""
        for source in sources:
            if old := predecessor(source):
                await self._follow(old, room_id)
            elif new := replacement(source):
                await self._follow(room_id, new)

    async def _follow(self, old: str, new: str) -> None:
        if new not in self._client.rooms:
            await self._join(new)  # once we are there, its first event leads here again
        elif (
            replacement(await self._state(old, TOMBSTONE)) == new
            and predecessor(await self._state(new, CREATE)) == old
        ):
            await self._note(old, new)

    async def _state(self, room_id: str, kind: str) -> Json:
        try:
            return await persistently(lambda: _state(self._client, room_id, kind))
        except RequestFailed as error:
            if error.ends_reading:
                raise
            return {}


async def is_replaced(client: Client, room_id: str) -> bool:
    """Whether a room was replaced, so that nobody can write there any more."""
    try:
        return bool(replacement(await _state(client, room_id, TOMBSTONE)))
    except RequestFailed:
        return False


async def _state(client: Client, room_id: str, kind: str) -> Json:
    """A state of a room in the shape of the event that set it; raises RequestFailed."""
    ask = client.room_get_state_event(room_id, kind)
    found = await answered(RoomGetStateEventResponse, ask)
    return {"type": kind, "content": cast("Json", found.content)}
