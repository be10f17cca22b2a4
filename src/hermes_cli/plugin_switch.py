"""States of plugins; enables and disables them in config.toml."""

from collections.abc import Iterator

import msgspec

from hermes_cli import plugins
from hermes_cli.plugins import Found, PluginHost
from hermes_core import config
from hermes_core.errors import PluginError
from hermes_core.paths import Home
from hermes_core.settings import Settings

_KEY = "plugins.enabled"


class Status(msgspec.Struct, frozen=True):
    """One plugin in a list."""

    name: str
    version: str
    source: str
    state: str
    """on, off, or failed (enabled but not loaded)."""
    description: str
    location: str
    error: str
    hides: tuple[str, ...]


def statuses(home: Home) -> Iterator[Status]:
    """Return the state of every plugin in this process."""
    discovered, failures = plugins.discover(home), plugins.failures()
    missing = [name for name in failures if name not in discovered]
    for name in (*discovered, *missing):
        found = discovered.get(name) or Found(name, "missing", "")
        state = "failed" if name in failures else "on" if name in plugins.loaded() else "off"
        yield Status(
            name=name,
            version=found.version,
            source=found.source,
            state=state,
            description=found.description,
            location=found.location,
            error=failures.get(name) or found.error,
            hides=found.hides,
        )


def enabled_in_file(home: Home) -> list[str]:
    """Return the plugins that config.toml enables, without the environment."""
    return config.load(home, environment={}).plugins.enabled


def enable(home: Home, settings: Settings, name: str) -> bool:
    """Enable a plugin that can be loaded; return whether this changed anything. Raises PluginError."""
    if name in enabled_in_file(home):
        return False
    discovered = plugins.discover(home)
    if name not in discovered:
        fix = f"Known plugins: {', '.join(discovered)}."
        raise PluginError(f"There is no plugin {name}.", fix=fix)
    _test_load(home, settings, name)
    config.update(home, _KEY, lambda now: [*_without(now, name), name])
    return True


def disable(home: Home, name: str) -> bool:
    """Disable a plugin; return whether this changed anything. Raises PluginError."""
    enabled = enabled_in_file(home)
    if name in enabled:
        config.update(home, _KEY, lambda now: _without(now, name))
        return True
    if name not in plugins.discover(home):
        raise PluginError(
            f"There is no plugin {name}.", fix=f"Enabled plugins: {', '.join(enabled) or 'none'}."
        )
    return False


def _test_load(home: Home, settings: Settings, name: str) -> None:
    """Load the plugin and the enabled ones in a separate host."""
    trial = PluginHost()
    trial.load_enabled(home, _with(settings, name))
    if reason := trial.failures.get(name):
        raise PluginError(f"Cannot enable {name}: loading it failed. {reason}")


def _with(settings: Settings, name: str) -> Settings:
    enabled = [*_without(settings.plugins.enabled, name), name]
    chosen = msgspec.structs.replace(settings.plugins, enabled=enabled)
    return msgspec.structs.replace(settings, plugins=chosen)


def _without(enabled: list[str], name: str) -> list[str]:
    return [other for other in enabled if other != name]
