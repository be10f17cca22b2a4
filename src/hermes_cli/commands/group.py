"""Command groups; one imports its commands lazily."""

import importlib
from typing import NamedTuple

import click

from hermes_core.text import similar


class Entry(NamedTuple):
    """Module and summary of a command."""

    module: str
    help: str
    name: str = "command"


class CommandGroup(click.Group):
    """A group that shows its help when called alone, and names the nearest of an unknown command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command {args[0]!r}.{self.advice(ctx, args[0])}", ctx)
        return super().resolve_command(ctx, args)

    def advice(self, ctx: click.Context, name: str) -> str:
        """Return what to do instead of an unknown command, or an empty string."""
        near = similar(name, self.list_commands(ctx), cutoff=0.75)
        return f" Did you mean: {ctx.command_path} {near[0]}?" if near else ""


class LazyGroup(CommandGroup):
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
