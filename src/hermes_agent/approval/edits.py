"""Approval of changes in the workspace, with `approvals.edits = "ask"`.

Tools for files ask with the diff. Commands see the workspace read-only, unless the model asked for more
with `edits=true` and a person said yes. A yes that lasts is for all changes in that workspace.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from hermes_agent.approval.danger import Danger, places
from hermes_agent.approval.danger.kinds import EDITS_KEY
from hermes_agent.tools.base import Args, Tool, ToolContext
from hermes_core.settings import ApprovalSettings

ARGUMENT = "edits"
"""The argument of a tool for commands that asks for a workspace that can be written."""
_DESCRIBED = {"type": "boolean", "description": "asks the user to let it change the workspace"}


def with_argument(tool: Tool) -> Tool:
    """Return a tool for commands that can ask for a workspace that can be written."""
    properties: Mapping[str, Any] = tool.parameters["properties"]
    parameters = {**tool.parameters, "properties": {**properties, ARGUMENT: _DESCRIBED}}
    return msgspec.structs.replace(tool, parameters=parameters)


def dangers(
    settings: ApprovalSettings, tool: Tool, args: Args, bench: ToolContext, path: str
) -> list[Danger]:
    """Return what about a call needs an approval because it changes the workspace."""
    if settings.edits == "auto":
        return []
    key = _key(bench)
    if tool.writes and path and places.is_under(path, os.path.realpath(bench.workspace)):
        return [Danger("edits", f"Changes {path}", key, grant=key)]
    if args.get(ARGUMENT) is True and tool.runs_commands:
        return [Danger("edits", "May change any file in the workspace", key, grant=key)]
    if tool.runs_commands and not bench.processes.sandbox.holds_files:
        reason = "May change any file in the workspace, as no sandbox holds it"
        return [Danger("edits", reason, key, grant=key)]
    return []


def keeps_workspace(
    settings: ApprovalSettings,
    allowed: Sequence[Danger],
    granted: Collection[str],
    bench: ToolContext,
) -> bool:
    """Return whether commands of an admitted call only read the workspace."""
    is_asked = settings.edits == "ask" and settings.mode != "allow"
    return is_asked and _key(bench) not in {*granted, *(danger.grant for danger in allowed)}


def _key(bench: ToolContext) -> str:
    return f"{EDITS_KEY}{os.path.realpath(bench.workspace)}"
