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

from gateway.platforms.matrix.homeserver import RequestFailed, request, response_of
from hermes_core.paths import touch_private

KEYS = "keys.db"
_CRYPTO_ERRORS = (EncryptionError, GroupEncryptionError, OlmTrustError, ProtocolError)
_CONFIG = AsyncClientConfig(
    max_limit_exceeded=0, max_timeouts=0, encryption_enabled=True, store_name=KEYS
)


class Client(AsyncClient):
    """One device of our account, for one task that reads and many that send."""

    def __init__(self, homeserver: str, folder: Path) -> None:
        touch_private(folder / KEYS)
        super().__init__(homeserver.rstrip("/"), store_path=str(folder), config=_CONFIG)
        self.verified: Collection[str] | None = None
        """Fingerprints of the devices that may read what we send; None: all may."""
        self._is_closed = False
        self._sharing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def receive_response(self, response: Response) -> None:
        """Process a response, a sync in one transaction: keys and messages are stored together.

        A single event is decrypted by its caller: nio would lose what the server adds to it.
        """
        if isinstance(response, RoomGetEventResponse):
            return
        if not isinstance(response, SyncResponse) or not self.store:
            await super().receive_response(response)
            return
        # Without callbacks nothing in there waits, so no other task writes in this transaction.
        with cast("Any", self.store.database).atomic():
            await super().receive_response(response)
        if self.olm and response.device_key_count.signed_curve25519 == 0:
            self.olm.uploaded_key_count = 0  # nio takes 0 for unknown and would stop uploading

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
        return (await request(RoomSendResponse, call)).event_id

    async def maintain_keys(self) -> None:
        """Upload, query and claim the keys that encryption needs between two syncs."""
        if self.should_upload_keys:
            await request(Response, self.keys_upload())
        if self.should_query_keys:
            await request(Response, self.keys_query())
        if self.should_claim_keys:
            await self._claim(self.get_users_for_key_claiming())
        await response_of(self.send_to_device_messages())

    async def send(self, *args: Any, **kwargs: Any) -> ClientResponse:  # noqa: ANN401 -- nio's own
        if self._is_closed:  # nio would open another session and never close it
            raise ClientConnectionError("The connection was closed")
        return await super().send(*args, **kwargs)

    async def close(self) -> None:
        self._is_closed = True
        await super().close()
        if self.store:
            self.store.database.close()

    async def _unknown(self, room_id: str) -> RequestFailed:
        """Explain an unknown room: we are not in it, or it has not been synced yet."""
        ours = await request(JoinedRoomsResponse, self.joined_rooms())
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
        """Share the key of a room with every device that may read.

        nio would send a message also when its key did not arrive, and then nobody could read it.
        """
        olm, room_id = self.olm, room.room_id
        assert olm is not None
        if not room.members_synced:
            await request(Response, self.joined_members(room_id))
        if self.should_query_keys:
            await request(Response, self.keys_query())
        if not olm.should_share_group_session(room_id):
            return
        devices = [device for user in room.users for device in self._devices(user)]
        for device in devices:
            self._update_trust(device)
        if missing := self.get_missing_sessions(room_id):
            await self._claim(missing)
        try:
            share = self.share_group_session(room_id, ignore_unverified_devices=True)
            await request(Response, share)
        finally:
            self.sharing_session.pop(room_id, None)  # left behind when the request is cut off
        session = olm.outbound_group_sessions.get(room_id)
        if session is None or not self._reachable(devices) <= session.users_shared_with:
            if session:
                session.shared = False  # the next attempt continues with those that lack it
            raise RequestFailed("network", "The key of the message did not reach every device.")

    async def _claim(self, missing: Mapping[str, Iterable[str]]) -> None:
        await request(Response, self.keys_claim(dict(missing)))

    def _devices(self, user_id: str) -> list[OlmDevice]:
        found = self.device_store.active_user_devices(user_id)
        return [d for d in found if (d.user_id, d.id) != (self.user_id, self.device_id)]

    def _reachable(self, devices: Iterable[OlmDevice]) -> set[tuple[str, str]]:
        """Return the devices that need the key and have keys on the server."""
        olm = self.olm
        assert olm is not None
        return {
            (device.user_id, device.id)
            for device in devices
            if not olm.is_device_blacklisted(device) and olm.session_store.get(device.curve25519)
        }

    def _update_trust(self, device: OlmDevice) -> None:
        """Exclude a device when only verified ones may read; include it when it may read."""
        if self.verified is None:
            self.unblacklist_device(device)
        elif device.ed25519.rstrip("=") in self.verified:
            self.verify_device(device)
        else:
            self.blacklist_device(device)
