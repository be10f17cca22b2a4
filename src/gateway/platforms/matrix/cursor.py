"""Stores the position in the sync stream, between runs and between homes."""

import logging
from pathlib import Path

import msgspec

from gateway.platforms.base import Mark
from hermes_core import clock
from hermes_core.paths import write_private

_log = logging.getLogger(__name__)


class _Position(msgspec.Struct):
    user_id: str
    since: str
    at: float = 0.0
    """When it was reached: tokens cannot be compared, moments can."""


class Cursor:
    """The token of the last sync whose messages were all accepted; None before the first."""

    def __init__(self, folder: Path, user_id: str, mark: Mark) -> None:
        self._path = folder / "cursor.json"
        self._user_id = user_id
        self._mark = mark
        own, accounts = self._load(), self._of_account()
        self.own = own.since if own else None
        """The position of this device; events for it alone come after that."""
        self.is_behind = accounts is not None and (own is None or own.at < accounts.at)
        """Whether another device read for the account after this one."""
        self.since = accounts.since if accounts and self.is_behind else self.own

    def save(self, since: str) -> None:
        if since == self.since:
            return
        position = msgspec.json.encode(_Position(self._user_id, since, clock.now())).decode()
        write_private(self._path, position)
        self._mark.write(position)
        self.since = self.own = since

    def forget(self) -> None:
        """Start again, after the server has forgotten the token."""
        self._path.unlink(missing_ok=True)
        self.since = self.own = None

    def _load(self) -> _Position | None:
        try:
            position = msgspec.json.decode(self._path.read_bytes(), type=_Position)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError:
            _log.error("Matrix: %s cannot be read; older messages stay unanswered.", self._path)
            return None
        return position if position.user_id == self._user_id else None

    def _of_account(self) -> _Position | None:
        """Return the position of the account, whichever device read for it."""
        try:
            position = msgspec.json.decode(self._mark.read() or "null", type=_Position | None)
        except msgspec.DecodeError:
            _log.error("Matrix: the position of the account cannot be read.")
            return None
        return position if position and position.user_id == self._user_id else None
