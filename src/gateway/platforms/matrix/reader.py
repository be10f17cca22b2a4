"""Reads the rooms of an account: one sync after the other, acknowledged when all of it is stored."""

import asyncio
import hashlib
import logging
from typing import Any, cast

from nio import ForwardedRoomKeyEvent, MegolmEvent, RoomKeyEvent
from nio.responses import InviteInfo, Response, RoomInfo, RoomMessagesResponse, SyncResponse

from gateway.platforms.base import PlatformError
from gateway.platforms.matrix import content
from gateway.platforms.matrix.client import Client
from gateway.platforms.matrix.cursor import Cursor
from gateway.platforms.matrix.homeserver import RequestFailed, request, with_retries
from gateway.platforms.matrix.invitations import Invitations, inviter_of
from gateway.platforms.matrix.receiving import Receiver
from gateway.platforms.matrix.room_upgrades import RoomUpgrades
from gateway.platforms.matrix.translate import since_arrival
from gateway.platforms.matrix.undecrypted import Undecrypted, UndecryptedMessages

_log = logging.getLogger(__name__)

_POLL_TIMEOUT_S = 30.0
_RESPONSE_TIMEOUT_S = 20.0
_FIRST_TIMEOUT_S = 300.0
_PAGE_SIZE = 50
_MAX_PAGES = 50
_FILTER: dict[str, Any] = {
    "room": {"timeline": {"limit": _PAGE_SIZE}, "ephemeral": {"types": []}},
    "presence": {"types": []},
    "account_data": {"types": []},
}
_ONLY_KEYS: dict[str, Any] = _FILTER | {"room": {"rooms": []}}
_UNREADABLE = (
    "I cannot read your last message: its key has not reached me. If I do not answer soon, please "
    "send it again."
)


