"""`hermes version` and `hermes help`."""

import click

from hermes_cli.commands.app import App, json_option, pass_app


@click.command("version")
@json_option
@pass_app
def show_version(app: App) -> None:
    """Show the version."""
    app.print_version()


@click.command("help")
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def show_help(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command, or of all."""
    current = ctx.find_root()
    for word in words:
        group = current.command
        if not isinstance(group, click.Group):
            raise click.UsageError(f"{current.command_path} has no commands.", current)
        name, command, _ = group.resolve_command(current, [word])
        if command is not None:
            current = click.Context(command, parent=current, info_name=name)
    click.echo(current.get_help())
