"""`hermes serve`: a server that terminals attach to."""

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
    help="Listen on PORT; the default is any free port.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False, resolve_path=True),
    metavar="FILE",
    help="Write address and token to FILE, for a client of your own.",
)
@json_option
@pass_app
def command(app: App, port: int, token_file: Path | None) -> None:
    """Run a server in the foreground; open its conversations with `hermes attach`.

    Only you can connect, from this machine. Ctrl-C stops it; an unanswered turn continues when its
    conversation is opened again.
    """
    config.pass_on(app.overrides)
    entry: Any = importlib.import_module("tui_gateway.entry")
    try:
        entry.serve(port, token_file, None if app.as_json else _print_address)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error}.", fix=f"Install it: {interface.install_hint()}.") from error


def _print_address(address: Any, file: Path) -> None:  # noqa: ANN401 -- its module is imported lazily
    click.echo(f"Listening on {address.url} (process {address.pid}); the token is in {file}.")
    click.echo(
        "Open a conversation with `hermes attach` on another terminal. Ctrl-C stops the server."
    )
