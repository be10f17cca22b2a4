"""How far the mailbox was taken in: everything up to a mail is in the store, nothing after it is."""

from pathlib import Path

import msgspec

from gateway.platforms.base import PlatformError
from hermes_core.paths import write_private


class Cursor(msgspec.Struct, frozen=True):
    """A place in a mailbox, as far as its numbering holds."""

    mailbox: str
    uidvalidity: int
    """The numbering: when the server changes it, `uid` says nothing any more."""
    uid: int
    """The last mail that was dealt with."""
    begun_at: float
    """The newest mail there was when Hermes first saw the mailbox; that one and older are not for us."""
    dealt_at: float
    """When the last mail that was dealt with had arrived."""


class CursorFile:
    """The file that the cursor lies in."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, mailbox: str) -> Cursor | None:
        """Where we are in this mailbox; None when we never were there."""
        try:
            cursor = msgspec.json.decode(self._path.read_bytes(), type=Cursor)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise PlatformError(
                f"The file {self._path}, which says what mail was taken in, cannot be read: {error}.",
                fix="Delete it; Hermes then begins with the mail that arrives from now on.",
                is_fatal=True,
            ) from error
        return cursor if cursor.mailbox == mailbox else None

    def write(self, cursor: Cursor) -> None:
        write_private(self._path, msgspec.json.encode(cursor).decode())
