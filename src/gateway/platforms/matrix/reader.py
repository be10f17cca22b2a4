"""Reading: one sync after the other, none acknowledged before all of it has been taken in."""

import asyncio
import hashlib
import logging
from typing import Any, cast

from nio import ForwardedRoomKeyEvent, MegolmEvent, RoomKeyEvent
from nio.responses import Response, RoomInfo, RoomMessagesResponse, SyncResponse

from gateway.platforms.base import PlatformError
from gateway.platforms.matrix import content
from gateway.platforms.matrix.answers import RequestFailed, answered, persistently
from gateway.platforms.matrix.client import Client
from gateway.platforms.matrix.cursor import Cursor
from gateway.platforms.matrix.intake import Intake
from gateway.platforms.matrix.invitations import Invitations
from gateway.platforms.matrix.locked import Locked, LockedMessages
from gateway.platforms.matrix.translate import since_arrival
from gateway.platforms.matrix.upgrades import Upgrades

_log = logging.getLogger(__name__)

_POLL_S = 30.0
_ANSWER_S = 20.0
_FIRST_WITHIN_S = 300.0
_PAGE = 50
_MOST_PAGES = 50
_FILTER: dict[str, Any] = {
    "room": {"timeline": {"limit": _PAGE}, "ephemeral": {"types": []}},
    "presence": {"types": []},
    "account_data": {"types": []},
}
_KEYS_ALONE: dict[str, Any] = _FILTER | {"room": {"rooms": []}}
_UNREADABLE = (
    "I cannot read your last message: its key has not reached me. If I do not answer soon, please "
    "send it again."
)


