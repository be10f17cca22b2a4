"""`hermes config`: show and change settings."""

from typing import cast

import click

from hermes_cli.commands import table
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_core import config
from hermes_core.command_environment import is_secret_name


@click.group("config")
def command() -> None:
    """Show and change settings."""


@command.command("show")
@json_option
@pass_app
def show(app: App) -> None:
    """Print every setting with its value; secrets are masked."""
    values = {
        option.key: _masked(
            option.field, getattr(getattr(app.settings, option.section), option.field)
        )
        for option in config.options()
    }
    if app.as_json:
        app.emit(values)
    rows = [(o.key, _format(values[o.key]), o.description) for o in config.options()]
    app.say(table.render(("SETTING", "VALUE", "MEANING"), rows))


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
        app.emit({key: _masked(key, parsed)})
    app.say(f"{key} = {_format(_masked(key, parsed))} in {app.home.config}")


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


def _masked(name: str, value: object) -> object:
    """Return the value without secrets, which people would paste into bug reports."""
    if isinstance(value, dict):
        return {key: _masked(key, item) for key, item in cast("dict[str, object]", value).items()}
    return "********" if value and is_secret_name(name) else value


def _format(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return (
        ", ".join(map(str, cast("list[object]", value))) if isinstance(value, list) else str(value)
    )
