"""`hermes chat`: line mode and one-shot questions. Imports the agent lazily."""

import importlib
import sys
from pathlib import Path

import click

from hermes_cli.commands.app import App, json_option, pass_app
from hermes_cli.commands.tui import opening_options


@click.command("chat")
@click.option(
    "-q",
    "--query",
    metavar="TEXT",
    help="Ask once, print the answer and exit; - reads the question from stdin.",
)
@opening_options
@json_option
@pass_app
def command(
    app: App,
    query: str | None,
    continues: bool,
    resume: str,
    model: str,
    workspace: Path | None,
    pull: bool,
) -> int:
    """Chat line by line. With -q or with piped input, ask one question."""
    resources = importlib.import_module("hermes_cli.chat.resources")
    options = resources.ChatOptions(query, continues, resume or None, model, workspace, pull)
    modes = importlib.import_module("hermes_cli.chat.modes")
    is_interactive = query is None and sys.stdin.isatty()
    return modes.interactive(app, options) if is_interactive else modes.once(app, options)
