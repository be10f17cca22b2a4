"""`hermes plugins`: list, enable, disable and create plugins."""

from pathlib import Path

import click

from hermes_cli import plugin_sources, plugin_switch, plugin_template, plugins
from hermes_cli.commands import root, table
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_cli.commands.group import CommandGroup
from hermes_cli.commands.table import Column
from hermes_core import config, log
from hermes_core.errors import UsageError
from hermes_core.paths import make_folder
from hermes_core.text import shell_quoted
from hermes_core.version import VERSION


@click.group("plugins", cls=CommandGroup)
def command() -> None:
    """List, enable, disable and create plugins."""


@command.command("list")
@table.full_option
@json_option
@pass_app
def show(app: App, full: bool) -> None:
    """List all plugins, and say why an enabled one failed to load."""
    if app.settings.plugins.enabled:
        _log_to_file(app)
        plugins.load_enabled(app.home, app.settings)
    rows = list(plugin_switch.statuses(app.home))
    if app.as_json:
        app.emit(rows)
        return
    if rows:
        columns = (
            "NAME",
            Column("VERSION", rank=2),
            Column("SOURCE", rank=1),
            "STATE",
            "DESCRIPTION",
        )
        cells = ((row.name, row.version, row.source, row.state, row.description) for row in rows)
        table.show(app, columns, cells, full=full)
    else:
        app.say("There are no plugins.")
    for row in rows:
        if row.error:
            app.say(f"\n{row.name}: {row.error}")
        for place in row.hides:
            app.say(f"\n{row.name}: ignored the one in {place}.")
    if any(row.state == "failed" for row in rows):
        app.say(f"\nSee the tracebacks in {app.home.logs / log.FILE}.")


@command.command("enable")
@click.argument("name")
@json_option
@pass_app
def enable(app: App, name: str) -> None:
    """Enable a plugin, if it can be loaded."""
    _log_to_file(app)
    is_new = plugin_switch.enable(app.home, app.settings, name)
    _report(app, name, "on", f"Enabled {name}." if is_new else f"{name} is already enabled.")


@command.command("disable")
@click.argument("name")
@json_option
@pass_app
def disable(app: App, name: str) -> None:
    """Disable a plugin; its files and data are kept."""
    is_new = plugin_switch.disable(app.home, name)
    _report(app, name, "off", f"Disabled {name}." if is_new else f"{name} is already disabled.")


@command.command("new")
@click.argument("name")
@click.option(
    "--dir",
    "parent",
    type=click.Path(path_type=Path, file_okay=False),
    help="Create its folder here instead of in the home.",
)
@json_option
@pass_app
def new(app: App, name: str, parent: Path | None) -> None:
    """Create a small plugin that works and has a test."""
    if not plugin_sources.is_name(name):
        raise UsageError(
            f"Invalid plugin name {name!r}.",
            fix="Use lower-case letters, digits, dashes and underscores.",
        )
    if name in root.COMMANDS:
        raise UsageError(f"hermes {name} is already a command.", fix="Choose another name.")
    found = plugins.discover(app.home).get(name)
    if found is not None and found.source != "home":
        raise UsageError(
            f"There is already a plugin {name}, which this one would replace.",
            fix="Choose another name.",
        )
    folder = (parent or app.home.create().plugins) / name
    files = plugin_template.write(folder, VERSION)
    if app.as_json:
        app.emit({"name": name, "files": [str(path) for path in files]})
        return
    app.say(f"Wrote {folder}\n\n  run its test   python -m pytest {shell_quoted(folder)}")
    if parent is not None:
        place = make_folder(app.home.create().plugins) / name
        app.say(f"  install it     ln -s {folder.absolute()} {place}")
    app.say(f"  enable it      hermes plugins enable {name}\n  use it         hermes {name}")


def _log_to_file(app: App) -> None:
    """Log tracebacks of plugins; the user sees only the reason."""
    log.set_up(app.home.logs, app.settings.log.level)


def _report(app: App, name: str, state: str, sentence: str) -> None:
    """Print the result, and whether the environment or --set overrides config.toml."""
    if app.as_json:
        app.emit({"name": name, "state": state})
    app.say(sentence)
    now = config.load(app.home, overrides=app.overrides).plugins.enabled
    if (name in now) != (state == "on"):
        click.echo("Note: HERMES_PLUGINS_ENABLED or --set overrides config.toml here.", err=True)