class Reader:
    """Reads the rooms of an account, from where the last run stopped."""

    def __init__(
        self,
        client: Client,
        receiver: Receiver,
        cursor: Cursor,
        undecrypted: UndecryptedMessages,
        invitations: Invitations,
        *,
        auto_join: bool = True,
        key_timeout_s: float = 60.0,
    ) -> None:
        self._client = client
        self._receiver = receiver
        self._cursor = cursor
        self._undecrypted = undecrypted
        self._invitations = invitations
        self._auto_join = auto_join
        self._key_timeout_s = key_timeout_s
        self._has_reported_keys = False
        self._upgrades = RoomUpgrades(client, self._join, receiver.moved)

    async def begin(self) -> SyncResponse:
        """Run the first sync, with the state of all rooms; raises RequestFailed."""
        if self._cursor.is_behind:
            await self._fetch_keys()
            self._client.next_batch = ""  # nio leaves out a sync that ends where its last one did
        try:
            first = await self._sync(full_state=True)
        except RequestFailed as error:
            if not self._cursor.since or error.kind != "refused":
                raise
            _log.error("Matrix: the server forgot our position (%s); reading from now on.", error)
            self._cursor.forget()
            first = await self._sync(full_state=True)
        await self._maintain_keys()
        return first

    async def _fetch_keys(self) -> None:
        """Fetch the keys sent to this device while another one read for the account.

        The server forgets them once we read from a later position.
        """
        since = self._cursor.own
        while True:
            ask = self._client.sync(timeout=0, sync_filter=_ONLY_KEYS, since=since)
            try:
                news = await request(SyncResponse, ask, timeout_s=_FIRST_TIMEOUT_S)
            except RequestFailed as error:
                if error.kind != "refused":
                    raise
                _log.warning("Matrix: the keys sent meanwhile cannot be fetched: %s", error)
                return
            if not news.to_device_events:
                return
            since = news.next_batch

    async def run(self, first: SyncResponse) -> None:
        """Read until cancelled; raises PlatformError when the server does not let us."""
        news = first
        self._invitations.resume()
        try:
            await self._decrypt()
            while True:
                await self._process(news)
                news = await self._next()
        except RequestFailed as error:
            raise PlatformError(f"Matrix {_reason(error)}. {error}") from error
        finally:
            await self._invitations.close()

    async def _next(self) -> SyncResponse:
        """Wait for the next sync; raises RequestFailed when the server stays away."""
        await with_retries(self._maintain_keys)
        await self._report_overdue()
        return await with_retries(self._sync)

    async def _maintain_keys(self) -> None:
        try:
            await self._client.maintain_keys()
        except RequestFailed as error:
            if error.kind != "refused":
                raise
            self._report_keys(error)

    def _report_keys(self, error: RequestFailed) -> None:
        if not self._has_reported_keys:
            self._has_reported_keys = True
            _log.error(
                "Matrix: the server rejects the keys of our device: %s. Encrypted rooms cannot be "
                "read. Log in as a new device: set another access_token.",
                error,
            )

    async def _sync(self, *, full_state: bool = False) -> SyncResponse:
        poll = 0.0 if full_state else _POLL_TIMEOUT_S
        ask = self._client.sync(
            timeout=int(poll * 1000),
            sync_filter=_FILTER,
            since=self._cursor.since,
            full_state=full_state,
        )
        timeout_s = _FIRST_TIMEOUT_S if full_state else poll + _RESPONSE_TIMEOUT_S
        return await request(SyncResponse, ask, timeout_s=timeout_s)

    async def _process(self, news: SyncResponse) -> None:
        """Process a sync, and only then store its token."""
        for room_id in news.rooms.leave:
            self._client.rooms.pop(room_id, None)
        await asyncio.gather(*(self._consider(*invited) for invited in news.rooms.invite.items()))
        if self._cursor.since:  # messages from before our arrival are not for us
            for room_id, info in news.rooms.join.items():
                await self._process_room(room_id, info)
        if any(
            isinstance(event, RoomKeyEvent | ForwardedRoomKeyEvent)
            for event in news.to_device_events
        ):
            await self._decrypt()
        self._cursor.save(news.next_batch)

    async def _process_room(self, room_id: str, info: RoomInfo) -> None:
        events = [*await self._gap(room_id, info), *cast("list[Any]", info.timeline.events)]
        sources = [event.source for event in (*cast("list[Any]", info.state), *events)]
        await self._upgrades.check(room_id, sources)
        start = since_arrival([event.source for event in events], self._client.user_id)
        for event in events[start:]:
            if isinstance(event, MegolmEvent):
                await self._keep_undecrypted(room_id, event)
            elif event.source.get("type") == "m.room.encrypted":
                _log.error("Matrix: a message in %s has an unknown encryption.", room_id)
            else:
                await self._receiver.accept(room_id, event.source)

    async def _gap(self, room_id: str, info: RoomInfo) -> list[Any]:
        """Fetch the events that a sync left out because there were too many; oldest first."""
        missed: list[Any] = []
        start = info.timeline.prev_batch if info.timeline.limited else None
        for _ in range(_MAX_PAGES):
            if not start:
                break
            page = await self._page(room_id, start)
            if page is None or not page.chunk:
                break
            missed += page.chunk
            start = page.end
        else:
            _log.warning("Matrix: %s has more new messages than can be fetched.", room_id)
        return missed[::-1]

    async def _page(self, room_id: str, start: str) -> RoomMessagesResponse | None:
        since = self._cursor.since

        async def ask() -> RoomMessagesResponse:
            page = self._client.room_messages(room_id, start, since, limit=_PAGE_SIZE)
            return await request(RoomMessagesResponse, page)

        try:
            return await with_retries(ask)
        except RequestFailed as error:
            if error.ends_reading:
                raise
            _log.error("Matrix: missed messages in %s cannot be fetched: %s", room_id, error)
            return None

    async def _consider(self, room_id: str, info: InviteInfo) -> None:
        """Join a room unless a stranger invites us."""
        inviter = inviter_of(info, self._client.user_id)
        if not self._auto_join or await self._receiver.may_invite(room_id, inviter):
            await self._join(room_id)
        else:
            _log.warning(
                "Matrix: invitation to %s not accepted: %s may not write to the agent. Let them in,"
                " then have them invite it again.",
                room_id,
                inviter or "nobody",
            )

    async def _join(self, room_id: str) -> None:
        if not self._auto_join:
            _log.info("Matrix: invited to %s; auto_join is off.", room_id)
            return
        await self._invitations.enter(room_id)

    async def _keep_undecrypted(self, room_id: str, event: MegolmEvent) -> None:
        """Store a message that cannot be read, and ask our other devices for its key."""
        if event.sender == self._client.user_id or not self._undecrypted.add(room_id, event):
            return
        _log.warning("Matrix: the key of %s in %s has not arrived yet.", event.event_id, room_id)
        if event.session_id in self._client.outgoing_key_requests:
            return
        event.room_id = room_id
        try:
            await request(Response, self._client.request_room_key(event))
        except RequestFailed as error:
            _log.info("Matrix: the key could not be requested: %s", error)

    async def _decrypt(self) -> None:
        for message, source in self._undecrypted.decrypted(self._client):
            await self._receiver.accept(message.room_id, source)
            self._undecrypted.remove(message)

    async def _report_overdue(self) -> None:
        """Write to direct chats that a message was not readable; once per missing key."""
        for message in self._undecrypted.overdue(self._key_timeout_s):
            if not self._receiver.is_direct(message.room_id) or await self._report(message):
                self._undecrypted.mark_notified(message)

    async def _report(self, message: Undecrypted) -> bool:
        """Return whether the report was sent, or never can be."""
        notice = content.message(_UNREADABLE, kind="m.notice")
        notice = content.related(notice, message.event_id, None)
        name = f"locked {message.room_id} {message.session_id}"
        key = hashlib.sha256(name.encode()).hexdigest()[:32]
        try:
            await self._client.post(message.room_id, notice, key)
        except RequestFailed as error:
            _log.warning("Matrix: could not write to %s: %s", message.room_id, error)
            return not error.is_transient
        return True


def _reason(error: RequestFailed) -> str:
    """Describe why nothing can be read."""
    if error.is_logged_out:
        return "logged the account out"
    return "is away" if error.is_unreached else "cannot be read"
