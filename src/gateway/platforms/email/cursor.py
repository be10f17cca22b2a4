"""Stores the position in the mailbox: everything up to that mail is in a store, nothing after it."""

import logging
from pathlib import Path

import msgspec

from gateway.platforms.base import Mark, PlatformError
from hermes_core.paths import write_private

_log = logging.getLogger(__name__)


class Cursor(msgspec.Struct, frozen=True):
    """A place in a mailbox, as far as its numbering holds."""

    mailbox: str
    uidvalidity: int
    """The numbering: when the server changes it, `uid` says nothing any more."""
    uid: int
    """The last mail that was processed."""
    begun_at: float
    """The newest mail there was when Hermes first saw the mailbox; that one and older are not for us."""
    dealt_at: float
    """When the last processed mail had arrived."""
    stuck: int = 0
    """The mail that the server last failed to deliver."""
    failures: int = 0
    """How often it failed in a row."""
    stuck_in: int = 0
    """The numbering of this mail."""

    def fails_at(self, uidvalidity: int, uid: int) -> int:
        """Return how often the server failed to deliver a mail; 0 in another numbering."""
        is_same = (self.stuck_in or self.uidvalidity, self.stuck) == (uidvalidity, uid)
        return self.failures if is_same else 0

    def is_behind(self, other: "Cursor") -> bool:
        """Return whether the other one is further."""
        if self.uidvalidity == other.uidvalidity:
            return self.uid < other.uid
        return self.dealt_at < other.dealt_at


class CursorFile:
    """The file of the cursor, and the mark of the account, which another home may have moved on."""

    def __init__(self, path: Path, mark: Mark) -> None:
        self._path = path
        self._mark = mark

    def read(self, mailbox: str) -> Cursor | None:
        """Return the position in this mailbox; None at the first time.

        For a file that cannot be read, the mark of the account has the same position, or one mail less,
        which is then recognized as a repeat. Raises PlatformError when there is no mark either.
        """
        accounts = self._of_account(mailbox)
        try:
            own = self._own(mailbox)
        except PlatformError as error:
            if accounts is None:
                raise
            _log.warning("%s The account's mark is used instead.", error.message)
            return accounts
        if own is None or (accounts is not None and own.is_behind(accounts)):
            return accounts
        return own

    def _of_account(self, mailbox: str) -> Cursor | None:
        try:
            cursor = msgspec.json.decode(self._mark.read() or "null", type=Cursor | None)
        except msgspec.DecodeError as error:
            _log.warning("The position of the account cannot be read: %s", error)
            return None
        return cursor if cursor and cursor.mailbox == mailbox else None

    def _own(self, mailbox: str) -> Cursor | None:
        try:
            cursor = msgspec.json.decode(self._path.read_bytes(), type=Cursor)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise PlatformError(
                f"The file {self._path}, with the position in the mailbox, cannot be read: {error}.",
                fix="Delete it; Hermes then begins with the mail that arrives from now on.",
                is_fatal=True,
            ) from error
        return cursor if cursor.mailbox == mailbox else None

    def write(self, cursor: Cursor) -> None:
        position = msgspec.json.encode(cursor).decode()
        write_private(self._path, position)
        self._mark.write(position)
