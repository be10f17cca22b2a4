"""`hermes chat`: the agent in the terminal. What it takes is loaded when it is used."""

import importlib
import sys
from pathlib import Path

import click

from hermes_cli.commands.app import App, json_option, pass_app


@click.command("chat")
@click.option(
    "-q", "--query", metavar="TEXT", help="Ask once, print the answer, exit; - reads it from stdin."
)
@click.option(
    "-c", "--continue", "continues", is_flag=True, help="Go on with the last conversation."
)
@click.option("-r", "--resume", metavar="ID|TITLE", help="Go on with this conversation.")
@click.option("-m", "--model", default="", metavar="NAME", help="Ask this model: provider/model.")
@click.option(
    "-w",
    "--workspace",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    metavar="FOLDER",
    help="Work in this folder instead of the current one.",
)
@click.option("--pull", is_flag=True, help="Without any model, fetch the embedded one; do not ask.")
@json_option
@pass_app
def command(
    app: App,
    query: str | None,
    continues: bool,
    resume: str | None,
    model: str,
    workspace: Path | None,
    pull: bool,
) -> int:
    """Talk with the agent. With -q, or with something piped in, ask once."""
    parts = importlib.import_module("hermes_cli.chat.parts")
    wishes = parts.Wishes(query, continues, resume, model, workspace, pull)
    session = importlib.import_module("hermes_cli.chat.session")
    is_interactive = query is None and sys.stdin.isatty()
    return session.interactive(app, wishes) if is_interactive else session.once(app, wishes)
