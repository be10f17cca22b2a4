"""Runs `hermes tui` and `hermes attach` as the command line does, for a test that has a terminal."""

import sys

import click

from hermes_cli.commands import attach, tui
from hermes_cli.commands.app import App
from hermes_tui.screens import chat

COMMANDS: dict[str, click.Command] = {"tui": tui.command, "attach": attach.command}

if __name__ == "__main__":
    chat._SECOND_PRESS_S = 60.0  # on a busy machine a second press takes its time
    name, *arguments = sys.argv[1:]
    sys.exit(COMMANDS[name].main(arguments, obj=App(), standalone_mode=False))
