"""PluginContext, which plugins register with, and the records of registrations.

Registrations of a plugin take effect together when its `register` returns, so a plugin that fails leaves
nothing behind.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

import msgspec

from hermes_cli import hookspecs, plugin_names
from hermes_cli.plugin_calls import guarded
from hermes_cli.plugin_names import Kind
from hermes_cli.plugin_sources import NAME
from hermes_core.errors import PluginError
from hermes_core.paths import Home, make_folder
from hermes_core.slash_commands import SURFACES, Surface

if TYPE_CHECKING:
    import inspect

    import click

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

Function = TypeVar("Function", bound=Callable[..., object])


class ToolFacts(TypedDict, total=False):
    """Optional facts about a tool."""

    read_only: bool
    """Changes and sends nothing: runs without approval, in parallel, and again after a crash."""
    subject: str
    """The argument that people see and that patterns of the policy match."""
    is_path: bool
    """The subject is a file path: outside of the workspace it needs an approval."""
    is_command: bool
    """The subject is a shell command line: a dangerous one needs an approval."""
    writes: bool
    """Changes files."""
    reads: Literal["outside", "private", ""]
    """The taint of its results: outside text (the default, except of a path), private data, or none."""
    small: Sequence[str]
    """The arguments for small models; without it, small models do not get the tool."""
    one_line: str
    """The description for small models."""
    timeout_s: float
    """Seconds after which the tool counts as failed."""


class Callback(NamedTuple):
    """A callback of a hook."""

    plugin: str
    function: Callable[..., object]
    arguments: frozenset[str] | None
    """The arguments it declares; None for all."""


class Tool(msgspec.Struct, frozen=True):
    """A tool of a plugin."""

    plugin: str
    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of the arguments."""

    handler: Callable[..., object]
    facts: Mapping[str, Any]
    """The `ToolFacts` that it declares."""


class Command(msgspec.Struct, frozen=True):
    """A slash command of a plugin."""

    plugin: str
    name: str
    description: str
    handler: Callable[..., object]
    argument: str = ""
    """Placeholder for the argument in the help."""
    surfaces: frozenset[Surface] = SURFACES
    """The surfaces that have it."""


class FactoryRecord(msgspec.Struct, frozen=True):
    """A model, platform or memory provider, created by its factory when chosen."""

    plugin: str
    name: str
    description: str
    factory: Callable[..., object]


class ProviderRecord(msgspec.Struct, frozen=True):
    """A provider of models."""

    plugin: str
    name: str
    provider: Any
    """A `hermes_agent.models.providers.Provider`."""


class CliCommand(msgspec.Struct, frozen=True):
    """A sub-command of `hermes`."""

    plugin: str
    name: str
    command: "click.Command"


Record = Tool | Command | FactoryRecord | ProviderRecord | CliCommand


class Registrations(msgspec.Struct):
    """Registrations of one plugin, or of all."""

    hooks: list[tuple[str, Callback]] = msgspec.field(default_factory=list[tuple[str, Callback]])
    tools: dict[str, Tool] = msgspec.field(default_factory=dict[str, Tool])
    commands: dict[str, Command] = msgspec.field(default_factory=dict[str, Command])
    models: dict[str, FactoryRecord] = msgspec.field(default_factory=dict[str, FactoryRecord])
    providers: dict[str, ProviderRecord] = msgspec.field(default_factory=dict[str, ProviderRecord])
    platforms: dict[str, FactoryRecord] = msgspec.field(default_factory=dict[str, FactoryRecord])
    memory_providers: dict[str, FactoryRecord] = msgspec.field(
        default_factory=dict[str, FactoryRecord]
    )
    cli_commands: dict[str, CliCommand] = msgspec.field(default_factory=dict[str, CliCommand])

    def merged_with(self, other: "Registrations") -> "Registrations":
        """Merge two registrations. Raises PluginError for a duplicate name."""
        return Registrations(
            [*self.hooks, *other.hooks],
            _merged("tool", self.tools, other.tools),
            _merged("command", self.commands, other.commands),
            _merged("model", self.models, other.models),
            _merged("provider", self.providers, other.providers),
            _merged("platform", self.platforms, other.platforms),
            _merged("memory provider", self.memory_providers, other.memory_providers),
            _merged("sub-command", self.cli_commands, other.cli_commands),
        )


