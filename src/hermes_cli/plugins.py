"""The plugin host: which plugins are loaded, what they registered, and the calling of hooks.

A leaf that every part may call. Callers write `plugins.invoke_hook(...)`, through the module. A
plugin that fails harms only itself: a failed callback is logged and the next one runs; a plugin
that cannot be loaded is kept with its reason, for `hermes plugins list` to show.
"""

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_cli import hook_answers, hookspecs, plugin_calls, plugin_sources
from hermes_cli.hook_answers import AnswerError
from hermes_cli.plugin_context import (
    Callback,
    Command,
    FactoryRecord,
    PluginContext,
    ProviderRecord,
    Registrations,
    Tool,
    callback_of,
)
from hermes_cli.plugin_sources import Found
from hermes_core.errors import PluginError, describe_error
from hermes_core.paths import Home

if TYPE_CHECKING:
    import click

    from hermes_core.settings import Settings
    from hermes_core.slash_commands import Surface

__all__ = [
    "Command",
    "Found",
    "PluginContext",
    "PluginError",
    "PluginHost",
    "FactoryRecord",
    "Tool",
    "cli_commands",
    "commands",
    "discover",
    "failures",
    "has_hook",
    "host",
    "invoke_hook",
    "load_enabled",
    "loaded",
    "memory_providers",
    "models",
    "platforms",
    "register_hook",
    "tools",
]

logger = logging.getLogger(__name__)

_Callbacks = dict[str, tuple[Callback, ...]]


class PluginHost:
    """Loaded plugins and their registrations; a process has one, a test may have its own."""

    def __init__(self, *, is_bundled: bool = False) -> None:
        self._is_bundled = is_bundled
        self._loading = threading.RLock()
        """Held while a plugin's code runs, so that no plugin is loaded twice."""
        self._changing = threading.Lock()
        """Held for the moment in which the values below are replaced; readers need no lock."""
        self._callbacks: _Callbacks = dict.fromkeys(hookspecs.SPECS, ())
        self._registered = Registrations()
        self._seen: set[str] = set()
        self._loaded: dict[str, Found] = {}
        self._failures: dict[str, str] = {}

    def invoke_hook(self, name: str, /, **kwargs: object) -> list[Any]:
        """Call every callback of a hook; return what they returned, in order, without the Nones."""
        try:
            callbacks = self._callbacks[name]
        except KeyError:
            raise LookupError(f"There is no hook {name!r} in hookspecs.") from None
        if not callbacks:
            return []
        results = (_call(name, callback, kwargs) for callback in callbacks)
        return [result for result in results if result is not None]

    def register_hook(
        self, name: str, callback: Callable[..., object], *, plugin: str = "hermes"
    ) -> None:
        """Have a function called by a hook, outside of any plugin's loading."""
        added = Registrations(hooks=[(name, callback_of(plugin, name, callback))])
        self._take_over(added)

    def has_hook(self, name: str) -> bool:
        """Return whether anybody listens, for callers whose arguments are costly to make."""
        return bool(self._callbacks[name])

    def load_enabled(self, home: Home, settings: "Settings") -> None:
        """Load the enabled plugins that were not tried before; failures are kept, not raised."""
        with self._loading:
            wanted = dict.fromkeys(settings.plugins.enabled)
            names = [name for name in wanted if name not in self._seen]
            if not names:
                return
            found = plugin_sources.find(home, names)
            for name in names:
                plugin = found.get(name) or _missing(name)
                try:
                    self.load(plugin, home, settings.plugins.settings.get(name, {}))
                except PluginError as error:
                    logger.exception("plugin %s was not loaded", name)
                    self._failures[name] = str(error)

    def load_folder(
        self, folder: Path, home: Home, settings: Mapping[str, Any] | None = None
    ) -> Found:
        """Load the plugin that lies in a folder, as its tests do; raises PluginError."""
        plugin = plugin_sources.at(folder)
        self.load(plugin, home, settings or {})
        return plugin

    def load(self, plugin: Found, home: Home, settings: Mapping[str, Any]) -> None:
        """Run a plugin's code and take over what it registers, or nothing and raise PluginError."""
        with self._loading:
            if plugin.name in self._seen:
                raise PluginError(f"The plugin {plugin.name} was loaded before.")
            self._seen.add(plugin.name)
            if plugin.error:
                raise PluginError(plugin.error)
            context = PluginContext(plugin.name, home, settings)
            context.is_bundled = self._is_bundled
            try:
                _register(plugin, context)
                self._take_over(context.registered)
            except BaseException:
                plugin_sources.forget_code(plugin)
                raise
            self._loaded[plugin.name] = plugin

    def reset(self) -> None:
        """Forget every plugin and everything that was registered."""
        with self._loading, self._changing:
            for plugin in self._loaded.values():
                plugin_sources.forget_code(plugin)
            self._callbacks = dict.fromkeys(hookspecs.SPECS, ())
            self._registered = Registrations()
            self._seen, self._loaded, self._failures = set(), {}, {}

    @property
    def loaded(self) -> dict[str, Found]:
        """The plugins that are on, in the order of loading."""
        return dict(self._loaded)

    @property
    def failures(self) -> dict[str, str]:
        """The plugins that were to be on and are not, with the reason."""
        return dict(self._failures)

    @property
    def registered(self) -> Registrations:
        """All that was registered, by kind and name; not to be changed."""
        return self._registered

    def _take_over(self, added: Registrations) -> None:
        """Add registrations as a whole; a name that is taken raises and changes nothing."""
        with self._changing:
            joined = self._registered.joined_by(added)
            callbacks = dict(self._callbacks)
            for name, callback in added.hooks:
                callbacks[name] = (*callbacks[name], callback)
            self._registered, self._callbacks = joined, callbacks


