"""Presence: the conversations that are open in each living process, in files that are locked.

A conversation is named by the session it began in. Nothing here has to survive a power cut: then every
process is gone, which is what missing files mean.
"""

import contextlib
import os
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

from hermes_core.locks import LockFile, is_locked
from hermes_core.paths import make_folder


class Presence:
    """The conversations this process has open, for others to see, and those that others have."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._ids: set[str] = set()
        self._file: LockFile | None = None

    def add(self, conversation_id: str) -> None:
        """Note that a conversation is open here."""
        with self._lock:
            if conversation_id not in self._ids:
                self._write({*self._ids, conversation_id})  # if it fails, it is not open here
                self._ids.add(conversation_id)

    def remove(self, conversation_id: str) -> None:
        """Note that a conversation is not open here any more."""
        with self._lock:
            if conversation_id in self._ids:
                self._ids.discard(conversation_id)
                with contextlib.suppress(OSError):  # the next addition writes it
                    self._write(self._ids)

    def close(self) -> None:
        """Note that nothing is open here any more."""
        with self._lock:
            self._ids.clear()
            if self._file is not None:
                self._file.release(remove=True)
                self._file = None

    def _write(self, ids: set[str]) -> None:
        if self._file is None:
            name = f"{os.getpid()}-{os.urandom(4).hex()}.open"
            file = LockFile(make_folder(self._folder) / name)
            file.create()  # at no moment is it there without its lock
            self._file = file
        # A reader in between reads too much, not less.
        lines = (f"{conversation_id}\n" for conversation_id in sorted(ids))
        self._file.write("".join(lines).encode())

    @property
    def open_here(self) -> set[str]:
        """The conversations that are open here."""
        with self._lock:
            return set(self._ids)

    def elsewhere(self) -> set[str]:
        """The conversations that are open in other processes, which are alive."""
        return set[str]().union(*(ids for _, ids in self._alive()))

    @contextlib.contextmanager
    def orphaned(self) -> Generator[set[str]]:
        """The conversations of processes that are gone; told until somebody has dealt with them."""
        dead = [path for path, is_alive in self._others() if not is_alive]
        yield set[str]().union(*map(_ids_in, dead))
        for path in dead:
            path.unlink(missing_ok=True)

    def _alive(self) -> Iterator[tuple[Path, set[str]]]:
        """The other processes that are alive, each by its file, with what it has open."""
        for path, is_alive in self._others():
            if is_alive:
                yield path, _ids_in(path)

    def _others(self) -> Iterator[tuple[Path, bool]]:
        if not self._folder.is_dir():
            return
        for path in self._folder.glob("*.open"):
            if self._file is not None and path == self._file.path:
                continue
            with contextlib.suppress(FileNotFoundError):
                yield path, is_locked(path)


def _ids_in(path: Path) -> set[str]:
    with contextlib.suppress(FileNotFoundError):
        return set(path.read_text("utf-8", "replace").split("\n")) - {""}
    return set()
