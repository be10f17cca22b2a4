"""The registry of tools: the ones that come with Hermes, those of plugins, and what a model is offered.

The core is offered in every request, in a fixed order, so that the prefix stays the same; further tools
lie in toolsets that the model is told of by name (`toolbox`).
"""

import importlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, cast

import msgspec

from hermes_agent.approval import edits
from hermes_agent.approval.danger import Danger
from hermes_agent.models.base import MAX_SMALL_TOOLS, ToolSpec
from hermes_agent.permissions import Permissions
from hermes_agent.tools.base import Args, Call, Result, Tool, ToolContext
from hermes_agent.tools.toolbox import disclosure
from hermes_core.settings import Settings

_MODULES = (
    "terminal",
    "process",
    "read_file",
    "write_file",
    "patch",
    "search_files",
    "todo",
    "clarify",
    "web_fetch",
    "web_search",
    "session_search",
    "memory",
    "execute_code",
    "delegate",
)
"""One module per tool, named like it, in the order in which a model is told of them."""


class PluginTool(Protocol):
    """A tool as plugins register it."""

    @property
    def plugin(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...
    @property
    def handler(self) -> Callable[..., object]: ...
    @property
    def facts(self) -> Mapping[str, Any]: ...


def names() -> frozenset[str]:
    """Return the names of the tools that come with Hermes, without loading them."""
    return frozenset(_MODULES) | frozenset(tool.name for tool in disclosure({}))


def default_tools(settings: Settings) -> tuple[Tool, ...]:
    """The tools that come with Hermes, without those that the settings disable."""
    modules = (importlib.import_module(f"hermes_agent.tools.{name}") for name in _MODULES)
    tools = (cast("Tool", module.TOOL) for module in modules)
    if settings.approvals.edits == "ask":
        tools = (edits.with_argument(tool) if tool.runs_commands else tool for tool in tools)
    return tuple(tool for tool in tools if tool.name not in settings.tools.disabled)


def plugin_tools(registered: Mapping[str, PluginTool]) -> tuple[Tool, ...]:
    """The tools of plugins, each plugin's in a toolset of its name."""
    return tuple(_adapted(registered[name]) for name in sorted(registered))


def _adapted(record: PluginTool) -> Tool:
    def run(args: Args, call: Call) -> Result | str:
        call.stop.check()
        answer = record.handler(**args)
        if isinstance(answer, str | Result):
            return answer
        return msgspec.json.encode(answer, enc_hook=str).decode()

    def ask_first(_args: Args, _bench: ToolContext) -> Sequence[Danger]:
        reason = (
            f"Runs {record.name} of the plugin {record.plugin}, which may change or send things"
        )
        return [Danger("remote_code", reason, f"plugin:{record.plugin}:{record.name}")]

    facts = dict(record.facts)
    if not (facts.get("is_path") or facts.get("is_command")):
        facts.setdefault("reads", "outside")
    is_judged = any(record.facts.get(fact) for fact in ("read_only", "is_path", "is_command"))
    return Tool(
        name=record.name,
        description=record.description,
        parameters=record.parameters,
        run=run,
        dangers=None if is_judged else ask_first,
        toolset=record.plugin,
        **facts,
    )


class Toolbox:
    """The tools of a conversation, by name; an earlier one of two with the same name stays."""

    def __init__(self, tools: Iterable[Tool], disabled: Collection[str] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.name not in disabled:
                self._tools.setdefault(tool.name, tool)
        self._enabled = tuple(self._tools.values())
        if self.toolsets:
            for tool in disclosure(self.toolsets):
                self._tools.setdefault(tool.name, tool)

    def restricted_to(self, permissions: Permissions | None) -> "Toolbox":
        """The tools that somebody may use; what opens further toolsets opens these alone."""
        if permissions is None:
            return self
        allowed = permissions.tools
        return Toolbox(
            tool
            for tool in self._enabled
            if (allowed is None or tool.name in allowed)
            and (permissions.has_notes or not tool.reads_notes)
        )

    def get(self, name: str) -> Tool | None:
        """The tool of this name, of the core or of any toolset."""
        return self._tools.get(name)

    @cached_property
    def toolsets(self) -> dict[str, tuple[Tool, ...]]:
        """Return what is not in the core, by the name of its set."""
        further: dict[str, list[Tool]] = {}
        for tool in self._tools.values():
            if tool.toolset != "core":
                further.setdefault(tool.toolset, []).append(tool)
        return {name: tuple(tools) for name, tools in sorted(further.items())}

    @cached_property
    def core(self) -> tuple[ToolSpec, ...]:
        """Return what every request offers."""
        return tuple(tool.spec for tool in self._tools.values() if tool.toolset == "core")

    @cached_property
    def small(self) -> tuple[ToolSpec, ...]:
        """A few tools of one line each, for models that are weak at tools.

        When there are too many, the tools of plugins stay: somebody enabled them on purpose.
        """
        offered = [tool for tool in self._enabled if tool.small is not None]
        offered = offered or [tool for tool in self._enabled if tool.toolset == "core"]
        by_plugins_first = sorted(offered, key=lambda tool: tool.toolset == "core")
        chosen = by_plugins_first[:MAX_SMALL_TOOLS]
        return tuple(_one_line(tool) for tool in offered if tool in chosen)


def _one_line(tool: Tool) -> ToolSpec:
    text = tool.one_line or tool.description.partition(". ")[0].rstrip(".") + "."
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    names: Sequence[str] = tuple(properties) if tool.small is None else tool.small
    described = {name: _undescribed(properties[name]) for name in names if name in properties}
    required = tool.parameters.get("required", ()) if tool.small is None else tool.small
    schema = {"type": "object", "properties": described, "required": list(required)}
    return ToolSpec(tool.name, text, schema, tool.writes, tool.small_advice, tool.small_examples)


def _undescribed(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "description"}