def _call(hook: str, callback: Callback, kwargs: dict[str, object]) -> object:
    """Return what a callback answers; none when it fails or answers what it may not, which is logged."""
    wanted = callback.wanted
    given = kwargs if wanted is None else {k: v for k, v in kwargs.items() if k in wanted}
    try:
        result = callback.function(**given)
        return None if result is None else hook_answers.checked(hook, result)
    except AnswerError as error:
        logger.error("plugin %s answered hook %s with %s", callback.plugin, hook, error)  # noqa: TRY400 -- the fault is in no line of ours
    except BaseException as error:
        if plugin_calls.is_of_a_person(error):
            raise
        logger.exception("plugin %s failed in hook %s", callback.plugin, hook)
    return None


def _register(plugin: Found, context: PluginContext) -> None:
    """Run the plugin's own code; whatever it raises becomes a PluginError that says so.

    What it prints goes to stderr: stdout is for the answer of the command that needs the plugin.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            register = getattr(plugin_sources.import_code(plugin), "register", None)
            if not callable(register):
                raise PluginError("It has no function register(ctx).")
            hook_answers.refuse_unfinished(register(context))
    except PluginError:
        raise
    except AnswerError as error:
        raise PluginError(f"Its register(ctx) gives {error}.") from error
    except BaseException as error:
        if plugin_calls.is_of_a_person(error):
            raise
        raise PluginError(describe_error(error)) from error
    finally:
        context.is_open = False


def _missing(name: str) -> Found:
    return Found(
        name, "missing", "", error="There is no plugin of this name; it is enabled in the settings."
    )


host = PluginHost()
"""The plugins of this process."""


def invoke_hook(name: str, /, **kwargs: object) -> list[Any]:
    """Call every callback of a hook; return what they returned, in order, without the Nones.

    A callback gets the arguments that it declares. One that fails, or answers what its hook does not
    take, is logged with its plugin's name, and the others go on.
    """
    return host.invoke_hook(name, **kwargs)


def register_hook(name: str, callback: Callable[..., object], *, plugin: str = "hermes") -> None:
    """Have a function called by a hook; an unknown hook raises PluginError."""
    host.register_hook(name, callback, plugin=plugin)


def has_hook(name: str) -> bool:
    """Return whether anybody listens to a hook, for callers whose arguments are costly to make."""
    return host.has_hook(name)


def load_enabled(home: Home, settings: "Settings") -> None:
    """Load the enabled plugins, once; failures are kept and shown, never raised."""
    host.load_enabled(home, settings)


def discover(home: Home) -> dict[str, Found]:
    """Every known plugin by its name, on or off; no plugin's code runs."""
    return plugin_sources.discover(home)


def loaded() -> dict[str, Found]:
    """The plugins that are on."""
    return host.loaded


def failures() -> dict[str, str]:
    """The plugins that could not be loaded, with the reason."""
    return host.failures


def tools() -> dict[str, Tool]:
    """The tools of plugins, by name."""
    return dict(host.registered.tools)


def commands(surface: "Surface | None" = None) -> dict[str, Command]:
    """Return the slash commands of plugins by name; with a surface, those that exist there."""
    return {
        name: command
        for name, command in host.registered.commands.items()
        if surface is None or surface in command.surfaces
    }


def models() -> dict[str, FactoryRecord]:
    """The models of plugins, by name."""
    return dict(host.registered.models)


def providers() -> dict[str, ProviderRecord]:
    """Return the providers of models of plugins, by name."""
    return dict(host.registered.providers)


def platforms() -> dict[str, FactoryRecord]:
    """The chat platforms of plugins, by name."""
    return dict(host.registered.platforms)


def memory_providers() -> dict[str, FactoryRecord]:
    """The memories of plugins, by name."""
    return dict(host.registered.memory_providers)


def cli_commands() -> "dict[str, click.Command]":
    """The sub-commands of plugins, by name."""
    return {name: entry.command for name, entry in host.registered.cli_commands.items()}
