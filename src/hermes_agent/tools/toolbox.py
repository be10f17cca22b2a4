"""Further tools on demand: `more_tools` shows the schemas of a set, `call_tool` runs one of its tools.

The request's list of tools never changes, so that the provider's cache of the prefix holds; the schemas
come as a result, in the transcript.
"""

from collections.abc import Mapping, Sequence

import msgspec

from hermes_agent.models.arguments import parse
from hermes_agent.tools import schema
from hermes_agent.tools.base import Args, Call, Result, Tool
from hermes_core.errors import ToolError


def disclosure(toolsets: Mapping[str, Sequence[Tool]]) -> tuple[Tool, Tool]:
    """The two tools that open these sets."""

    def show(args: Args, _call: Call) -> str:
        return "\n".join(_described(tool) for tool in toolsets[args["toolset"]])

    def run(args: Args, call: Call) -> Result:
        name = args["name"]
        if name not in {tool.name for tools in toolsets.values() for tool in tools}:
            names = ", ".join(tool.name for tools in toolsets.values() for tool in tools)
            raise ToolError(f"There is no further tool {name!r}.", fix=f"There are: {names}.")
        return call.run_tool(name, args.get("arguments", {}))

    more_tools = Tool(
        name="more_tools",
        description="Show the tools of a further toolset, with their arguments.",
        parameters=schema.of(["toolset"], toolset={"type": "string", "enum": list(toolsets)}),
        run=show,
        read_only=True,
    )
    call_tool = Tool(
        name="call_tool",
        description="Run a tool of a further toolset; see more_tools first.",
        parameters=schema.of(["name"], name="", arguments={"type": "object"}),
        run=run,
        inner=_named,
        timeout_s=max(
            (tool.timeout_s for tools in toolsets.values() for tool in tools), default=0.0
        ),
    )
    return more_tools, call_tool


def _named(arguments: str) -> str:
    """The tool that a call of `call_tool` is about; nothing when that cannot be read."""
    try:
        return str(parse(arguments).get("name", ""))
    except ToolError:
        return ""


def _described(tool: Tool) -> str:
    parameters = msgspec.json.encode(tool.parameters).decode()
    return f"{tool.name}: {tool.description}\n  arguments: {parameters}"
