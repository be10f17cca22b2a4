"""`delegate`: have a sub-agent with its own budget do a task and report."""

from hermes_agent.tools import schema
from hermes_agent.tools.base import Args, Call, Result, Tool
from hermes_core.errors import ToolError

_A_DAY_S = 24 * 3600.0


def _run(args: Args, call: Call) -> Result:
    task = args["task"].strip()
    if not task:
        raise ToolError("The task is empty.", fix="Describe the task.")
    return call.delegate(task, args.get("context", ""))


TOOL = Tool(
    name="delegate",
    description=(
        "Give a sub-agent a task and get its report. It sees nothing of this conversation:"
        " say all it needs in task and context."
    ),
    parameters=schema.of(["task"], task="", context=""),
    run=_run,
    subject="task",
    resumes=True,
    timeout_s=_A_DAY_S,
    toolset="delegation",
)