class Reader:
    """Reads the rooms of an account, from where the last run stopped."""

    def __init__(
        self,
        client: Client,
        intake: Intake,
        cursor: Cursor,
        locked: LockedMessages,
        invitations: Invitations,
        *,
        auto_join: bool = True,
        key_patience_s: float = 60.0,
    ) -> None:
        self._client = client
        self._intake = intake
        self._cursor = cursor
        self._locked = locked
        self._invitations = invitations
        self._auto_join = auto_join
        self._key_patience_s = key_patience_s
        self._has_complained = False
        self._upgrades = Upgrades(client, self._join, intake.moved)

    async def begin(self) -> SyncResponse:
        """The first sync, with the state of all rooms; raises RequestFailed."""
        if self._cursor.is_behind:
            await self._take_keys()
            self._client.next_batch = ""  # nio leaves out a sync that ends where its last one did
        try:
            first = await self._sync(full_state=True)
        except RequestFailed as error:
            if not self._cursor.since or error.kind != "refused":
                raise
            _log.error("Matrix: the server forgot where we were (%s); reading from now on.", error)
            self._cursor.forget()
            first = await self._sync(full_state=True)
        await self._tend_keys()
        return first

    async def _take_keys(self) -> None:
        """Have what was sent to this device while another one read for the account, such as the keys of
        rooms: the server forgets what lies before the place that is read from.
        """
        since = self._cursor.own
        while True:
            ask = self._client.sync(timeout=0, sync_filter=_KEYS_ALONE, since=since)
            try:
                news = await answered(SyncResponse, ask, within_s=_FIRST_WITHIN_S)
            except RequestFailed as error:
                if error.kind != "refused":
                    raise
                _log.warning("Matrix: the keys that came meanwhile are not to be had: %s", error)
                return
            if not news.to_device_events:
                return
            since = news.next_batch

    async def run(self, first: SyncResponse) -> None:
        """Read until cancelled; raises PlatformError when the server does not let us."""
        news = first
        self._invitations.resume()
        try:
            await self._unlock()
            while True:
                await self._take(news)
                news = await self._next()
        except RequestFailed as error:
            raise PlatformError(f"Matrix {_why(error)}. {error}") from error
        finally:
            await self._invitations.close()

    async def _next(self) -> SyncResponse:
        """The next sync; raises RequestFailed when the server is away, and is to be looked for anew."""
        await persistently(self._tend_keys)
        await self._tell_overdue()
        return await persistently(self._sync)

    async def _tend_keys(self) -> None:
        try:
            await self._client.tend_keys()
        except RequestFailed as error:
            if error.kind != "refused":
                raise
            self._complain_about_keys(error)

    def _complain_about_keys(self, error: RequestFailed) -> None:
        if not self._has_complained:
            self._has_complained = True
            _log.error(
                "Matrix: the server does not take the keys of our device: %s. In encrypted rooms we "
                "are deaf. Log in as a new device: set another access_token.",
                error,
            )

    async def _sync(self, *, full_state: bool = False) -> SyncResponse:
        poll = 0.0 if full_state else _POLL_S
        ask = self._client.sync(
            timeout=int(poll * 1000),
            sync_filter=_FILTER,
            since=self._cursor.since,
            full_state=full_state,
        )
        within_s = _FIRST_WITHIN_S if full_state else poll + _ANSWER_S
        return await answered(SyncResponse, ask, within_s=within_s)

    async def _take(self, news: SyncResponse) -> None:
        """All that is new, and only then the note that we have it."""
        for room_id in news.rooms.leave:
            self._client.rooms.pop(room_id, None)
        await asyncio.gather(*(self._join(room_id) for room_id in news.rooms.invite))
        if self._cursor.since:  # what was said before we came is not for us
            for room_id, info in news.rooms.join.items():
                await self._take_room(room_id, info)
        if any(
            isinstance(one, RoomKeyEvent | ForwardedRoomKeyEvent) for one in news.to_device_events
        ):
            await self._unlock()
        self._cursor.save(news.next_batch)

    async def _take_room(self, room_id: str, info: RoomInfo) -> None:
        events = [*await self._gap(room_id, info), *cast("list[Any]", info.timeline.events)]
        sources = [one.source for one in (*cast("list[Any]", info.state), *events)]
        await self._upgrades.look(room_id, sources)
        start = since_arrival([one.source for one in events], self._client.user_id)
        for event in events[start:]:
            if isinstance(event, MegolmEvent):
                await self._lock(room_id, event)
            elif event.source.get("type") == "m.room.encrypted":
                _log.error("Matrix: a message in %s has an encryption we do not know.", room_id)
            else:
                await self._intake.take(room_id, event.source)

    async def _gap(self, room_id: str, info: RoomInfo) -> list[Any]:
        """What the sync left out, because too much happened since the last one; oldest first."""
        missed: list[Any] = []
        start = info.timeline.prev_batch if info.timeline.limited else None
        for _ in range(_MOST_PAGES):
            if not start:
                break
            page = await self._page(room_id, start)
            if page is None or not page.chunk:
                break
            missed += page.chunk
            start = page.end
        else:
            _log.warning("Matrix: more was said in %s than can be read back.", room_id)
        return missed[::-1]

    async def _page(self, room_id: str, start: str) -> RoomMessagesResponse | None:
        since = self._cursor.since

        async def ask() -> RoomMessagesResponse:
            page = self._client.room_messages(room_id, start, since, limit=_PAGE)
            return await answered(RoomMessagesResponse, page)

        try:
            return await persistently(ask)
        except RequestFailed as error:
            if error.ends_reading:
                raise
            _log.error("Matrix: what was said in %s meanwhile is not read: %s", room_id, error)
            return None

    async def _join(self, room_id: str) -> None:
        if not self._auto_join:
            _log.info("Matrix: invited to %s; auto_join is off.", room_id)
            return
        await self._invitations.enter(room_id)

    async def _lock(self, room_id: str, event: MegolmEvent) -> None:
        """Keep a message that cannot be read, and ask our other devices for its key."""
        if event.sender == self._client.user_id or not self._locked.add(room_id, event):
            return
        _log.warning("Matrix: the key of %s in %s has not come yet.", event.event_id, room_id)
        if event.session_id in self._client.outgoing_key_requests:
            return
        event.room_id = room_id
        try:
            await answered(Response, self._client.request_room_key(event))
        except RequestFailed as error:
            _log.info("Matrix: the key was not asked for: %s", error)

    async def _unlock(self) -> None:
        for one, source in self._locked.unlocked(self._client):
            await self._intake.take(one.room_id, source)
            self._locked.remove(one)

    async def _tell_overdue(self) -> None:
        """Say in direct chats that a message was not readable; once for each key that is missing."""
        for one in self._locked.overdue(self._key_patience_s):
            if not self._intake.is_direct(one.room_id) or await self._tell(one):
                self._locked.mark_told(one)

    async def _tell(self, one: Locked) -> bool:
        """Whether it was said, or never will be."""
        said = content.related(content.message(_UNREADABLE, kind="m.notice"), one.event_id, None)
        key = hashlib.sha256(f"locked {one.room_id} {one.session_id}".encode()).hexdigest()[:32]
        try:
            await self._client.post(one.room_id, said, key)
        except RequestFailed as error:
            _log.warning("Matrix: %s was not told: %s", one.room_id, error)
            return not error.is_transient
        return True


def _why(error: RequestFailed) -> str:
    """Why nothing can be read, in words."""
    if error.is_logged_out:
        return "has logged us out"
    return "is away" if error.is_unreached else "cannot be read"
