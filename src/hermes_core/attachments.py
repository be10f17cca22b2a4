"""Files that were kept for conversations: named after their session, gone with it."""

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from hermes_core.paths import Home

_PLAIN = re.compile(r"[\w-]{1,100}", re.ASCII)
_NUMBERED = re.compile(r"([^.]+)\.\d+_")


def place(home: Home, session_id: str, number: int, name: str) -> Path:
    """Where a session's file of this number and name is kept."""
    return home.attachments / f"{_stem(session_id)}.{number}_{name}"


def forget(home: Home, session_ids: Iterable[str]) -> None:
    """Remove what was kept for sessions that are deleted."""
    stems = {_stem(session_id) for session_id in session_ids}
    with suppress(OSError):  # what cannot go stays, as a file that nobody refers to
        for path in home.attachments.iterdir():
            named = _NUMBERED.match(path.name)
            if named and named[1] in stems:
                path.unlink()


def _stem(session_id: str) -> str:
    """The part of a file's name that stands for its session: an imported id may be any text."""
    if _PLAIN.fullmatch(session_id):
        return session_id
    import hashlib  # noqa: PLC0415 -- slow to load, and hardly ever needed

    return "x" + hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
