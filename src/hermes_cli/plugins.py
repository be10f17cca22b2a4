"""The plugin host: loads plugins, keeps their registrations and calls hooks.

Every package may import it; call it through the module: `plugins.invoke_hook(...)`. A failing callback
is logged, and the next one runs. A plugin that fails to load is listed with its reason.
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
    """Loaded plugins and their registrations; one per process."""

    def __init__(self, *, is_bundled: bool = False) -> None:
        self._is_bundled = is_bundled
        self._loading = threading.RLock()
        """Held while loading, so that no plugin is loaded twice."""
        self._changing = threading.Lock()
        """Held while the values below are replaced; readers need no lock."""
        self._callbacks: _Callbacks = dict.fromkeys(hookspecs.SPECS, ())
        self._registered = Registrations()
        self._seen: set[str] = set()
        self._loaded: dict[str, Found] = {}
        self._failures: dict[str, str] = {}

    def invoke_hook(self, name: str, /, **kwargs: object) -> list[Any]:
        """Call every callback of a hook; return their results in order, without None."""
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
        """Register a callback for a hook, outside of a plugin."""
        added = Registrations(hooks=[(name, callback_of(plugin, name, callback))])
        self._add(added)

    def has_hook(self, name: str) -> bool:
        """Return whether a hook has callbacks, for callers with costly arguments."""
        return bool(self._callbacks[name])

    def load_enabled(self, home: Home, settings: "Settings") -> None:
        """Load the enabled plugins that were not tried before; keep failures, do not raise them."""
        with self._loading:
            enabled = dict.fromkeys(settings.plugins.enabled)
            names = [name for name in enabled if name not in self._seen]
            if not names:
                return
            found = plugin_sources.find(home, names)
            for name in names:
                plugin = found.get(name) or _missing(name)
                try:
                    self.load(plugin, home, settings.plugins.settings.get(name, {}))
                except PluginError as error:
                    logger.exception("Plugin %s failed to load", name)
                    self._failures[name] = str(error)

    def load_folder(
        self, folder: Path, home: Home, settings: Mapping[str, Any] | None = None
    ) -> Found:
        """Load the plugin in a folder, as its tests do. Raises PluginError."""
        plugin = plugin_sources.at(folder)
        self.load(plugin, home, settings or {})
        return plugin

    def load(self, plugin: Found, home: Home, settings: Mapping[str, Any]) -> None:
        """Run a plugin's code and add its registrations, or raise PluginError and add nothing."""
        with self._loading:
            if plugin.name in self._seen:
                raise PluginError(f"The plugin {plugin.name} is already loaded.")
            self._seen.add(plugin.name)
            if plugin.error:
                raise PluginError(plugin.error)
            context = PluginContext(plugin.name, home, settings)
            context.is_bundled = self._is_bundled
            with contextlib.ExitStack() as undo:
                undo.callback(plugin_sources.forget_code, plugin)
                _register(plugin, context)
                self._add(context.registered)
                undo.pop_all()
            self._loaded[plugin.name] = plugin

    def reset(self) -> None:
        """Remove every plugin and its registrations."""
        with self._loading, self._changing:
            for plugin in self._loaded.values():
                plugin_sources.forget_code(plugin)
            self._callbacks = dict.fromkeys(hookspecs.SPECS, ())
            self._registered = Registrations()
            self._seen, self._loaded, self._failures = set(), {}, {}

    @property
    def loaded(self) -> dict[str, Found]:
        """The loaded plugins, in order of loading."""
        return dict(self._loaded)

    @property
    def failures(self) -> dict[str, str]:
        """The plugins that failed to load, with the reason."""
        return dict(self._failures)

    @property
    def registered(self) -> Registrations:
        """All registrations, by kind and name; do not change them."""
        return self._registered

    def _add(self, added: Registrations) -> None:
        """Add all registrations, or none and raise PluginError for a duplicate name."""
        with self._changing:
            joined = self._registered.merged_with(added)
            callbacks = dict(self._callbacks)
            for name, callback in added.hooks:
                callbacks[name] = (*callbacks[name], callback)
            self._registered, self._callbacks = joined, callbacks


