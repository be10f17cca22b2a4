"""`hermes tui`: the terminal user interface. What it takes is loaded when it is used."""

import importlib
import sys
from pathlib import Path

import click

from hermes_cli.commands.app import App, pass_app
from hermes_core import config, log
from hermes_core.errors import ConfigError, UsageError


@click.command("tui")
@click.option(
    "-c", "--continue", "continues", is_flag=True, help="Go on with the last conversation."
)
@click.option(
    "-r", "--resume", default="", metavar="ID|TITLE", help="Go on with this conversation."
)
@click.option("-m", "--model", default="", metavar="NAME", help="Ask this model: provider/model.")
@click.option(
    "-w",
    "--workspace",
    type=click.Path(path_type=Path, file_okay=False, exists=True, resolve_path=True),
    metavar="FOLDER",
    help="Work in this folder instead of the current one.",
)
@pass_app
def command(app: App, continues: bool, resume: str, model: str, workspace: Path | None) -> int:
    """Talk with the agent on the whole terminal."""
    opening = importlib.import_module("hermes_tui.opening").Opening(
        resume=resume, continues=continues, cwd=str(workspace or ""), model=model
    )
    config.pass_on(app.overrides)
    transport = importlib.import_module("hermes_tui.transport")
    return run(app, transport.ChildTransport.start, opening)


def run(app: App, connect: object, opening: object) -> int:
    """Run the interface on this terminal; returns the exit status."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "The user interface needs a terminal.", fix='Try: hermes chat -q "your question".'
        )
    log.set_up(app.home.create().logs, "info")
    try:
        interface = importlib.import_module("hermes_tui.app")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"The user interface is not installed: {error}.",
            fix="Install it with: pip install 'hermes[tui]', or use hermes chat.",
        ) from error
    status = interface.HermesApp(connect, app.home, opening).run()
    return status if isinstance(status, int) else 1
