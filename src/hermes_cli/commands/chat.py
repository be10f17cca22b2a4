"""`hermes chat`: the agent in the terminal."""

import click

from hermes_core.errors import UsageError


@click.command("chat")
def command() -> None:
    """Talk with the agent."""
    raise UsageError(
        "The agent is not part of this version yet; the session store, its commands and the plugin "
        "host are.",
        fix="Try: hermes sessions list, hermes doctor, hermes plugins list.",
    )
