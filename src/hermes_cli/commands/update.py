"""`hermes update`: install a new version, or keep the old one whole."""

import sys
from pathlib import Path

import click

from gateway import status
from hermes_cli import update, update_switch
from hermes_cli.commands.app import App, pass_app
from hermes_core import config, installation
from hermes_core.errors import UsageError
from hermes_core.version import VERSION


@click.command("update")
@click.option(
    "--version", "version", metavar="X", help="Install this version instead of the newest."
)
@click.option(
    "--from", "wheel", type=click.Path(path_type=Path), help="Install the version of this wheel."
)
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@click.option("--yes", is_flag=True, help="Update without asking.")
@pass_app
def command(app: App, version: str | None, wheel: Path | None, dry_run: bool, yes: bool) -> None:
    """Update Hermes; if anything fails, the version you have stays.

    The new version is installed beside this one and tried on a copy of your home. Then the gateway is
    stopped, the versions are exchanged, and the gateway is started again. After an interruption, run
    this again: it finishes the update or undoes it.
    """
    config.refuse_in_command("update Hermes")
    if version and wheel:
        raise UsageError("Use either --version or --from.")
    update.refuse_by_hand()
    if (work := update.interrupted()) is not None:
        update.resume(work)
    target = update.find(version, wheel)
    if target.version == VERSION:
        app.say(f"Hermes is up to date: version {VERSION}.")
        return
    pid = status.get_running_pid()
    _say_plan(app, target, pid)
    if dry_run:
        app.say("\nNothing was changed.")
        return
    _refuse_others(pid)
    _confirm(yes)
    update.prepare(app.home, target, app.say)


def _say_plan(app: App, target: update.Target, pid: int | None) -> None:
    app.say(
        f"Hermes {VERSION} becomes {target.version}, from {target.wheel or 'the package index'}:"
    )
    app.say(
        f"  1. back up {app.home.root}" if app.home.root.is_dir() else "  1. no home to back up"
    )
    app.say(f"  2. install beside {sys.prefix} ({installation.method()}), try it on the backup")
    app.say(
        f"  3. {f'stop the gateway (process {pid}), ' if pid else ''}put it in place, check your home"
        f"{', start the gateway' if pid else ''}"
    )


def _refuse_others(gateway: int | None) -> None:
    """Raise UsageError while other processes use the environment."""
    if busy := update_switch.others(Path(sys.prefix), gateway):
        raise UsageError(f"Hermes is in use: {busy[0]}.", fix="Close it, then run: hermes update")


def _confirm(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("Nobody can be asked here.", fix="Add --yes to update.")
    click.confirm("\nUpdate now?", default=True, abort=True)