def _call(hook: str, callback: Callback, kwargs: dict[str, object]) -> object:
    """Return the result of a callback; log an error or a wrong result and return None."""
    names = callback.arguments
    arguments = kwargs if names is None else {k: v for k, v in kwargs.items() if k in names}
    try:
        result = callback.function(**arguments)
        return None if result is None else hook_answers.checked(hook, result)
    except AnswerError as error:
        logger.error("Plugin %s answered hook %s with %s", callback.plugin, hook, error)  # noqa: TRY400 -- no traceback: the result is wrong
    except BaseException as error:
        if plugin_calls.is_user_interrupt(error):
            raise
        logger.exception("Plugin %s failed in hook %s", callback.plugin, hook)
    return None


def _register(plugin: Found, context: PluginContext) -> None:
    """Run the plugin's code. Raises PluginError for every error.

    Its prints go to stderr: stdout is for the output of the command.
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
        raise PluginError(f"Its register(ctx) returned {error}.") from error
    except BaseException as error:
        if plugin_calls.is_user_interrupt(error):
            raise
        raise PluginError(describe_error(error)) from error
    finally:
        context.is_open = False


def _missing(name: str) -> Found:
    return Found(
        name, "missing", "", error="plugins.enabled names it, but there is no such plugin."
    )


host = PluginHost()
"""The plugins of this process."""


def invoke_hook(name: str, /, **kwargs: object) -> list[Any]:
    """Call every callback of a hook; return their results in order, without None.

    A callback gets the arguments that it declares. Errors and wrong results are logged with the
    plugin's name.
    """
    return host.invoke_hook(name, **kwargs)


def register_hook(name: str, callback: Callable[..., object], *, plugin: str = "hermes") -> None:
    """Register a callback for a hook. Raises PluginError for an unknown hook."""
    host.register_hook(name, callback, plugin=plugin)


def has_hook(name: str) -> bool:
    """Return whether a hook has callbacks, for callers with costly arguments."""
    return host.has_hook(name)


def load_enabled(home: Home, settings: "Settings") -> None:
    """Load the enabled plugins once; keep failures, do not raise them."""
    host.load_enabled(home, settings)


def discover(home: Home) -> dict[str, Found]:
    """Return every plugin by name, without running code of plugins."""
    return plugin_sources.discover(home)


def loaded() -> dict[str, Found]:
    """Return the loaded plugins."""
    return host.loaded


def failures() -> dict[str, str]:
    """Return the plugins that failed to load, with the reason."""
    return host.failures


def tools() -> dict[str, Tool]:
    """Return the tools of plugins, by name."""
    return dict(host.registered.tools)


def commands(surface: "Surface | None" = None) -> dict[str, Command]:
    """Return the slash commands of plugins by name; with a surface, those that exist there."""
    return {
        name: command
        for name, command in host.registered.commands.items()
        if surface is None or surface in command.surfaces
    }


def models() -> dict[str, FactoryRecord]:
    """Return the models of plugins, by name."""
    return dict(host.registered.models)


def providers() -> dict[str, ProviderRecord]:
    """Return the providers of models of plugins, by name."""
    return dict(host.registered.providers)


def platforms() -> dict[str, FactoryRecord]:
    """Return the platforms of plugins, by name."""
    return dict(host.registered.platforms)


def memory_providers() -> dict[str, FactoryRecord]:
    """Return the memory providers of plugins, by name."""
    return dict(host.registered.memory_providers)


def cli_commands() -> "dict[str, click.Command]":
    """Return the sub-commands of plugins, by name."""
    return {name: entry.command for name, entry in host.registered.cli_commands.items()}
