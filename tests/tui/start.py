"""Runs `hermes tui` and `hermes attach` as the command line does, for a test that has a terminal."""

import sys

import click

from hermes_cli.commands import attach, tui
from hermes_cli.commands.app import App

COMMANDS: dict[str, click.Command] = {"tui": tui.command, "attach": attach.command}

if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    sys.exit(COMMANDS[name].main(arguments, obj=App(), standalone_mode=False))
