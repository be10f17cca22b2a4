"""Messages that came before their key, kept until it comes."""

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

_KEPT_S = 14 * 24 * 3600
_MOST = 1000


class Locked(msgspec.Struct):
    """A message that cannot be read yet."""

    room_id: str
    source: dict[str, Any]
    since: float
    is_told: bool = False
    """Whether its room has been told that we cannot read it."""

    @property
    def event_id(self) -> str:
        return str(self.source["event_id"])

    @property
    def session_id(self) -> str:
        return str(self.source["content"]["session_id"])


class LockedMessages:
    """All of them; on disk, because the server does not send them again."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "locked.json"
        self._kept = self._load()

    def __iter__(self) -> Iterator[Locked]:
        return iter(list(self._kept.values()))

    def add(self, room_id: str, event: MegolmEvent) -> bool:
        """Keep a message; False when it is here already."""
        if event.event_id in self._kept:
            return False
        self._kept[event.event_id] = Locked(room_id, event.source, clock.now())
        self._drop_old()
        self._save()
        return True

    def unlocked(self, client: Client) -> Iterator[tuple[Locked, dict[str, Any]]]:
        """Those that can be read by now, in the order they came, and what they are."""
        for one in self:
            event = cast("MegolmEvent", cast("Any", MegolmEvent).from_dict(one.source))
            event.room_id = one.room_id
            try:
                yield one, client.decrypt_event(event).source
            except EncryptionError:
                continue  # its key is still to come

    def remove(self, one: Locked) -> None:
        if self._kept.pop(one.event_id, None):
            self._save()

    def overdue(self, patience_s: float) -> list[Locked]:
        """Those whose rooms should be told that we cannot read them."""
        before = clock.now() - patience_s
        return [one for one in self if not one.is_told and one.since <= before]

    def mark_told(self, one: Locked) -> None:
        one.is_told = True
        self._save()

    def _drop_old(self) -> None:
        too_many = list(self)[: max(0, len(self._kept) - _MOST)]
        too_old = [one for one in self if one.since < clock.now() - _KEPT_S]
        for one in (*too_many, *too_old):
            _log.warning("Matrix: given up on %s, whose key never came.", one.event_id)
            self._kept.pop(one.event_id, None)

    def _save(self) -> None:
        write_private(self._path, msgspec.json.encode(list(self._kept.values())).decode())

    def _load(self) -> dict[str, Locked]:
        try:
            kept = msgspec.json.decode(self._path.read_bytes(), type=list[Locked])
        except FileNotFoundError:
            return {}
        except msgspec.DecodeError:
            _log.error("Matrix: %s cannot be read; messages without a key are lost.", self._path)
            return {}
        return {one.event_id: one for one in kept}
