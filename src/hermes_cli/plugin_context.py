"""What a plugin is handed to register with, and the records of what it registered.

A plugin's registrations are collected apart and taken over together once its `register` has
returned, so that one which fails half-way leaves nothing behind.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar, Unpack, cast, overload

import msgspec

from hermes_cli import hookspecs, plugin_names
from hermes_cli.plugin_calls import contained
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
    """What a tool may declare about itself; nothing of it is needed."""

    read_only: bool
    """Changes nothing: may run beside others, and again after a crash."""
    subject: str
    """The argument that says what a call is about: people are shown it, and the policy's patterns are
    compared with it."""
    is_path: bool
    """The subject is the path of a file: outside of the workspace it needs an approval."""
    is_command: bool
    """The subject is a shell command line: a dangerous one needs an approval."""
    writes: bool
    """Changes files."""
    small: Sequence[str]
    """The arguments that a small model gives; without it, small models are not offered the tool."""
    one_line: str
    """The description for small models."""
    timeout_s: float
    """Seconds after which the tool counts as failed."""


class Callback(NamedTuple):
    """One function that a plugin wants called."""

    plugin: str
    function: Callable[..., object]
    wanted: frozenset[str] | None
    """The arguments it declares; None when it takes them all."""


class Tool(msgspec.Struct, frozen=True):
    """Something a model may call."""

    plugin: str
    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of the arguments."""

    handler: Callable[..., object]
    facts: Mapping[str, Any]
    """What else it declares about itself, as `PluginContext.tool` takes it."""


class Command(msgspec.Struct, frozen=True):
    """A slash command, the same on every surface."""

    plugin: str
    name: str
    description: str
    handler: Callable[..., object]
    argument: str = ""
    """How the help names what follows the command."""
    surfaces: frozenset[Surface] = SURFACES
    """Where it exists."""


class FactoryRecord(msgspec.Struct, frozen=True):
    """A model, a platform or a memory, made by its factory when it is chosen."""

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
    """What was registered, by one plugin or by all of them."""

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

    def joined_by(self, other: "Registrations") -> "Registrations":
        """Both together; a name that both have raises PluginError."""
        return Registrations(
            [*self.hooks, *other.hooks],
            _both("tool", self.tools, other.tools),
            _both("command", self.commands, other.commands),
            _both("model", self.models, other.models),
            _both("provider", self.providers, other.providers),
            _both("platform", self.platforms, other.platforms),
            _both("memory provider", self.memory_providers, other.memory_providers),
            _both("sub-command", self.cli_commands, other.cli_commands),
        )


AnyRecord = TypeVar("AnyRecord", bound=Record)


def _both(
    kind: str, ours: dict[str, AnyRecord], theirs: dict[str, AnyRecord]
) -> dict[str, AnyRecord]:
    for name in ours.keys() & theirs.keys():
        raise PluginError(f"The {kind} {name!r} belongs to the plugin {ours[name].plugin} already.")
    return {**ours, **theirs}


class PluginContext:
    """What a plugin's `register(ctx)` is handed; it may register until that function returns."""

    def __init__(self, name: str, home: Home, settings: Mapping[str, Any]) -> None:
        self.name = name
        self.settings = settings
        """The table [plugins.settings.<name>] of config.toml; empty when there is none."""
        self.registered = Registrations()
        self.is_open = True
        self.is_bundled = False  # True: may register reserved names
        self._folder = home.root / "plugin-data" / name

    @property
    def data_dir(self) -> Path:
        """A private folder for the plugin's own files, made when it is first asked for."""
        return make_folder(self._folder)

    @overload
    def hook(self, name: str) -> Callable[[Function], Function]: ...
    @overload
    def hook(self, name: str, callback: Function) -> Function: ...
    def hook(
        self, name: str, callback: Function | None = None
    ) -> Function | Callable[[Function], Function]:
        """Have a function called by a hook; without the function, a decorator that does it."""

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
        """Offer the model a tool; `parameters` is the JSON schema of its arguments.

        `facts` declare what else the tool is, so that approvals, the policy file and small models treat
        it like one of ours.
        """
        held = self._held("tool", name, handler)
        _check_described(name, description, parameters)
        _check_facts(name, parameters, facts)
        tool = Tool(
            self.name, name, description, parameters, held, cast("Mapping[str, Any]", facts)
        )
        self._keep("tool", self.registered.tools, tool, _TOOL_NAME)

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
            known = ", ".join(sorted(SURFACES))
            raise PluginError(f"There is no surface {unknown[0]!r}.", fix=f"Use some of: {known}.")
        held = self._held("command", name, handler)
        command = Command(self.name, name, description, held, argument, frozenset(surfaces))
        self._keep("command", self.registered.commands, command)

    def model(self, name: str, factory: Callable[..., object], *, description: str = "") -> None:
        """Add a model that can be chosen by this name."""
        model = FactoryRecord(self.name, name, description, self._held("model", name, factory))
        self._keep("model", self.registered.models, model)

    def provider(self, name: str, *, base_url: str, **facts: object) -> None:
        """Add a provider of models, which is asked in OpenAI's format unless `adapter` says otherwise.

        The facts are the fields of `hermes_agent.models.providers.Provider`.
        """
        provider = plugin_names.provider_of(name, {"base_url": base_url, **facts})
        record = ProviderRecord(self.name, name, provider)
        self._keep("provider", self.registered.providers, record)

    def platform(self, name: str, factory: Callable[..., object], *, description: str = "") -> None:
        """Add a chat platform to the gateway."""
        platform = FactoryRecord(
            self.name, name, description, self._held("platform", name, factory)
        )
        self._keep("platform", self.registered.platforms, platform)

    def memory_provider(
        self, name: str, factory: Callable[..., object], *, description: str = ""
    ) -> None:
        """Add a memory that learns from every conversation, beside the others."""
        held = self._held("memory provider", name, factory)
        provider = FactoryRecord(self.name, name, description, held)
        self._keep("memory provider", self.registered.memory_providers, provider)

    def cli_command(self, command: "click.Command") -> None:
        """Add a sub-command to `hermes`, under the name that the command has."""
        name = getattr(command, "name", None) or ""
        self._held("sub-command", name, command)  # the command line contains it itself
        self._keep(
            "sub-command", self.registered.cli_commands, CliCommand(self.name, name, command)
        )

    def _held(
        self, kind: Kind, name: str, function: Callable[..., object]
    ) -> Callable[..., object]:
        """A function of the plugin, fit to be called by everybody."""
        if not callable(function):
            raise PluginError(f"The {kind} {name!r} needs something that can be called.")
        if _is_unfinished(function):
            raise PluginError(
                f"The {kind} {name!r} is async or a generator; give a plain function."
            )
        return contained(self.name, f"the {kind} {name}", function)

    def _keep(
        self,
        kind: Kind,
        kept: dict[str, AnyRecord],
        record: AnyRecord,
        pattern: re.Pattern[str] = NAME,
    ) -> None:
        self._check_open()
        if not pattern.fullmatch(record.name):
            raise PluginError(f"{record.name!r} is no name for a {kind}.")
        if not self.is_bundled and record.name in plugin_names.reserved(kind):
            raise PluginError(
                f"The {kind} {record.name!r} belongs to Hermes.", fix="Choose another name."
            )
        kept.update(_both(kind, kept, {record.name: record}))

    def _check_open(self) -> None:
        if not self.is_open:
            raise PluginError(f"The plugin {self.name} may register only in its register(ctx).")


