"""`hermes tui`: the terminal user interface. What it takes is loaded when it is used."""

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import click

from hermes_cli.commands.app import App, pass_app
from hermes_core import config, log
from hermes_core.errors import ConfigError, UsageError

INSTALL = "pip install 'hermes[tui]'"


def opening_options(command: Any) -> Any:  # noqa: ANN401 -- a decorator of whatever click accepts
    """What can be said about the conversation to open; `hermes` alone takes the same."""
    folder = click.Path(path_type=Path, file_okay=False, exists=True, resolve_path=True)
    for option in (
        click.option(
            "--pull", is_flag=True, help="Without any model, fetch the embedded one; do not ask."
        ),
        click.option(
            "-w",
            "--workspace",
            type=folder,
            metavar="FOLDER",
            help="Work in this folder instead of the current one.",
        ),
        click.option(
            "-m", "--model", default="", metavar="NAME", help="Ask this model: provider/model."
        ),
        click.option(
            "-r", "--resume", default="", metavar="ID|TITLE", help="Go on with this conversation."
        ),
        click.option(
            "-c", "--continue", "continues", is_flag=True, help="Go on with the last conversation."
        ),
    ):
        command = option(command)
    return command


@click.command("tui")
@opening_options
@pass_app
def command(
    app: App, continues: bool, resume: str, model: str, workspace: Path | None, pull: bool
) -> int:
    """Talk with the agent on the whole terminal."""
    opening = importlib.import_module("hermes_tui.opening").Opening(
        resume=resume, continues=continues, cwd=str(workspace or ""), model=model, pulls=pull
    )
    config.pass_on(app.overrides)
    transport = importlib.import_module("hermes_tui.transport")
    return run(app, transport.ChildTransport.start, opening)


def is_possible() -> bool:
    """Whether this terminal, if it is one, can show the interface."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not config.is_dumb_terminal()


def is_installed() -> bool:
    """Whether the `tui` extra is there."""
    return importlib.util.find_spec("textual") is not None


def run(app: App, connect: object, opening: object) -> int:
    """Run the interface on this terminal; returns the exit status."""
    if not is_possible():
        raise UsageError(
            "The user interface needs a terminal.", fix='Try: hermes chat -q "your question".'
        )
    if not is_installed():
        raise ConfigError(
            "The user interface is not installed.",
            fix=f"Install it: {INSTALL}. Or use: hermes chat.",
        )
    log.set_up(app.home.create().logs, "info")
    interface = importlib.import_module("hermes_tui.app")
    status = interface.HermesApp(connect, app.home, opening).run()
    return status if isinstance(status, int) else 1
