"""Room upgrades: one room replaces another, when both say so.

Anybody can create a room that claims to follow another one, and any member of the old room can point at
any other; only both together are an upgrade.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import cast

from nio.responses import RoomGetStateEventResponse

from gateway.platforms.matrix.client import Client
from gateway.platforms.matrix.homeserver import RequestFailed, request, with_retries
from gateway.platforms.matrix.translate import (
    CREATE,
    TOMBSTONE,
    Json,
    predecessor,
    replacement,
)


class RoomUpgrades:
    """Finds out which rooms replace which."""

    def __init__(
        self,
        client: Client,
        join: Callable[[str], Awaitable[None]],
        report: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._client = client
        self._join = join
        self._report = report

    async def check(self, room_id: str, sources: Iterable[Json]) -> None:
        """Report the upgrades in the events of a room; join a new room that we are not in."""
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
            await self._report(old, new)

    async def _state(self, room_id: str, kind: str) -> Json:
        try:
            return await with_retries(lambda: _state(self._client, room_id, kind))
        except RequestFailed as error:
            if error.ends_reading:
                raise
            return {}


async def is_replaced(client: Client, room_id: str) -> bool:
    """Return whether a room was replaced, so that nobody can write there any more."""
    try:
        return bool(replacement(await _state(client, room_id, TOMBSTONE)))
    except RequestFailed:
        return False


async def _state(client: Client, room_id: str, kind: str) -> Json:
    """Return a state of a room as the event that set it; raises RequestFailed."""
    call = client.room_get_state_event(room_id, kind)
    found = await request(RoomGetStateEventResponse, call)
    return {"type": kind, "content": cast("Json", found.content)}
