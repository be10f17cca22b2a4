"""Tell which effects of a call restoring files does not undo, from what the gate allowed."""

from collections.abc import Iterator

from hermes_agent.approval.gate import Permit
from hermes_agent.sandbox.sandboxes import Host
from hermes_agent.tools.base import Tool, ToolContext
from hermes_core.text import shorten_middle
from hermes_state.ledger.checkpoints import Kind

_FILES = ("write_file", "patch")
_OTHERS = ("delegate", "call_tool")
"""Tools whose own calls are judged by themselves."""
_MAX_DETAIL = 200


def lasting_effects(tool: Tool, permit: Permit, bench: ToolContext) -> Iterator[tuple[Kind, str]]:
    """Yield the kind and the description of each effect that lasts, or may last."""
    subject = shorten_middle(permit.subject, _MAX_DETAIL)
    access = permit.access
    for host in access.hosts:
        yield "host", host
    for path in access.writes:
        yield "outside", path
    if tool.runs_commands or tool.name == "process":
        if access.unconfined or isinstance(bench.processes.sandbox, Host):
            yield "unconfined", subject
        elif bench.settings.tools.network == "open":
            yield "other", "commands had the network; which hosts they reached is not known"
    elif tool.name not in (*_FILES, *_OTHERS):
        yield "other", subject or "what it did is not known"
