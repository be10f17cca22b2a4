"""Presence: which conversations are open in which living process, told by files that are locked.

A conversation is named by the session it began in, which it keeps. Of several processes that have it
open, the one that opened it first takes up what a process that is gone left unfinished in it. Nothing
here has to survive a power cut: then every process is gone, which is what missing files say.
"""

import contextlib
import fcntl
import os
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

from hermes_core.paths import alone_in, make_folder


class Presence:
    """The conversations this process has open, for others to see, and those that others have."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._ids: set[str] = set()
        self._before: dict[str, set[Path]] = {}
        """Who had a conversation open already when it was opened here."""
        self._path: Path | None = None
        self._descriptor = -1

    def add(self, conversation_id: str) -> None:
        """A conversation is open here."""
        with self._lock:
            if conversation_id not in self._ids:
                with alone_in(make_folder(self._folder)):  # of two at the same moment one is first
                    before = {path for path, ids in self._alive() if conversation_id in ids}
                    self._write({*self._ids, conversation_id})  # if it fails, it is not open here
                    self._before[conversation_id] = before
                    self._ids.add(conversation_id)

    def remove(self, conversation_id: str) -> None:
        """A conversation is not open here any more."""
        with self._lock:
            if conversation_id in self._ids:
                self._ids.discard(conversation_id)
                self._before.pop(conversation_id, None)
                with contextlib.suppress(OSError):  # the next one who is added tells it
                    self._write(self._ids)

    def close(self) -> None:
        """Nothing is open here any more."""
        with self._lock:
            self._ids.clear()
            self._before.clear()
            if self._path is not None:
                self._path.unlink(missing_ok=True)
                os.close(self._descriptor)
                self._path = None

    def _write(self, ids: set[str]) -> None:
        if self._path is None:
            self._claim()
        # The new list first, then the end of the old one: who reads in between reads too much, not less.
        text = "".join(f"{conversation_id}\n" for conversation_id in sorted(ids)).encode()
        os.pwrite(self._descriptor, text, 0)
        os.ftruncate(self._descriptor, len(text))

    def _claim(self) -> None:
        draft = make_folder(self._folder) / f"{os.getpid()}-{os.urandom(4).hex()}"
        self._descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        # Others look at the name it gets now: at no moment is it there without its lock.
        self._path = draft.rename(draft.with_suffix(".open"))

    @property
    def own(self) -> set[str]:
        """The conversations that are open here."""
        with self._lock:
            return set(self._ids)

    def is_first(self, conversation_id: str) -> bool:
        """Whether no process that is alive has had a conversation open for longer."""
        with self._lock:
            before = self._before.get(conversation_id, set[Path]())
        return not any(path in before and conversation_id in ids for path, ids in self._alive())

    def elsewhere(self) -> set[str]:
        """The conversations that are open in other processes, which are alive."""
        return set[str]().union(*(ids for _, ids in self._alive()))

    @contextlib.contextmanager
    def left_behind(self) -> Generator[set[str]]:
        """The conversations of processes that are gone; told until somebody has dealt with them."""
        gone = [path for path, is_alive in self._others() if not is_alive]
        yield set[str]().union(*map(_ids_in, gone))
        for path in gone:
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
            if path == self._path:
                continue
            with contextlib.suppress(FileNotFoundError):
                yield path, _is_locked(path)


def _is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            # Shared, so that two who look at the same time do not take each other for its owner.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _ids_in(path: Path) -> set[str]:
    with contextlib.suppress(FileNotFoundError):
        return set(path.read_text("utf-8", "replace").split("\n")) - {""}
    return set()
