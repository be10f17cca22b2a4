"""`hermes tui`: the terminal UI, imported lazily."""

import importlib
from pathlib import Path
from typing import Any

import click

from hermes_cli import interface
from hermes_cli.commands.app import App, pass_app
from hermes_core import config


def opening_options(command: Any) -> Any:  # noqa: ANN401 -- a decorator of whatever click accepts
    """Add the options that `hermes`, `hermes tui` and `hermes chat` share."""
    folder = click.Path(path_type=Path, file_okay=False, exists=True, resolve_path=True)
    for option in (
        click.option(
            "--pull",
            is_flag=True,
            help="Without any model, download the embedded one without asking.",
        ),
        click.option(
            "-w",
            "--workspace",
            type=folder,
            metavar="FOLDER",
            help="Work in FOLDER instead of the current folder.",
        ),
        click.option(
            "-m", "--model", default="", metavar="NAME", help="Use this model: provider/model."
        ),
        click.option(
            "-r", "--resume", default="", metavar="ID|TITLE", help="Continue this conversation."
        ),
        click.option(
            "-c", "--continue", "continues", is_flag=True, help="Continue the last conversation."
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
    """Open the terminal UI."""
    opening = importlib.import_module("hermes_tui.opening").Opening(
        resume=resume, continues=continues, cwd=str(workspace or ""), model=model, pulls=pull
    )
    config.pass_on(app.overrides)
    transport = importlib.import_module("hermes_tui.transport")
    return interface.run(app.home, transport.ChildTransport.start, opening)
