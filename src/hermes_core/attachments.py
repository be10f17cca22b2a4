"""Files that were kept for conversations: named after their session, gone with it."""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress

from hermes_core.paths import Home


def name_of(session_id: str, number: int, name: str) -> str:
    """The file name of what was kept for a session, of its own for each session and number."""
    return f"{_prefix(session_id)}_{number}_{name}"


def forget(home: Home, session_ids: Iterable[str], is_there: Callable[[str], bool]) -> None:
    """Remove what was kept for sessions that are deleted; `is_there` knows those that are left."""
    if not home.attachments.is_dir():
        return
    names = [path.name for path in home.attachments.iterdir()]
    for session_id in session_ids:
        own = re.compile(rf"{re.escape(_prefix(session_id))}(_\d+)_(\d+_)?")
        for name in names:
            found = own.match(name)
            # The first of two numbers may be the end of another session's name.
            if found and not (found[2] and is_there(session_id + found[1])):
                with suppress(OSError):  # what cannot go stays, as a file that nobody refers to
                    (home.attachments / name).unlink()


def _prefix(session_id: str) -> str:
    """A session's id as the beginning of a file name; an import may have called it like a path."""
    return session_id.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")
