"""Power loss: what a disk holds when everything that was not synced is gone, or gone in part.

A file system between SQLite and the real one notes every write, sync, truncation, creation and
deletion. The real files play the page cache, which all connections see. From the notes follows what
the disk may hold at any moment: what was synced, and of the rest nothing, or any of its sectors.
Names of files are durable once their folder was synced, as SQLite does with a new journal or WAL.
"""

import random
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest import mock

import apsw

from hermes_state import SessionDB
from hermes_state.engines.sqlite import checkpoint
from tests.state import workload
from tests.state.workload import Expectation, Findings
from tests.support.worker import CHECKPOINT_PAGES

SECTOR = 512
"""What a disk writes whole or not at all."""


class Event(NamedTuple):
    """Something that happened to a file, or an acknowledgement (whose name is the thread's)."""

    kind: Literal["create", "write", "truncate", "sync", "delete", "acknowledged"]
    name: str
    at: int = 0
    """The offset of a write, the size of a truncation, whether the folder is synced too."""
    data: bytes = b""


# -- taking notes --------------------------------------------------------------------------------


class Notes:
    """What happened, in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self._lock = threading.Lock()

    def take(self, event: Event) -> None:
        """Add an event."""
        with self._lock:
            self.events.append(event)

    def name_of(self, filename: Any) -> str | None:
        """The name to note, or None for what is not a file of the store; the index is derived."""
        if filename is None:
            return None
        path = Path(filename if isinstance(filename, str) else filename.filename())
        return path.name if path.parent == self.folder and "-search." not in path.name else None


class NotedFile(apsw.VFSFile):
    """A file that notes what is done to it."""

    def __init__(self, base: str, filename: Any, flags: list[int], notes: Notes) -> None:
        self._notes = notes
        self._name = notes.name_of(filename)
        # A new journal or WAL: with its first sync SQLite syncs the folder.
        self._sync_folder = False
        if self._name is not None and not (notes.folder / self._name).exists():
            self._note("create")
            self._sync_folder = self._name.endswith(("-journal", "-wal"))
        super().__init__(base, filename, flags)

    def _note(self, kind: Any, at: int = 0, data: bytes = b"") -> None:
        if self._name is not None:
            self._notes.take(Event(kind, self._name, at, data))

    def xWrite(self, data: bytes, offset: int) -> None:
        self._note("write", offset, bytes(data))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self._note("truncate", newsize)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._note("sync", self._sync_folder)
        self._sync_folder = False


class NotingVFS(apsw.VFS):
    """The default file system, with notes taken."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._base = apsw.vfs_names()[0]
        super().__init__("hermes-notes", self._base, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return NotedFile(self._base, name, flags, self._notes)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        if (name := self._notes.name_of(filename)) is not None:
            self._notes.take(Event("delete", name, syncdir))
        super().xDelete(filename, syncdir)


@contextmanager
def noted(folder: Path) -> Generator[Notes]:
    """Take notes of all that happens to databases in a folder, for the length of a block."""
    notes = Notes(folder)
    vfs = NotingVFS(notes)
    try:
        yield notes
    finally:
        vfs.unregister()


def record(
    folder: Path,
    *,
    threads: int = 1,
    openings: int = 2,
    prepare: Callable[[SessionDB], None] = lambda _store: None,
) -> list[Event]:
    """Run scripts on a new store, which is closed and opened again in between; give the notes."""
    with noted(folder) as notes, mock.patch.object(checkpoint, "PAGES", CHECKPOINT_PAGES):
        for opening in range(openings):
            with SessionDB(folder / "state.db") as store:
                prepare(store)
                _run_scripts(store, notes, [f"o{opening}t{number}" for number in range(threads)])
        return notes.events


def _run_scripts(store: SessionDB, notes: Notes, names: list[str]) -> None:
    together = threading.Barrier(len(names))

    def run(name: str) -> None:
        together.wait(10)
        for _ in workload.conversation(store, f"{name}c0"):
            notes.take(Event("acknowledged", name))

    workers = [threading.Thread(target=run, args=(name,)) for name in names[1:]]
    for worker in workers:
        worker.start()
    run(names[0])
    for worker in workers:
        worker.join()


# -- what a disk may hold --------------------------------------------------------------------------


class _File:
    """A file: what of it is on the disk, and what is only in the page cache."""

    def __init__(self) -> None:
        self.durable = bytearray()
        self.pending: list[Event] = []

    def sync(self) -> None:
        for event in self.pending:
            _apply(self.durable, event)
        self.pending.clear()

    def content(self, keep: Callable[[], bool]) -> bytes:
        """What is there after a cut that keeps some of what was not synced."""
        content = bytearray(self.durable)
        for event in self.pending:
            for part in _sectors(event):
                if keep():
                    _apply(content, part)
        return bytes(content)


def _apply(content: bytearray, event: Event) -> None:
    if event.kind == "truncate":
        del content[event.at :]
        return
    content.extend(b"\0" * (event.at - len(content)))
    content[event.at : event.at + len(event.data)] = event.data


def _sectors(event: Event) -> Iterator[Event]:
    if event.kind == "truncate":
        yield event
        return
    begin, end = event.at, event.at + len(event.data)
    while begin < end:
        after = min(end, begin - begin % SECTOR + SECTOR)
        yield event._replace(at=begin, data=event.data[begin - event.at : after - event.at])
        begin = after


class Disk:
    """A folder as the page cache has it, and as the disk has it."""

    def __init__(self, name: str) -> None:
        # The store's own file is made, empty, before SQLite is asked.
        self._cached: dict[str, _File] = {name: _File()}
        self._durable: dict[str, _File] = {}
        self.acknowledged: dict[str, int] = {}

    def see(self, event: Event) -> None:
        """Let an event happen."""
        match event.kind:
            case "acknowledged":
                self.acknowledged[event.name] = self.acknowledged.get(event.name, 0) + 1
            case "create":
                self._cached[event.name] = _File()
            case "delete":
                self._cached.pop(event.name, None)
                self._sync_folder(event.at)
            case "sync":
                self._cached[event.name].sync()
                self._sync_folder(event.at)
            case "write" | "truncate":
                self._cached[event.name].pending.append(event)

    def _sync_folder(self, is_synced: int) -> None:
        if is_synced:
            self._durable = dict(self._cached)

    def after_cut(self, keep: Callable[[], bool] = lambda: False) -> dict[str, bytes]:
        """The files that are left; `keep` is asked for every sector and name that was not synced."""
        durable_files: dict[str, bytes] = {}
        for name in self._cached.keys() | self._durable.keys():
            durable, cached = self._durable.get(name), self._cached.get(name)
            file = cached if durable is not cached and keep() else durable
            if file is not None:
                durable_files[name] = file.content(keep)
        return durable_files


class Loss(NamedTuple):
    """What cuts did."""

    cuts: int
    found: Findings


def cut_everywhere(
    events: list[Event], folder: Path, *, seed: int | None = None, step: int = 1
) -> Loss:
    """Cut the power after every `step`th event and look at what is left.

    With a seed some of what was not synced is kept, by its dice; without, nothing is. Then only syncs
    and acknowledgements matter: between them the disk stays the same.
    """
    expected, disk, found, cuts = (
        Expectation(workload.undisturbed()),
        Disk("state.db"),
        Findings(),
        0,
    )
    for number, event in enumerate(events):
        disk.see(event)
        if number % step or (seed is None and event.kind in ("write", "truncate", "create")):
            continue
        cuts += 1
        place = folder / f"cut-{seed}-{number}"
        dice = random.Random(f"{seed}/{number}")
        chance = dice.choice((0.1, 0.5, 0.9))
        keep = (lambda: False) if seed is None else lambda d=dice, c=chance: d.random() < c
        findings = _look(disk, place, expected, keep)
        if not findings.is_clean:
            found.notes.append(f"seed {seed}, after event {number}: {event.kind} {event.name}")
        findings.acknowledged = 0  # the same ones at every cut: counted once, below
        found.add(findings)
    found.acknowledged = sum(disk.acknowledged.values())
    return Loss(cuts, found)


def _look(disk: Disk, place: Path, expected: Expectation, keep: Callable[[], bool]) -> Findings:
    place.mkdir()
    for name, content in disk.after_cut(keep).items():
        (place / name).write_bytes(content)
    found = workload.inspect(place / "state.db", disk.acknowledged, expected)
    for file in place.iterdir():
        file.unlink()
    place.rmdir()
    return found
