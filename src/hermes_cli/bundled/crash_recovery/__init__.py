"""Crash recovery, an example plugin: a journal of open conversations.

It writes a note when a conversation starts and removes it at the end, so a killed process leaves its
notes behind. Each process holds a lock, which tells lost conversations from open ones.

On a terminal, a conversation is open until the user quits. In messengers and over HTTP, it is open while
a turn runs.
"""

import hashlib
import os
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import click
import msgspec

from hermes_cli.commands import table
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_cli.commands.table import Column
from hermes_cli.plugins import PluginContext
from hermes_core import clock
from hermes_core.locks import LockFile, is_locked
from hermes_core.paths import make_folder, write_private

_TERMINALS = frozenset({"cli", "tui"})


class Note(msgspec.Struct, frozen=True):
    """An open conversation."""

    session_id: str
    platform: str
    model: str
    noted_at: float
    owner: str
    """The name of the lock of its process."""
    interrupted: bool = False
    """Whether it was interrupted."""


@dataclass
class Journal:
    """The notes of every process that uses this home."""

    root: Path
    _owner: str = ""
    _lost: set[str] = field(default_factory=set[str])
    """Conversations that this process is closing for one that was killed."""
    _claiming: threading.Lock = field(default_factory=threading.Lock)

    def open(self, session_id: str, model: str = "", platform: str = "") -> None:
        """Note a conversation as open in this process, unless it is noted already."""
        note = self.read(session_id)
        if note is None or note.interrupted or note.owner != self.owner:
            self._write(Note(session_id, platform, model, clock.now(), self.owner))

    def interrupt(self, session_id: str, model: str = "", platform: str = "") -> None:
        """Note that a conversation was interrupted, unless it is lost."""
        if session_id not in self._lost:
            note = Note(session_id, platform, model, clock.now(), self.owner, interrupted=True)
            self._write(note)

    def keep(self, session_id: str) -> None:
        """Keep the note of a conversation that is closed here because its process was killed."""
        self._lost.add(session_id)

    def finalize(self, session_id: str) -> None:
        """Remove the note of a conversation that is over, unless it is lost."""
        if session_id in self._lost:
            self._lost.discard(session_id)
        else:
            self.clear(session_id)

    def move(self, old: str, new: str) -> None:
        """Move a note to the new id of its conversation; one of the two always exists."""
        if (note := self.read(old)) is not None:
            self._write(msgspec.structs.replace(note, session_id=new))
            self.clear(old)

    def clear(self, session_id: str) -> None:
        """Remove the note of a conversation."""
        self._path(session_id).unlink(missing_ok=True)

    def read(self, session_id: str) -> Note | None:
        """Return the note of a conversation, or None."""
        return _decoded(self._path(session_id))

    def cut_off(self) -> list[Note]:
        """Return the conversations that did not end properly, latest first."""
        notes = (n for n in self._notes() if n.interrupted or not self._is_running(n.owner))
        return sorted(notes, key=lambda note: -note.noted_at)

    @property
    def owner(self) -> str:
        """The name of this process's lock, which it holds until it ends."""
        with self._claiming:
            if not self._owner:
                folder = make_folder(self.root / "running")
                lock = LockFile(folder / f"{os.getpid()}-{os.urandom(4).hex()}.lock")
                lock.create()
                weakref.finalize(self, lock.release, remove=True)  # also at a normal exit
                self._owner = lock.path.name
        return self._owner

    def _is_running(self, owner: str) -> bool:
        path = self.root / "running" / Path(owner).name
        if owner == self._owner:
            return True
        try:
            if is_locked(path):
                return True
        except FileNotFoundError:
            return False
        path.unlink(missing_ok=True)
        return False

    def _notes(self) -> Iterator[Note]:
        for path in make_folder(self.root / "open").glob("*.json"):
            if (note := _decoded(path)) is not None:
                yield note

    def _write(self, note: Note) -> None:
        write_private(self._path(note.session_id), msgspec.json.encode(note).decode())

    def _path(self, session_id: str) -> Path:
        # An id may be any text; its digest is always a valid file name.
        return self.root / "open" / f"{hashlib.sha256(session_id.encode()).hexdigest()[:32]}.json"


def _decoded(path: Path) -> Note | None:
    """Read the note in a file; return None if it is missing or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Note)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def register(ctx: PluginContext) -> None:
    """Register the hooks and `hermes recovery`."""
    journal = Journal(ctx.data_dir)

    @ctx.hook("on_session_start")
    def note_new(session_id: str, model: str, platform: str) -> None:
        if platform in _TERMINALS:
            journal.open(session_id, model, platform)

    @ctx.hook("on_turn_start")
    def note_resumed(session_id: str, model: str, platform: str) -> None:
        journal.open(session_id, model, platform)

    @ctx.hook("on_turn_end")
    def note_answered(session_id: str, platform: str) -> None:
        if platform not in _TERMINALS:
            journal.clear(session_id)

    @ctx.hook("on_session_end")
    def note_end(
        session_id: str, completed: bool, interrupted: bool, model: str, platform: str
    ) -> None:
        if completed and not interrupted:
            journal.clear(session_id)
        else:
            journal.interrupt(session_id, model, platform)

    @ctx.hook("post_compaction")
    def follow(old_session_id: str, new_session_id: str) -> None:
        journal.move(old_session_id, new_session_id)

    ctx.hook("on_session_lost", journal.keep)
    ctx.hook("on_session_finalize", journal.finalize)
    # A session that was reset is empty: there is nothing to recover before its first turn.
    ctx.hook("on_session_reset", journal.clear)
    ctx.cli_command(_recovery(journal))


def _recovery(journal: Journal) -> click.Group:
    @click.group("recovery", invoke_without_command=True)
    @json_option
    @click.pass_context
    def recovery(ctx: click.Context) -> None:
        """List conversations that did not end properly."""
        if ctx.invoked_subcommand is None:
            ctx.invoke(show)

    @recovery.command("list")
    @json_option
    @pass_app
    def show(app: App) -> None:
        """List interrupted and lost conversations, and how to continue them."""
        notes = journal.cut_off()
        if app.as_json:
            app.emit([_described(note) for note in notes])
        elif notes:
            columns = ("ID", "WHEN", "HOW", Column("WHERE", wraps=True), "CONTINUE WITH")
            table.show(app, columns, map(_row, notes))
        else:
            app.say("Every conversation ended properly.")

    @recovery.command("clear")
    @click.argument("session_ids", metavar="[SESSION]...", nargs=-1)
    @json_option
    @pass_app
    def clear(app: App, session_ids: tuple[str, ...]) -> None:
        """Remove the named conversations, or all, from the list; the store keeps them."""
        noted = [note.session_id for note in journal.cut_off()]
        chosen = [name for name in session_ids or noted if name in noted]
        for session_id in chosen:
            journal.clear(session_id)
        if app.as_json:
            app.emit({"cleared": chosen})
        app.say(f"Removed {len(chosen)} of {len(noted)}.")

    return recovery


def _row(note: Note) -> tuple[str, ...]:
    found = {**_described(note), "noted_at": clock.local(note.noted_at)}
    return tuple(found.values())


def _described(note: Note) -> dict[str, str]:
    how: Literal["interrupted", "lost"] = "interrupted" if note.interrupted else "lost"
    when = datetime.fromtimestamp(note.noted_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "session_id": note.session_id,
        "noted_at": when,
        "how": how,
        "platform": note.platform,
        "resume": f"hermes chat --resume {note.session_id}",
    }