def _check_described(name: str, description: object, parameters: object) -> None:
    """See that a tool can be told to a model; it stands in every request."""
    if not isinstance(description, str):
        raise PluginError(f"The description of the tool {name!r} is no text.")
    try:
        if isinstance(parameters, Mapping):
            msgspec.json.encode(parameters)
            return
    except (TypeError, ValueError, RecursionError):
        pass
    raise PluginError(f"The parameters of the tool {name!r} are no JSON schema: a table is needed.")


def _check_facts(name: str, parameters: Mapping[str, Any], facts: "ToolFacts") -> None:
    try:
        msgspec.convert(facts, ToolFacts)
    except msgspec.ValidationError as error:
        raise PluginError(f"The tool {name!r} is not described correctly: {error}.") from error
    for fact in facts:
        if fact not in ToolFacts.__annotations__:
            known = ", ".join(ToolFacts.__annotations__)
            raise PluginError(f"A tool has no {fact!r}.", fix=f"Use one of: {known}.")
    arguments = parameters.get("properties", {})
    for argument in (*filter(None, [facts.get("subject", "")]), *facts.get("small", ())):
        if argument not in arguments:
            raise PluginError(f"The tool {name!r} has no argument {argument!r}.")


def callback_of(plugin: str, hook: str, function: Callable[..., object]) -> Callback:
    """Check a function against the hook's contract; one that does not fit raises PluginError."""
    if hook not in hookspecs.SPECS:
        known = ", ".join(hookspecs.SPECS)
        raise PluginError(f"There is no hook {hook!r}.", fix=f"Use one of: {known}.")
    import inspect  # noqa: PLC0415 -- slow to load, and most homes have no plugin

    if _is_unfinished(function):
        raise PluginError(
            f"The callback of {hook} is async or a generator; hooks are plain functions."
        )
    try:
        taken = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise PluginError(f"The callback of {hook} cannot be called: {error}.") from error
    given = inspect.signature(hookspecs.SPECS[hook]).parameters
    named = {p for p in taken if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    unknown = [p.name for p in taken if _is_needed(p) and (p not in named or p.name not in given)]
    if unknown:
        raise PluginError(
            f"The callback of {hook} asks for {', '.join(unknown)}, which the hook does not give.",
            fix=f"It gives: {', '.join(given)}.",
        )
    if any(p.kind is p.VAR_KEYWORD for p in taken):
        return Callback(plugin, function, None)
    return Callback(plugin, function, frozenset(p.name for p in named if p.name in given))


def _is_unfinished(function: Callable[..., object]) -> bool:
    """Return whether a call of it runs nothing yet; also of an object whose call is such a function."""
    import inspect  # noqa: PLC0415 -- as above

    forms = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    own = getattr(type(function), "__call__", None)  # noqa: B004 -- the function behind it is looked at
    return any(is_form(one) for is_form in forms for one in (function, own))


def _is_needed(parameter: "inspect.Parameter") -> bool:
    variable = (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    empty = cast("object", parameter.empty)
    return parameter.default is empty and parameter.kind not in variable
