"""Attachments stored in the home.

Those of the terminal are named after their session. Those of chats are named after their content, so
several messages may share one.
"""

import os
import re
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from hermes_core.paths import Home

_PLAIN = re.compile(r"[\w-]{1,100}", re.ASCII)
_NUMBERED = re.compile(r"([^.]+)\.\d+_")
_HASHED = re.compile(r"x[0-9a-f]{64}")
_SHARED = re.compile(r"[0-9a-f]{32}\.\w+", re.ASCII)


def path_of(home: Home, session_id: str, number: int, name: str) -> Path:
    """Return the path of a session's attachment."""
    return home.attachments / f"{_stem(session_id)}.{number}_{name}"


def names_of(home: Home, session_ids: Iterable[str]) -> set[str]:
    """Return the names of files that belong to these sessions alone."""
    stems = {_stem(session_id) for session_id in session_ids}
    try:
        names = [path.name for path in home.attachments.iterdir()] if stems else []
    except OSError:
        return set()
    return {name for name in names if (found := _NUMBERED.match(name)) and found[1] in stems}


def owner(name: str) -> str:
    """Return the session that a file is named after, or an empty string."""
    found = _NUMBERED.match(name)
    return found[1] if found and not _HASHED.fullmatch(found[1]) else ""


def is_shared(name: str) -> bool:
    """Return whether a file is named after its content."""
    return _SHARED.fullmatch(name) is not None


def hold(path: Path) -> BinaryIO | None:
    """Protect a file from removal until the returned file is closed. Returns None if missing."""
    import fcntl  # noqa: PLC0415 -- few need it

    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    fcntl.flock(file, fcntl.LOCK_SH)
    if os.fstat(file.fileno()).st_nlink:
        return file
    file.close()  # removed while we waited for the lock
    return None


@contextmanager
def locked_names(home: Home, names: Iterable[str]) -> Generator[set[str]]:
    """Lock those of the files that nobody holds, and yield their names."""
    import fcntl  # noqa: PLC0415 -- few need it

    with ExitStack() as opened:
        free: set[str] = set()
        for name in names:
            with suppress(OSError):
                file = opened.enter_context((home.attachments / name).open("rb"))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                free.add(name)
        yield free


def remove(home: Home, names: Iterable[str]) -> None:
    """Remove files; one that cannot be removed stays."""
    for name in names:
        with suppress(OSError):
            (home.attachments / name).unlink()


def _stem(session_id: str) -> str:
    """Return the file name prefix of a session; an imported id may be any text, so it is hashed."""
    if _PLAIN.fullmatch(session_id):
        return session_id
    import hashlib  # noqa: PLC0415 -- slow to load, and hardly ever needed

    return "x" + hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
