"""Take the checkpoints of a conversation's turns, and note their lasting effects.

A checkpoint is taken before the first call of an attempt that may change something, and its other half
when the attempt ends. One that cannot be taken never stops the turn: it is noted as missing.
"""

import logging
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hermes_agent.approval.danger import places
from hermes_agent.approval.danger.kinds import Loss
from hermes_agent.turn.values import Turn
from hermes_core import clock
from hermes_core.errors import CheckpointError, StoreError
from hermes_core.paths import Home
from hermes_core.settings import ToolSettings
from hermes_core.text import without_surrogates
from hermes_state.ledger import checkpoints
from hermes_state.ledger.checkpoints import Kind
from hermes_state.store import Store

if TYPE_CHECKING:
    from hermes_agent.checkpoints.shadow import Shadow

logger = logging.getLogger(__name__)

_DAY_S = 86_400.0
_UPKEEP_INTERVAL_S = _DAY_S


class _Open(msgspec.Struct):
    """The checkpoint of the attempt that runs."""

    turn_id: str
    id: int | None = None
    """Of its row; None: nothing was recorded."""
    tree: str = ""
    """What the workspace held; empty: there is no checkpoint."""
    taken_at: float = 0.0
    """On the clock of the file system."""
    notes: Sequence[str] = ()
    forced: set[str] = msgspec.field(default_factory=set[str])
    """Ignored files that a file tool writes."""
    seen: set[str] = msgspec.field(default_factory=set[str])
    """Files that a file tool writes, and that were looked at."""


