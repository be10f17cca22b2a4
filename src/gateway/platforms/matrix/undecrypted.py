"""Stores encrypted messages until their key arrives."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
from nio import MegolmEvent
from nio.exceptions import EncryptionError

from gateway.platforms.matrix.client import Client
from hermes_core import clock
from hermes_core.paths import write_private

_log = logging.getLogger(__name__)

_MAX_AGE_S = 14 * 24 * 3600
_MAX_MESSAGES = 1000


class Undecrypted(msgspec.Struct):
    """A message that cannot be read yet."""

    room_id: str
    source: dict[str, Any]
    since: float
    is_told: bool = False
    """Whether we wrote to its room that we cannot read it."""

    @property
    def event_id(self) -> str:
        return str(self.source["event_id"])

    @property
    def session_id(self) -> str:
        return str(self.source["content"]["session_id"])


class UndecryptedMessages:
    """All messages that wait for a key; on disk, because the server does not send them again."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "locked.json"
        self._messages = self._load()

    def __iter__(self) -> Iterator[Undecrypted]:
        return iter(list(self._messages.values()))

    def add(self, room_id: str, event: MegolmEvent) -> bool:
        """Store a message; return False when it is here already."""
        if event.event_id in self._messages:
            return False
        self._messages[event.event_id] = Undecrypted(room_id, event.source, clock.now())
        self._drop_old()
        self._save()
        return True

    def decrypted(self, client: Client) -> Iterator[tuple[Undecrypted, dict[str, Any]]]:
        """Yield the messages whose key has arrived, in their order, with the decrypted event."""
        for message in self:
            event = cast("MegolmEvent", cast("Any", MegolmEvent).from_dict(message.source))
            event.room_id = message.room_id
            try:
                yield message, client.decrypt_event(event).source
            except EncryptionError:
                continue  # its key is still to come

    def remove(self, message: Undecrypted) -> None:
        if self._messages.pop(message.event_id, None):
            self._save()

    def overdue(self, timeout_s: float) -> list[Undecrypted]:
        """Return the messages whose rooms should hear that we cannot read them."""
        before = clock.now() - timeout_s
        return [message for message in self if not message.is_told and message.since <= before]

    def mark_notified(self, message: Undecrypted) -> None:
        message.is_told = True
        self._save()

    def _drop_old(self) -> None:
        too_many = list(self)[: max(0, len(self._messages) - _MAX_MESSAGES)]
        too_old = [message for message in self if message.since < clock.now() - _MAX_AGE_S]
        for message in (*too_many, *too_old):
            _log.warning("Matrix: dropped %s, whose key never arrived.", message.event_id)
            self._messages.pop(message.event_id, None)

    def _save(self) -> None:
        write_private(self._path, msgspec.json.encode(list(self._messages.values())).decode())

    def _load(self) -> dict[str, Undecrypted]:
        try:
            messages = msgspec.json.decode(self._path.read_bytes(), type=list[Undecrypted])
        except FileNotFoundError:
            return {}
        except msgspec.DecodeError:
            _log.error("Matrix: %s cannot be read; messages without a key are lost.", self._path)
            return {}
        return {message.event_id: message for message in messages}
