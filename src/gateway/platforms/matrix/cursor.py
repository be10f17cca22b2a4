"""How far we have read, kept from one run to the next."""

import logging
from pathlib import Path

import msgspec

from hermes_core.paths import write_private

_log = logging.getLogger(__name__)


class _Position(msgspec.Struct):
    user_id: str
    since: str


class Cursor:
    """The token of the last sync whose messages have all been taken in; None before the first."""

    def __init__(self, folder: Path, user_id: str) -> None:
        self._path = folder / "cursor.json"
        self._user_id = user_id
        self.since = self._load()

    def save(self, since: str) -> None:
        if since != self.since:
            position = _Position(self._user_id, since)
            write_private(self._path, msgspec.json.encode(position).decode())
            self.since = since

    def forget(self) -> None:
        """Begin anew, after the server no longer knows the token."""
        self._path.unlink(missing_ok=True)
        self.since = None

    def _load(self) -> str | None:
        try:
            known = msgspec.json.decode(self._path.read_bytes(), type=_Position)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError:
            _log.error("Matrix: %s cannot be read; older messages stay unanswered.", self._path)
            return None
        return known.since if known.user_id == self._user_id else None
