"""`hermes config`: show and change settings."""

import sys
from typing import cast

import click

from hermes_cli.commands import table
from hermes_cli.commands.app import App, is_terminal, json_option, pass_app
from hermes_cli.commands.group import CommandGroup
from hermes_cli.commands.table import Column
from hermes_core import config
from hermes_core.errors import UsageError
from hermes_core.secrets import masked


@click.group("config", cls=CommandGroup)
def command() -> None:
    """Show and change settings."""


@command.command("show")
@click.option("--reveal", is_flag=True, help="Print secrets too; on a terminal only.")
@table.full_option
@json_option
@pass_app
def show(app: App, reveal: bool, full: bool) -> None:
    """Print every setting with its value; secrets are masked."""
    if reveal and not (is_terminal() and sys.stdin.isatty()):
        raise UsageError(
            "Secrets are shown on a terminal only.", fix="Run it there, without --json."
        )
    values: dict[str, object] = {}
    for option in config.options():
        value = getattr(getattr(app.settings, option.section), option.field)
        values[option.key] = value if reveal else masked(option.key, value)
    if app.as_json:
        app.emit(values)
    rows = [(o.key, _format(values[o.key]), o.description) for o in config.options()]
    columns = ("SETTING", Column("VALUE", wraps=True), Column("MEANING", rank=1))
    table.show(app, columns, rows, full=full or reveal)


@command.command("set")
@click.argument("key")
@click.argument("value")
@json_option
@pass_app
def set_(app: App, key: str, value: str) -> None:
    """Write one setting to config.toml; comments and other lines are kept."""
    parsed = config.parse_value(key, value)
    config.change(app.home, key, parsed)
    if app.as_json:
        app.emit({key: masked(key, parsed)})
    app.say(f"{key} = {_format(masked(key, parsed))} in {app.home.config}")


@command.command("unset")
@click.argument("key")
@json_option
@pass_app
def unset(app: App, key: str) -> None:
    """Reset one setting to its default by removing it from config.toml."""
    config.change(app.home, key, None)
    if app.as_json:
        app.emit({key: None})
    app.say(f"Reset {key} to its default.")


@command.command("path")
@json_option
@pass_app
def path(app: App) -> None:
    """Print the path of config.toml."""
    if app.as_json:
        app.emit({"path": str(app.home.config)})
    app.say(str(app.home.config))


def _format(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return (
        ", ".join(map(str, cast("list[object]", value))) if isinstance(value, list) else str(value)
    )
