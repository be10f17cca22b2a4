"""`hermes tui`: the terminal user interface. What it takes is loaded when it is used."""

import importlib
from pathlib import Path
from typing import Any

import click

from hermes_cli import interface
from hermes_cli.commands.app import App, pass_app
from hermes_core import config


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
    return interface.run(app.home, transport.ChildTransport.start, opening)