class Checkpoints:
    """Takes the checkpoints of one conversation; its sub-agents use those of the turn that sent them."""

    def __init__(self, store: Store, home: Home, workspace: Path, settings: ToolSettings) -> None:
        self._store = store
        self._home = home
        self._settings = settings
        self.workspace = os.path.realpath(workspace)
        self._lock = threading.RLock()
        self._shadow: Shadow | None = None
        self._open: _Open | None = None

    def begin(self, turn: Turn) -> None:
        """Take the checkpoint of this attempt, unless there is one.

        Raises Interrupted, LeaseLostError.
        """
        with self._lock:
            if self._open is not None:
                return
            current = _Open(turn.id)
            if self._settings.checkpoints:
                self._take(current, turn)
            self._open = current

    def _take(self, current: _Open, turn: Turn) -> None:
        """Store what the workspace holds, and the row of the checkpoint."""
        problem = self._unfit()
        try:
            if not problem:
                snapshot = self._opened().snapshot(stop=turn.stop)
                current.tree, current.notes = snapshot.tree, snapshot.notes
                current.taken_at = time.time()
        except (CheckpointError, OSError) as error:
            problem = str(error)
            logger.warning("turn %s: could not take a checkpoint: %s", turn.id, error)
        current.id = self._store.write(
            checkpoints.begin,
            turn.id,
            self.workspace,
            current.tree or None,
            [problem] if problem else current.notes,
            turn.lease,
        )

    def _unfit(self) -> str:
        """Say why this workspace has no checkpoints; empty when it has."""
        if without_surrogates(self.workspace) != self.workspace:
            return "The name of the workspace is not valid text, so no checkpoint is taken of it."
        folders = (os.path.realpath(self._home.root), os.path.realpath(places.own_home()))
        if any(places.is_under(folder, self.workspace) for folder in folders):
            return "The workspace holds a whole home, so no checkpoint is taken of it."
        return ""

    def before_write(self, path: str) -> None:
        """Add a file that a file tool is about to write to the checkpoint, though it may be ignored."""
        with self._lock:
            current = self._open
            if current is None or not current.tree or not places.is_under(path, self.workspace):
                return
            name = os.path.relpath(path, self.workspace)
            if name in current.seen:
                return
            current.seen.add(name)
            try:
                self._force(current, name)
            except (CheckpointError, OSError) as error:
                logger.warning("turn %s: %s is in no checkpoint: %s", current.turn_id, name, error)

    def _force(self, current: _Open, name: str) -> None:
        shadow = self._opened()
        if not shadow.is_ignored(name):
            return
        current.forced.add(name)
        current.tree = shadow.amended(current.tree, [name])
        assert current.id is not None
        self._store.write(checkpoints.amend, current.id, current.tree)

    def covers(self, loss: Loss) -> bool:
        """Return whether all of a loss can be restored after this turn."""
        with self._lock:
            current = self._open
            if current is None or not current.tree:
                return False
            try:
                return all(self._covers(current, path, loss) for path in loss.paths)
            except (CheckpointError, OSError) as error:
                logger.warning("Cannot tell what is in the checkpoint: %s", error)
                return False

    def _covers(self, current: _Open, path: str, loss: Loss) -> bool:
        if not places.is_under(path, self.workspace):
            return False
        name = os.path.relpath(path, self.workspace)
        if loss.is_tracked:
            return self._opened().covers_tracked(name)
        shadow = self._opened()
        return shadow.covers(name) or shadow.is_new(name, current.taken_at)

    def note_effect(self, turn: Turn, call_id: str, tool: str, kind: Kind, detail: str) -> None:
        """Note an effect that restoring files does not undo."""
        with self._lock:
            turn_id = self._open.turn_id if self._open is not None else turn.id
        self._store.write(checkpoints.note_effect, turn_id, call_id, tool, kind, detail)

    def end(self, turn: Turn) -> None:
        """Record what the workspace holds at the end of an attempt."""
        with self._lock:
            current = self._open
            if current is None or current.turn_id != turn.id:
                return
            self._open = None
            if current.id is None or not current.tree:
                return
            after, notes = None, current.notes
            try:
                snapshot = self._opened().snapshot(current.forced)
                after, notes = snapshot.tree, list(dict.fromkeys([*current.notes, *snapshot.notes]))
            except (CheckpointError, OSError) as error:
                logger.warning("turn %s: could not complete its checkpoint: %s", turn.id, error)
                notes = [*notes, str(error)]
            try:
                self._store.write(checkpoints.end, current.id, after, notes)
            except StoreError as error:  # the next attempt, or the undo, completes it
                logger.warning("turn %s: could not store its checkpoint: %s", turn.id, error)
        self._start_upkeep()

    def _opened(self) -> "Shadow":
        if self._shadow is None:
            self._shadow = self._new_shadow()
        return self._shadow

    def _new_shadow(self) -> "Shadow":
        from hermes_agent.checkpoints.shadow import Shadow  # noqa: PLC0415 -- most turns write nothing

        return Shadow(self._home, Path(self.workspace), self._settings)

    def _start_upkeep(self) -> None:
        """Delete old checkpoints once a day, beside other work."""
        marker = self._opened().folder / "pruned"
        with self._lock:
            try:
                is_due = clock.now() - marker.stat().st_mtime > _UPKEEP_INTERVAL_S
            except FileNotFoundError:
                is_due = False  # a new repository
                marker.touch()
            if is_due:
                marker.touch()
        if is_due:
            work = threading.Thread(target=self.prune, name="checkpoint-upkeep", daemon=True)
            work.start()

    def prune(self) -> None:
        """Delete checkpoints that are too old, and what they alone needed."""
        since = clock.now() - self._settings.checkpoint_days * _DAY_S
        try:
            self._store.write(checkpoints.expire, since)
            shadow = self._new_shadow()
            try:
                shadow.prune(self._store.read(checkpoints.trees, self.workspace), since)
            finally:
                shadow.close()
        except (CheckpointError, StoreError, OSError) as error:
            logger.warning("Could not prune the checkpoints of %s: %s", self.workspace, error)

    def close(self) -> None:
        """Delete what is private to the sandbox of git."""
        with self._lock:
            if self._shadow is not None:
                self._shadow.close()
                self._shadow = None
