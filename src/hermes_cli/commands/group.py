"""Command group that imports its commands lazily."""

import importlib
from typing import NamedTuple

import click


class Entry(NamedTuple):
    """Module and summary of a command."""

    module: str
    help: str
    name: str = "command"


class LazyGroup(click.Group):
    """A group with a table of commands, beside those added by decorator."""

    def __init__(self, *args: object, entries: dict[str, Entry], **settings: object) -> None:
        super().__init__(*args, **settings)  # type: ignore[arg-type]
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self.entries})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if entry := self.entries.get(cmd_name):
            module = importlib.import_module(f"hermes_cli.commands.{entry.module}")
            return getattr(module, entry.name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._about(ctx, name)) for name in self.list_commands(ctx)])

    def _about(self, ctx: click.Context, name: str) -> str:
        if entry := self.entries.get(name):
            return entry.help
        command = self.get_command(ctx, name)
        return command.get_short_help_str(limit=100) if command is not None else ""