AnyRecord = TypeVar("AnyRecord", bound=Record)


def _merged(
    kind: str, ours: dict[str, AnyRecord], theirs: dict[str, AnyRecord]
) -> dict[str, AnyRecord]:
    for name in ours.keys() & theirs.keys():
        raise PluginError(f"The plugin {ours[name].plugin} already has a {kind} {name!r}.")
    return {**ours, **theirs}


class PluginContext:
    """The argument of a plugin's `register(ctx)`; accepts registrations until that returns."""

    def __init__(self, name: str, home: Home, settings: Mapping[str, Any]) -> None:
        self.name = name
        self.settings = settings
        """The table [plugins.settings.<name>] of config.toml, or an empty one."""
        self.registered = Registrations()
        self.is_open = True
        self.is_bundled = False  # True: may register reserved names
        self._folder = home.root / "plugin-data" / name

    @property
    def data_dir(self) -> Path:
        """A private folder for the plugin's files, created on first use."""
        return make_folder(self._folder)

    @overload
    def hook(self, name: str) -> Callable[[Function], Function]: ...
    @overload
    def hook(self, name: str, callback: Function) -> Function: ...
    def hook(
        self, name: str, callback: Function | None = None
    ) -> Function | Callable[[Function], Function]:
        """Register a callback for a hook; without `callback`, return a decorator."""

        def register(function: Function) -> Function:
            self._check_open()
            self.registered.hooks.append((name, callback_of(self.name, name, function)))
            return function

        return register if callback is None else register(callback)

    def tool(
        self,
        name: str,
        handler: Callable[..., object],
        *,
        description: str,
        parameters: Mapping[str, Any],
        **facts: Unpack[ToolFacts],
    ) -> None:
        """Add a tool; `parameters` is the JSON schema of its arguments.

        Approvals, the policy and small models use its `facts`.
        """
        handler = self._contained("tool", name, handler)
        _check_described(name, description, parameters)
        _check_facts(name, parameters, facts)
        tool = Tool(
            self.name, name, description, parameters, handler, cast("Mapping[str, Any]", facts)
        )
        self._add("tool", self.registered.tools, tool, _TOOL_NAME)

    def command(
        self,
        name: str,
        handler: Callable[..., object],
        *,
        description: str,
        argument: str = "",
        surfaces: Collection[Surface] = SURFACES,
    ) -> None:
        """Add a slash command; the name has no slash."""
        if unknown := sorted(set(surfaces) - SURFACES):
            names = ", ".join(sorted(SURFACES))
            raise PluginError(f"There is no surface {unknown[0]!r}.", fix=f"Use some of: {names}.")
        handler = self._contained("command", name, handler)
        command = Command(self.name, name, description, handler, argument, frozenset(surfaces))
        self._add("command", self.registered.commands, command)

    def model(self, name: str, factory: Callable[..., object], *, description: str = "") -> None:
        """Add a model that users can choose by this name."""
        self._add_factory("model", self.registered.models, name, factory, description)

    def provider(self, name: str, *, base_url: str, **facts: object) -> None:
        """Add a provider of models; its format is OpenAI's unless `adapter` names another.

        `facts` are fields of `hermes_agent.models.providers.Provider`.
        """
        provider = plugin_names.provider_of(name, {"base_url": base_url, **facts})
        record = ProviderRecord(self.name, name, provider)
        self._add("provider", self.registered.providers, record)

    def platform(self, name: str, factory: Callable[..., object], *, description: str = "") -> None:
        """Add a chat platform to the gateway."""
        self._add_factory("platform", self.registered.platforms, name, factory, description)

    def memory_provider(
        self, name: str, factory: Callable[..., object], *, description: str = ""
    ) -> None:
        """Add a memory provider, which learns from every conversation."""
        records = self.registered.memory_providers
        self._add_factory("memory provider", records, name, factory, description)

    def cli_command(self, command: "click.Command") -> None:
        """Add a sub-command of `hermes`, under its own name."""
        name = getattr(command, "name", None) or ""
        self._contained("sub-command", name, command)  # only for its checks
        self._add("sub-command", self.registered.cli_commands, CliCommand(self.name, name, command))

    def _add_factory(
        self,
        kind: Kind,
        records: dict[str, FactoryRecord],
        name: str,
        factory: Callable[..., object],
        description: str,
    ) -> None:
        factory = self._contained(kind, name, factory)
        self._add(kind, records, FactoryRecord(self.name, name, description, factory))

    def _contained(
        self, kind: Kind, name: str, function: Callable[..., object]
    ) -> Callable[..., object]:
        """Check a function of the plugin and contain its errors."""
        if not callable(function):
            raise PluginError(f"The {kind} {name!r} needs a callable.")
        if _is_unfinished(function):
            raise PluginError(
                f"The {kind} {name!r} is async or a generator; give a plain function."
            )
        return guarded(self.name, f"the {kind} {name}", function)

    def _add(
        self,
        kind: Kind,
        records: dict[str, AnyRecord],
        record: AnyRecord,
        pattern: re.Pattern[str] = NAME,
    ) -> None:
        self._check_open()
        if not pattern.fullmatch(record.name):
            raise PluginError(f"Invalid name {record.name!r} for a {kind}.")
        if not self.is_bundled and record.name in plugin_names.reserved(kind):
            raise PluginError(f"{record.name!r} is a built-in {kind}.", fix="Choose another name.")
        records.update(_merged(kind, records, {record.name: record}))

    def _check_open(self) -> None:
        if not self.is_open:
            raise PluginError(f"The plugin {self.name} can register only in its register(ctx).")


