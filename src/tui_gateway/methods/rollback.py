"""Methods for checkpoints: what turns changed in files, and the way back."""

from typing import Annotated, TypedDict

from hermes_agent import lease
from hermes_agent.checkpoints import undo
from hermes_core.text import one_line, truncate
from hermes_protocol.errors import BAD_ARGUMENT
from hermes_state.ledger import checkpoints, lineage, turns
from hermes_state.values import Row
from tui_gateway import info, prompts
from tui_gateway.params import Session, says
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import LiveSession, Runtime


class Checkpoint(TypedDict):
    """A state of the workspace before a turn that changed files; `hash` names it."""

    hash: str
    timestamp: float
    message: str


class Listed(TypedDict):
    """The checkpoints that can be restored, newest first."""

    enabled: bool
    checkpoints: list[Checkpoint]


class CheckpointParams(Session, frozen=True):
    """A checkpoint of an open session."""

    hash: Annotated[str, says("The checkpoint, from `rollback.list`.")]


class Difference(TypedDict):
    """The changes of files that the turns since a checkpoint made."""

    stat: str
    diff: str


class Restore(CheckpointParams, frozen=True):
    """The files to restore."""

    file_path: Annotated[str, says("Only this file, relative to the workspace.")] = ""


class Restored(TypedDict):
    """The files that were restored, and those that stay as they are; messages stay."""

    success: bool
    message: str
    restored: list[str]
    conflicts: list[str]


def list_(rt: Runtime, params: Session) -> Listed:
    """List the checkpoints of the conversation whose files are not restored yet."""
    rows = _rows(rt, rt.session(params.session_id))
    found: list[Checkpoint] = [
        {"hash": str(row["id"]), "timestamp": row["taken_at"], "message": _message(rt, row)}
        for row in rows
        if row["before"] != row["after"]
    ]
    return {"enabled": rt.settings.tools.checkpoints, "checkpoints": found}


def diff(rt: Runtime, params: CheckpointParams) -> Difference:
    """Compare the files as they are with what a checkpoint and its successors would restore."""
    rows = _since(_rows(rt, rt.session(params.session_id)), params.hash)
    plans = undo.plans(rt.db(), rt.home, rt.settings.tools, rows, apply=False)
    texts: list[str] = []
    for plan in plans:
        if plan.changes:
            with undo.FileUndo(rt.db(), rt.home, rt.settings.tools, plan.workspace) as files:
                texts.append(files.diff(plan))
    return {"stat": undo.describe(plans, [], done=False), "diff": "".join(texts)}


def restore(rt: Runtime, params: Restore) -> Restored:
    """Restore the files of a checkpoint and of all later ones; what was edited since is kept."""
    session = rt.session(params.session_id)
    prompts.check_idle(rt, session)
    rows = _since(_rows(rt, session), params.hash)
    root = rows[0]["conversation_id"]
    with lease.held(rt.db(), root, lambda: None):
        plans = undo.plans(
            rt.db(), rt.home, rt.settings.tools, rows, apply=True, only=params.file_path
        )
    since = min(row["user_message_id"] for row in rows)
    effects = rt.db().read(checkpoints.effects_since, root, since)
    return {
        "success": not any(plan.missing for plan in plans),
        "message": undo.describe(plans, effects, done=True),
        "restored": [undo.display_path(change.path) for plan in plans for change in plan.changes],
        "conflicts": [
            undo.display_path(conflict.path) for plan in plans for conflict in plan.conflicts
        ],
    }


def _rows(rt: Runtime, session: LiveSession) -> list[Row]:
    root = rt.db().read(lineage.root, info.key_of(session))
    return rt.db().read(checkpoints.since, root, 0)


def _message(rt: Runtime, row: Row) -> str:
    return truncate(one_line(rt.db().read(turns.user_text, row["turn_id"])), 80)


def _since(rows: list[Row], name: str) -> list[Row]:
    """Return a checkpoint and all later ones; raises RpcError when there is none of this name."""
    found = [row for row in rows if name.isdecimal() and row["id"] >= int(name)]
    if not found or str(found[-1]["id"]) != name:
        raise RpcError(BAD_ARGUMENT, "There is no such checkpoint.", fix="See rollback.list.")
    return found
