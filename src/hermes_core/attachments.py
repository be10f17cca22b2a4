"""Files that were kept for conversations: named after their session, gone with it."""

import glob
from collections.abc import Iterable
from contextlib import suppress

from hermes_core.paths import Home


def forget(home: Home, session_ids: Iterable[str]) -> None:
    """Remove what was kept for sessions that are deleted."""
    for session_id in session_ids:
        for path in home.attachments.glob(f"{glob.escape(session_id)}_*"):
            with suppress(OSError):  # what cannot go stays, as a file that nobody refers to
                path.unlink()
