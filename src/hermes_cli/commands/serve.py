"""`hermes serve`: a server that stays, for the terminals that attach to it."""

import importlib
from pathlib import Path
from typing import Any

import click

from hermes_cli import interface
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_core import config
from hermes_core.errors import ConfigError


@click.command("serve")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="Listen on this port; without it, on any that is free.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False, resolve_path=True),
    metavar="FILE",
    help="Write address and token there, for a client of your own; `hermes attach` does not look there.",
)
@json_option
@pass_app
def command(app: App, port: int, token_file: Path | None) -> None:
    """Keep a server running in the foreground; `hermes attach` opens its conversations.

    Only this user of this machine gets in. Ctrl-C ends it; what was not answered then goes on when the
    conversation is opened again.
    """
    config.pass_on(app.overrides)
    entry: Any = importlib.import_module("tui_gateway.entry")
    try:
        entry.serve(port, token_file, None if app.as_json else _tell)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error}.", fix=f"Install it: {interface.INSTALL}.") from error


def _tell(address: Any, file: Path) -> None:  # noqa: ANN401 -- of the server, which is loaded late
    click.echo(f"Listening on {address.url} (process {address.pid}); the token is in {file}.")
    click.echo("`hermes attach` on another terminal opens a conversation. Ctrl-C ends the server.")
