"""Restore the files that turns changed, keep what was edited since, and list what stays.

A path is restored when it still holds what the turn left there. One that somebody edited since, or that
a turn of another conversation changed at the same time, stays as it is and is reported.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from hermes_agent.checkpoints import entries
from hermes_agent.checkpoints.entries import Entry
from hermes_agent.checkpoints.shadow import Shadow
from hermes_agent.tools import files
from hermes_core import clock
from hermes_core.errors import CheckpointError
from hermes_core.paths import Home
from hermes_core.settings import ToolSettings
from hermes_core.text import counted, one_line, without_surrogates
from hermes_state.ledger import checkpoints
from hermes_state.store import Store
from hermes_state.values import Row

_MAX_LISTED = 20
_EDITED = "it was edited since"
_BESIDE = "another conversation worked here at the same time"
_LOST = "what it held is not kept"


class FileChange(NamedTuple):
    """A path to restore: what lies there, and what lay there before."""

    path: str
    now: Entry | None
    before: Entry | None

    @property
    def verb(self) -> str:
        if self.before is None:
            return "delete"
        return "bring back" if self.now is None else "restore"


class Conflict(NamedTuple):
    """A path that a turn changed and that stays as it is, and why."""

    path: str
    reason: str


class Plan(msgspec.Struct):
    """Describes what restoring the files of some turns does."""

    workspace: str
    rows: list[Row]
    """The checkpoints, newest first."""
    changes: list[FileChange] = msgspec.field(default_factory=list[FileChange])
    conflicts: list[Conflict] = msgspec.field(default_factory=list[Conflict])
    missing: list[str] = msgspec.field(default_factory=list[str])
    """Why files of some turns cannot be restored."""
    notes: list[str] = msgspec.field(default_factory=list[str])
    """What the checkpoints do not hold."""
    saved: str = ""
    """How to get at the files as they were before this undo; empty until it is done."""


class FileUndo:
    """Restores files in one workspace."""

    def __init__(self, store: Store, home: Home, settings: ToolSettings, workspace: str) -> None:
        """Raises CheckpointError where there is no git."""
        self._store = store
        self._workspace = workspace
        if not Path(workspace).is_dir():
            raise CheckpointError(f"The folder {workspace} is gone.")
        self._shadow = Shadow(home, Path(workspace), settings)

    def __enter__(self) -> "FileUndo":
        return self

    def __exit__(self, *_exception: object) -> None:
        self._shadow.close()

    def plan(self, rows: Sequence[Row]) -> Plan:
        """Say what restoring the files of these checkpoints, newest first, would do."""
        plan = Plan(self._workspace, [self._completed(row) for row in rows])
        state: dict[str, Entry | None] = {}
        now: dict[str, Entry | None] = {}
        reasons: dict[str, str] = {}
        for row in plan.rows:
            plan.notes += [note for note in row["notes"] if note not in plan.notes]
            if row["before"] is None or row["after"] is None:
                plan.missing.append("; ".join(row["notes"]) or "The checkpoint was not completed.")
                continue
            beside = self._changed_beside(row)
            for change in self._shadow.changes(row["before"], row["after"]):
                path = change.path
                if path not in now:
                    now[path] = state[path] = self._current(path)
                if path in reasons:
                    continue
                if path in beside:
                    reasons[path] = _BESIDE
                elif state[path] == change.after:
                    state[path] = change.before
                elif state[path] != change.before:
                    reasons[path] = _EDITED
        changes = [(path, entry) for path, entry in state.items() if entry != now[path]]
        lost = self._lost({entry.id for _, entry in changes if entry is not None})
        reasons |= {path: _LOST for path, entry in changes if entry and entry.id in lost}
        plan.conflicts = [Conflict(path, reason) for path, reason in reasons.items()]
        plan.changes = [
            FileChange(path, now[path], entry)
            for path, entry in changes
            if entry is None or entry.id not in lost
        ]
        plan.notes = [] if plan.missing and not plan.changes else plan.notes
        return plan

    def _lost(self, ids: set[str]) -> set[str]:
        """Return the ids whose contents were too large to be kept, or are gone."""
        contents = self._shadow.contents(ids)
        return ids - {name for name, data in contents if not entries.is_placeholder(data)}

    def _current(self, path: str) -> Entry | None:
        return entries.read(self._workspace, path, self._shadow.max_bytes)

    def _completed(self, row: Row) -> Row:
        """Take the other half of a checkpoint whose process was killed."""
        if row["before"] is None or row["ended_at"] is not None:
            return row
        snapshot = self._shadow.snapshot()
        self._store.write(checkpoints.end, row["id"], snapshot.tree, snapshot.notes)
        note = "A process was killed: what was edited since counts as changed by its turn"
        return {
            **row,
            "after": snapshot.tree,
            "ended_at": clock.now(),
            "notes": [*row["notes"], note],
        }

    def _changed_beside(self, row: Row) -> set[str]:
        """Return the paths that turns of other conversations changed at the same time."""
        paths: set[str] = set()
        for other in self._store.read(checkpoints.beside, row):
            after = other["after"] or self._shadow.snapshot().tree
            paths.update(change.path for change in self._shadow.changes(other["before"], after))
        return paths

    def apply(self, plan: Plan, only: str = "") -> Plan:
        """Restore the files of a plan, or `only` one, and mark its checkpoints as restored if all.

        What lay there is stored first. Returns what was done.
        """
        if only:
            plan.changes = [change for change in plan.changes if change.path == only]
            plan.conflicts = [conflict for conflict in plan.conflicts if conflict.path == only]
        if plan.changes:
            plan.saved = self._save()
        done: list[FileChange] = []
        failed = {change.path: _LOST for change in plan.changes if change.before is not None}
        for change in _deletions(plan.changes):
            self._restore(change, b"", done, failed)
        by_id: dict[str, list[FileChange]] = {}
        for change in plan.changes:
            if change.before is not None:
                by_id.setdefault(change.before.id, []).append(change)
        for name, data in self._shadow.contents(by_id):
            for change in by_id[name]:
                self._restore(change, data, done, failed)
        plan.conflicts += [Conflict(path, reason) for path, reason in failed.items()]
        plan.changes = sorted(done)
        if not only:
            self._store.write(checkpoints.mark_restored, [row["id"] for row in plan.rows])
        return plan

    def _restore(
        self, change: FileChange, data: bytes, done: list[FileChange], failed: dict[str, str]
    ) -> None:
        failed.pop(change.path, None)
        if self._current(change.path) != change.now:
            failed[change.path] = _EDITED
            return
        try:
            if change.before is None:
                entries.remove(self._workspace, change.path)
            else:
                entries.write(self._workspace, change.path, change.before, data)
        except OSError as error:
            failed[change.path] = f"it cannot be written: {error.strerror}"
        else:
            done.append(change)

    def _save(self) -> str:
        tree = self._shadow.snapshot().tree
        name = f"{clock.now():.0f}-{os.urandom(3).hex()}"
        self._shadow.keep(name, tree)
        return f"git --git-dir {self._shadow.folder} archive refs/undo/{name} | tar x"

    def diff(self, plan: Plan) -> str:
        """Compare the files as they are with what a plan would make of them."""
        self._shadow.snapshot()  # so that what lies there has contents by its ids, too
        sides = [(change.path, change.now, change.before) for change in plan.changes]
        ids = {entry.id for _, *pair in sides for entry in pair if entry is not None}
        texts = {
            name: "(binary)\n" if files.is_binary(data) else data.decode("utf-8", "replace")
            for name, data in self._shadow.contents(ids)
        }
        return "".join(
            files.diff(
                display_path(path),
                texts.get(now.id, "") if now else "",
                texts.get(then.id, "") if then else "",
            )
            for path, now, then in sides
        )


def _deletions(changes: Sequence[FileChange]) -> list[FileChange]:
    """Return the files to delete, the deepest first; they come before files that take their place."""
    return sorted((change for change in changes if change.before is None), reverse=True)


def plans(
    store: Store,
    home: Home,
    settings: ToolSettings,
    rows: Sequence[Row],
    *,
    apply: bool,
    only: str = "",
) -> list[Plan]:
    """Plan, or do, the undo of checkpoints, one workspace after the other."""
    found: list[Plan] = []
    for workspace in dict.fromkeys(row["workspace"] for row in rows):
        own = [row for row in rows if row["workspace"] == workspace]
        try:
            with FileUndo(store, home, settings, workspace) as undo:
                plan = undo.plan(own)
                found.append(undo.apply(plan, only) if apply else plan)
        except CheckpointError as error:
            found.append(Plan(workspace, own, missing=[str(error)]))
    return found


def describe(
    found: Sequence[Plan], effects: Sequence[Row], *, done: bool, shows_paths: bool = True
) -> str:
    """Return what a person reads about an undo of files."""
    lines: list[str] = []
    for plan in found:
        if plan.changes:
            lead = "Restored" if done else "Would restore"
            place = f" in {plan.workspace}" if shows_paths else ""
            lines += [f"{lead} {counted(len(plan.changes), 'file')}{place}:"]
            lines += _listed(
                f"{change.verb} {display_path(change.path)}" for change in plan.changes
            )
        if plan.conflicts:
            lines += ["These stay as they are:"]
            lines += _listed(
                f"{display_path(conflict.path)}: {conflict.reason}" for conflict in plan.conflicts
            )
        lines += [f"Not restored: {reason}" for reason in dict.fromkeys(plan.missing)]
        lines += [f"Not in the checkpoint: {note}" for note in plan.notes]
        if plan.saved and shows_paths:
            lines += [f"The files as they were before this undo: {plan.saved}"]
    if not any(plan.changes or plan.conflicts or plan.missing for plan in found):
        lines += ["No files were changed that can be restored."]
    if effects:
        lines += ["These effects stay:"]
        lines += _listed(_effect_line(row) for row in effects)
    return "\n".join(lines)


_KINDS = {
    "host": "{tool} had access to {detail}",
    "outside": "{tool} could write {detail}",
    "unconfined": "{tool} ran without a sandbox: {detail}",
    "other": "{tool}: {detail}",
}


def _effect_line(row: Row) -> str:
    return _KINDS[row["kind"]].format(tool=row["tool_name"], detail=one_line(row["detail"])[:200])


def display_path(path: str) -> str:
    """Return a path as a person reads it; its name may be any bytes."""
    return one_line(without_surrogates(path))


def _listed(items: Iterable[str]) -> list[str]:
    texts = list(dict.fromkeys(items))
    lines = [f"• {text}" for text in texts[:_MAX_LISTED]]
    rest = len(texts) - _MAX_LISTED
    return [*lines, f"• and {rest} more"] if rest > 0 else lines
