"""The connection to a homeserver: nio's client, with its keys on disk and no retries of its own."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from aiohttp import ClientConnectionError, ClientResponse
from nio import AsyncClient, AsyncClientConfig, MatrixRoom
from nio.api import Api
from nio.crypto import OlmDevice
from nio.exceptions import EncryptionError, GroupEncryptionError, OlmTrustError, ProtocolError
from nio.responses import (
    JoinedRoomsResponse,
    Response,
    RoomGetEventResponse,
    RoomSendResponse,
    SyncResponse,
)
from peewee import PeeweeException

from gateway.platforms.matrix.answers import RequestFailed, answered, reached
from hermes_core.paths import touch_private

KEYS = "keys.db"
_CRYPTO_ERRORS = (EncryptionError, GroupEncryptionError, OlmTrustError, ProtocolError)
_CONFIG = AsyncClientConfig(
    max_limit_exceeded=0, max_timeouts=0, encryption_enabled=True, store_name=KEYS
)


class Client(AsyncClient):
    """One device of our account; not for two tasks that read, but for many that send."""

    def __init__(self, homeserver: str, folder: Path) -> None:
        touch_private(folder / KEYS)
        super().__init__(homeserver.rstrip("/"), store_path=str(folder), config=_CONFIG)
        self.verified: Collection[str] | None = None
        """Fingerprints of the devices that may read what we send; None: all may."""
        self._is_closed = False
        self._sharing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def receive_response(self, response: Response) -> None:
        """Take in what came, a sync as a whole: a key whose message was taken is on disk, or both
        come again. Who asks for one event decrypts it: nio would lose what the server says about it."""
        if isinstance(response, RoomGetEventResponse):
            return
        if not isinstance(response, SyncResponse) or not self.store:
            await super().receive_response(response)
            return
        # Without callbacks nothing in there waits, so nobody else writes in this transaction.
        with cast("Any", self.store.database).atomic():
            await super().receive_response(response)
        if self.olm and response.device_key_count.signed_curve25519 == 0:
            self.olm.uploaded_key_count = 0  # nio takes none for unknown and would upload no more

    async def post(self, room_id: str, content: dict[str, Any], key: str) -> str:
        """Send a message and return its id; the same for the same key. Raises RequestFailed."""
        kind, room = "m.room.message", self.rooms.get(room_id)
        if room is None:
            raise await self._unknown(room_id)
        if room.encrypted:
            kind, content = await self._encrypted(room, kind, content)
        method, path, data = Api.room_send(self.access_token, room_id, kind, content, key)
        send = cast("Any", self._send)
        call = send(RoomSendResponse, method, path, data, (room_id,))
        return (await answered(RoomSendResponse, call)).event_id

    async def tend_keys(self) -> None:
        """What encryption asks for between two syncs: keys of ours, of others, and requests."""
        if self.should_upload_keys:
            await answered(Response, self.keys_upload())
        if self.should_query_keys:
            await answered(Response, self.keys_query())
        if self.should_claim_keys:
            await self._claim(self.get_users_for_key_claiming())
        await reached(self.send_to_device_messages())

    async def send(self, *args: Any, **kwargs: Any) -> ClientResponse:  # noqa: ANN401 -- nio's own
        if self._is_closed:  # nio would open another session, which nobody closes
            raise ClientConnectionError("The connection was closed")
        return await super().send(*args, **kwargs)

    async def close(self) -> None:
        self._is_closed = True
        await super().close()
        if self.store:
            self.store.database.close()

    async def _unknown(self, room_id: str) -> RequestFailed:
        """Why a room is not known here: we are not in it, or it has not been synced yet."""
        ours = await answered(JoinedRoomsResponse, self.joined_rooms())
        if room_id in ours.rooms:
            return RequestFailed("network", f"The room {room_id} is not synced yet.")
        return RequestFailed("refused", f"We are not in the room {room_id}.")

    async def _encrypted(
        self, room: MatrixRoom, kind: str, content: dict[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        try:
            async with self._sharing[room.room_id]:
                await self._share_key(room)
                return self.encrypt(room.room_id, kind, content)
        except (*_CRYPTO_ERRORS, PeeweeException) as error:
            raise RequestFailed("network", f"Not encrypted: {error}", code="client") from error

    async def _share_key(self, room: MatrixRoom) -> None:
        """Hand the room's key to all who may read; done here, because nio sends a message also when
        the key did not get through, and then nobody can read it."""
        olm, room_id = self.olm, room.room_id
        assert olm is not None
        if not room.members_synced:
            await answered(Response, self.joined_members(room_id))
        if self.should_query_keys:
            await answered(Response, self.keys_query())
        if not olm.should_share_group_session(room_id):
            return
        devices = [one for user in room.users for one in self._devices(user)]
        for device in devices:
            self._judge(device)
        if missing := self.get_missing_sessions(room_id):
            await self._claim(missing)
        try:
            share = self.share_group_session(room_id, ignore_unverified_devices=True)
            await answered(Response, share)
        finally:
            self.sharing_session.pop(room_id, None)  # left behind when the request is cut off
        session = olm.outbound_group_sessions.get(room_id)
        if session is None or not self._reachable(devices) <= session.users_shared_with:
            if session:
                session.shared = False  # the next attempt goes on with those who lack it
            raise RequestFailed("network", "The key of the message did not reach everybody.")

    async def _claim(self, missing: Mapping[str, Iterable[str]]) -> None:
        await answered(Response, self.keys_claim(dict(missing)))

    def _devices(self, user_id: str) -> list[OlmDevice]:
        found = self.device_store.active_user_devices(user_id)
        return [one for one in found if (one.user_id, one.id) != (self.user_id, self.device_id)]

    def _reachable(self, devices: Iterable[OlmDevice]) -> set[tuple[str, str]]:
        """Those that are to have the key; without keys of theirs on the server they cannot."""
        olm = self.olm
        assert olm is not None
        return {
            (one.user_id, one.id)
            for one in devices
            if not olm.is_device_blacklisted(one) and olm.session_store.get(one.curve25519)
        }

    def _judge(self, device: OlmDevice) -> None:
        """Leave a device out when only verified ones may read, and take it in again when it may."""
        if self.verified is None:
            self.unblacklist_device(device)
        elif device.ed25519.rstrip("=") in self.verified:
            self.verify_device(device)
        else:
            self.blacklist_device(device)
