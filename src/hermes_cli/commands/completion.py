"""`hermes completion`: completion scripts for shells."""

import click
from click.shell_completion import get_completion_class

from hermes_core.errors import UsageError


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL; save it where your shell looks for it.

    \b
    bash: hermes completion bash > ~/.local/share/bash-completion/completions/hermes
    zsh:  hermes completion zsh > ~/.zfunc/_hermes
    fish: hermes completion fish > ~/.config/fish/completions/hermes.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"No completion for {shell}.")
    root = ctx.find_root().command
    click.echo(kind(root, {}, "hermes", "_HERMES_COMPLETE").source())