def _check_described(name: str, description: object, parameters: object) -> None:
    """Check what every request to a model will contain. Raises PluginError."""
    if not isinstance(description, str):
        raise PluginError(f"The description of the tool {name!r} is not a string.")
    try:
        if isinstance(parameters, Mapping):
            msgspec.json.encode(parameters)
            return
    except (TypeError, ValueError, RecursionError):
        pass
    raise PluginError(f"The parameters of the tool {name!r} are not a JSON schema.")


def _check_facts(name: str, parameters: Mapping[str, Any], facts: "ToolFacts") -> None:
    try:
        msgspec.convert(facts, ToolFacts)
    except msgspec.ValidationError as error:
        raise PluginError(f"The facts of the tool {name!r} are not valid: {error}.") from error
    for fact in facts:
        if fact not in ToolFacts.__annotations__:
            names = ", ".join(ToolFacts.__annotations__)
            raise PluginError(f"A tool has no {fact!r}.", fix=f"Use one of: {names}.")
    arguments = parameters.get("properties", {})
    for argument in (*filter(None, [facts.get("subject", "")]), *facts.get("small", ())):
        if argument not in arguments:
            raise PluginError(f"The tool {name!r} has no argument {argument!r}.")


def callback_of(plugin: str, hook: str, function: Callable[..., object]) -> Callback:
    """Check a function against the contract of its hook. Raises PluginError."""
    if hook not in hookspecs.SPECS:
        names = ", ".join(hookspecs.SPECS)
        raise PluginError(f"There is no hook {hook!r}.", fix=f"Use one of: {names}.")
    import inspect  # noqa: PLC0415 -- slow to load, and most homes have no plugin

    if _is_unfinished(function):
        raise PluginError(
            f"The callback of {hook} is async or a generator; hooks are plain functions."
        )
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise PluginError(f"The callback of {hook} cannot be called: {error}.") from error
    spec = inspect.signature(hookspecs.SPECS[hook]).parameters
    named = {p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    unknown = [
        p.name for p in parameters if _is_required(p) and (p not in named or p.name not in spec)
    ]
    if unknown:
        raise PluginError(
            f"The callback of {hook} has unknown arguments: {', '.join(unknown)}.",
            fix=f"The hook passes: {', '.join(spec)}.",
        )
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return Callback(plugin, function, None)
    return Callback(plugin, function, frozenset(p.name for p in named if p.name in spec))


def _is_unfinished(function: Callable[..., object]) -> bool:
    """Return whether calling it runs nothing yet: it is async or a generator."""
    import inspect  # noqa: PLC0415 -- as above

    forms = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    own = getattr(type(function), "__call__", None)  # noqa: B004 -- inspects the function behind it
    return any(is_form(candidate) for is_form in forms for candidate in (function, own))


def _is_required(parameter: "inspect.Parameter") -> bool:
    variable = (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    empty = cast("object", parameter.empty)
    return parameter.default is empty and parameter.kind not in variable
