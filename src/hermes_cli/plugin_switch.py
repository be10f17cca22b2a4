"""The state of each plugin; enabling and disabling plugins in config.toml."""

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
    """One plugin as lists show it."""

    name: str
    version: str
    source: str
    state: str
    """on, off, or failed: enabled and not usable."""
    description: str
    location: str
    error: str
    hides: tuple[str, ...]


def statuses(home: Home) -> Iterator[Status]:
    """The state of every known plugin in this process."""
    known, failures = plugins.discover(home), plugins.failures()
    missing = [name for name in failures if name not in known]
    for name in (*known, *missing):
        found = known.get(name) or Found(name, "missing", "")
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
    """Return what config.toml enables; the environment must not leak into the file."""
    return config.load(home, environment={}).plugins.enabled


def enable(home: Home, settings: Settings, name: str) -> bool:
    """Enable a plugin if it can be loaded; False when it is enabled already. Raises PluginError."""
    if name in enabled_in_file(home):
        return False
    if name not in plugins.discover(home):
        known = ", ".join(plugins.discover(home))
        raise PluginError(f"There is no plugin {name}.", fix=f"Known plugins: {known}.")
    _try_out(home, settings, name)
    config.change_by(home, _KEY, lambda now: [*_without(now, name), name])
    return True


def disable(home: Home, name: str) -> bool:
    """Disable a plugin; False when it is disabled already. Raises PluginError."""
    enabled = enabled_in_file(home)
    if name in enabled:
        config.change_by(home, _KEY, lambda now: _without(now, name))
        return True
    if name not in plugins.discover(home):
        raise PluginError(
            f"There is no plugin {name}.", fix=f"Enabled plugins: {', '.join(enabled) or 'none'}."
        )
    return False


def _try_out(home: Home, settings: Settings, name: str) -> None:
    """Load the plugin beside those that are on already, in a host of its own."""
    trial = PluginHost()
    trial.load_enabled(home, _with(settings, name))
    if reason := trial.failures.get(name):
        raise PluginError(f"{name} was not enabled, for it cannot be loaded. {reason}")


def _with(settings: Settings, name: str) -> Settings:
    enabled = [*_without(settings.plugins.enabled, name), name]
    chosen = msgspec.structs.replace(settings.plugins, enabled=enabled)
    return msgspec.structs.replace(settings, plugins=chosen)


def _without(enabled: list[str], name: str) -> list[str]:
    return [other for other in enabled if other != name]
