"""`hermes config`: the settings that hold, where they come from, and how to change them."""

from typing import cast

import click

from hermes_cli.commands import table
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_core import config


@click.group("config")
def command() -> None:
    """Show and change settings."""


@command.command("show")
@json_option
@pass_app
def show(app: App) -> None:
    """Print every setting and the value it has now."""
    rows = [
        (
            option.key,
            getattr(getattr(app.settings, option.section), option.field),
            option.description,
        )
        for option in config.options()
    ]
    if app.as_json:
        app.emit({key: value for key, value, _ in rows})
    app.say(table.render(("SETTING", "VALUE", "MEANING"), [(k, _shown(v), m) for k, v, m in rows]))


@command.command("set")
@click.argument("key")
@click.argument("value")
@json_option
@pass_app
def set_(app: App, key: str, value: str) -> None:
    """Write one setting to config.toml; comments and other lines stay as they are."""
    parsed = config.parse_value(key, value)
    config.change(app.home, key, parsed)
    if app.as_json:
        app.emit({key: parsed})
    app.say(f"{key} = {_shown(parsed)} in {app.home.config}")


@command.command("unset")
@click.argument("key")
@json_option
@pass_app
def unset(app: App, key: str) -> None:
    """Remove one setting from config.toml, so that its default holds."""
    config.change(app.home, key, None)
    if app.as_json:
        app.emit({key: None})
    app.say(f"{key} has its default again.")


@command.command("path")
@json_option
@pass_app
def path(app: App) -> None:
    """Print where config.toml lies."""
    if app.as_json:
        app.emit({"path": str(app.home.config)})
    app.say(str(app.home.config))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return (
        ", ".join(map(str, cast("list[object]", value))) if isinstance(value, list) else str(value)
    )
