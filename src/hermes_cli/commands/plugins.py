"""`hermes plugins`: which plugins there are, switching them on and off, and making a new one."""

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from hermes_cli import plugin_sources, plugin_template, plugins
from hermes_cli.commands import root, table
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_cli.plugins import Found, PluginHost
from hermes_core import config, log
from hermes_core.errors import PluginError, UsageError
from hermes_core.paths import make_folder
from hermes_core.settings import Settings
from hermes_core.text import typed
from hermes_core.version import VERSION

_KEY = "plugins.enabled"


class Row(msgspec.Struct, frozen=True):
    """One plugin as the list shows it."""

    name: str
    version: str
    source: str
    state: str
    """on, off, or failed: enabled and not usable."""
    description: str
    location: str
    error: str
    hides: tuple[str, ...]


@click.group("plugins")
def command() -> None:
    """List, enable, disable and make plugins."""


@command.command("list")
@json_option
@pass_app
def show(app: App) -> None:
    """Show every known plugin, and why one that is enabled cannot be used."""
    rows = list(_rows(app))
    if app.as_json:
        app.emit(rows)
        return
    headers = ["Name", "Version", "Source", "State", "Description"]
    cells = ([row.name, row.version, row.source, row.state, row.description] for row in rows)
    app.say(table.render(headers, cells) if rows else "There are no plugins.")
    for row in rows:
        if row.error:
            app.say(f"\n{row.name}: {row.error}")
        for place in row.hides:
            app.say(f"\n{row.name}: the one in {place} is not used.")
    if any(row.state == "failed" for row in rows):
        app.say(f"\nThe details are in {app.home.logs / 'hermes.log'}.")


@command.command("enable")
@click.argument("name")
@json_option
@pass_app
def enable(app: App, name: str) -> None:
    """Load a plugin from now on, if it can be loaded."""
    if name in _enabled_in_file(app):
        _report(app, name, "on", f"{name} is enabled already.")
        return
    if name not in plugins.discover(app.home):
        known = ", ".join(plugins.discover(app.home))
        raise PluginError(f"There is no plugin {name}.", fix=f"Known plugins: {known}.")
    _try_out(app, name)
    config.change_by(app.home, _KEY, lambda now: [*_without(now, name), name])
    _report(app, name, "on", f"Enabled {name}.")


@command.command("disable")
@click.argument("name")
@json_option
@pass_app
def disable(app: App, name: str) -> None:
    """Load a plugin no longer; its files and its data stay."""
    enabled = _enabled_in_file(app)
    if name in enabled:
        config.change_by(app.home, _KEY, lambda now: _without(now, name))
        _report(app, name, "off", f"Disabled {name}.")
    elif name in plugins.discover(app.home):
        _report(app, name, "off", f"{name} is off already.")
    else:
        raise PluginError(
            f"There is no plugin {name}.", fix=f"Enabled plugins: {', '.join(enabled) or 'none'}."
        )


@command.command("new")
@click.argument("name")
@click.option(
    "--dir",
    "parent",
    type=click.Path(path_type=Path, file_okay=False),
    help="Make its folder here instead of in the home.",
)
@json_option
@pass_app
def new(app: App, name: str, parent: Path | None) -> None:
    """Write a small plugin that works and has a test."""
    if not plugin_sources.is_name(name):
        raise UsageError(
            f"{name!r} is no name for a plugin.",
            fix="Use lower-case letters, digits, dashes and underscores.",
        )
    if name in root.COMMANDS:
        raise UsageError(f"hermes {name} is a command already.", fix="Choose another name.")
    if (known := plugins.discover(app.home).get(name)) is not None and known.source != "home":
        raise UsageError(
            f"There is a plugin {name} already, which this one would hide.",
            fix="Choose another name.",
        )
    folder = (parent or app.home.create().plugins) / name
    files = plugin_template.write(folder, VERSION)
    if app.as_json:
        app.emit({"name": name, "files": [str(path) for path in files]})
        return
    app.say(f"Wrote {folder}\n\n  try its test   python -m pytest {typed(folder)}")
    if parent is not None:
        place = make_folder(app.home.create().plugins) / name
        app.say(f"  install it     ln -s {folder.absolute()} {place}")
    app.say(f"  switch it on   hermes plugins enable {name}\n  use it         hermes {name}")


def _rows(app: App) -> Iterator[Row]:
    if app.settings.plugins.enabled:
        _log_to_file(app)
        plugins.load_enabled(app.home, app.settings)
    known, failures = plugins.discover(app.home), plugins.failures()
    missing = [name for name in failures if name not in known]
    for name in (*known, *missing):
        found = known.get(name) or Found(name, "missing", "")
        state = "failed" if name in failures else "on" if name in plugins.loaded() else "off"
        error = failures.get(name) or found.error
        yield Row(
            name=name,
            version=found.version,
            source=found.source,
            state=state,
            description=found.description,
            location=found.location,
            error=error,
            hides=found.hides,
        )


def _log_to_file(app: App) -> None:
    """Keep the traceback of a failing plugin for its author; the user is told the reason."""
    log.set_up(app.home.logs, app.settings.log.level)


def _enabled_in_file(app: App) -> list[str]:
    """What config.toml enables; the environment must not leak into the file by a change to it."""
    return config.load(app.home, environment={}).plugins.enabled


def _try_out(app: App, name: str) -> None:
    """Load the plugin beside those that are on already, in a host of its own."""
    _log_to_file(app)
    trial = PluginHost()
    trial.load_enabled(app.home, _with(app.settings, name))
    if reason := trial.failures.get(name):
        raise PluginError(f"{name} was not enabled, for it cannot be loaded. {reason}")


def _with(settings: Settings, name: str) -> Settings:
    enabled = [*_without(settings.plugins.enabled, name), name]
    chosen = msgspec.structs.replace(settings.plugins, enabled=enabled)
    return msgspec.structs.replace(settings, plugins=chosen)


def _without(enabled: list[str], name: str) -> list[str]:
    return [other for other in enabled if other != name]


def _report(app: App, name: str, state: str, sentence: str) -> None:
    """Say what was done, and whether something stronger than the file says otherwise."""
    if app.as_json:
        app.emit({"name": name, "state": state})
    app.say(sentence)
    now = config.load(app.home, overrides=app.overrides).plugins.enabled
    if (name in now) != (state == "on"):
        click.echo("Note: HERMES_PLUGINS_ENABLED or --set decides here, not config.toml.", err=True)
