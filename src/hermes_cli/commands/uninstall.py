"""`hermes uninstall`: remove the service and the program, and say what stays."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click

from gateway import status
from hermes_cli.commands import gateway, gateway_service
from hermes_cli.commands.app import App, pass_app
from hermes_core import config, installation
from hermes_core.errors import HermesError, UsageError
from hermes_core.paths import Home
from hermes_core.text import counted, shell_quoted
from hermes_state.engines.sqlite.presence import alone_with
from hermes_state.ledger import listing

_SOURCE = Path(__file__).resolve().parents[3]
"""The folder of a clone."""


@click.command("uninstall")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed, and what stays.")
@click.option("--delete-home", is_flag=True, help="Also delete the home; you type its name.")
@click.option("--yes", is_flag=True, help="Do not ask before the program is removed.")
@pass_app
def command(app: App, dry_run: bool, delete_home: bool, yes: bool) -> None:
    """Stop the gateway, remove its service, then remove the program by the installer you used.

    Your home stays: conversations, settings, keys, memory and skills. To delete it as well, add
    --delete-home and type its name when asked.
    """
    config.refuse_in_command("uninstall Hermes")
    delete_home = delete_home and app.home.root.is_dir()
    if delete_home:
        _refuse_foreign(app.home)
    _say_plan(app, delete_home)
    if dry_run:
        app.say("\nNothing was changed.")
        return
    _confirm(app, delete_home, yes)
    _stop_gateway(app)
    if delete_home:
        _delete(app)
    _remove_program(app)


def _say_plan(app: App, delete_home: bool) -> None:
    app.say("This removes:")
    for line in (*_services(), *_home(app, delete_home), *_program()):
        app.say(f"  {line}")
    stays = [line for line in _what_stays(app, delete_home) if line]
    if stays:
        app.say("\nThis stays:")
    for line in stays:
        app.say(f"  {line}")


def _services() -> Iterator[str]:
    if (pid := status.get_running_pid()) is not None:
        yield f"the running gateway, process {pid}: it is stopped, and running turns finish first"
    if gateway_service.runs_this_program():
        yield f"the service: {gateway_service.path()}"


def _home(app: App, delete_home: bool) -> Iterator[str]:
    if delete_home:
        yield f"the home for good: {_described(app)}"


def _program() -> Iterator[str]:
    words = installation.uninstall_command()
    if not words:
        yield "the program: a clone, which you remove yourself (see the last line)"
    elif _can_run(words):
        yield f"the program: {_command_line(words)}"
    else:
        yield f"the program: run this yourself, as {words[0]} was not found: {_command_line(words)}"


def _what_stays(app: App, delete_home: bool) -> Iterator[str]:
    root = app.home.root
    if root.is_dir() and not delete_home:
        yield f"the home with your conversations, settings and keys: {_described(app)}"
        yield "  to delete it as well: hermes uninstall --delete-home"
    for path in sorted(root.parent.glob(f"{root.name}.before-*")):
        yield f"an earlier copy of the home: {path}"
    if gateway_service.path().exists() and not gateway_service.runs_this_program():
        yield f"the service of another installation: {gateway_service.path()}"
    if installation.method() is installation.Method.PIP:
        yield f"the libraries that pip installed with it, in {sys.prefix}"
    if installation.method() is installation.Method.CLONE:
        yield f"the clone: {_SOURCE}"


def _described(app: App) -> str:
    """Return the home with its size and the number of conversations."""
    size = 0
    for folder, _names, files in os.walk(app.home.root):
        for name in files:
            with suppress(OSError):
                size += Path(folder, name).lstat().st_size
    text = f"{app.home.root} ({size / 1e6:.1f} MB"
    if app.home.database.exists():
        with suppress(HermesError), app.store_to_read() as store:
            text += f", {counted(store.read(listing.stats)['conversations'], 'conversation')}"
    return f"{text})"


def _confirm(app: App, delete_home: bool, yes: bool) -> None:
    """Ask before anything is removed; the home is deleted only if its name is typed."""
    is_asked = delete_home or not yes
    if is_asked and not sys.stdin.isatty():
        fix = "Run this in a terminal." if delete_home else "Add --yes to remove the program."
        raise UsageError("Nothing was removed, as nobody can be asked here.", fix=fix)
    if delete_home:
        app.say("\nKeep a copy first with: hermes backup (this deletes everything in the home).")
        typed = click.prompt(f"Type {app.home.root} to delete it", default="", show_default=False)
        if typed.strip() != str(app.home.root):
            raise UsageError("The name does not match, so nothing was removed.")
    elif not yes:
        click.confirm("\nRemove Hermes?", abort=True)


def _refuse_foreign(home: Home) -> None:
    """Raise UsageError unless a folder is certainly a home of ours and nothing else."""
    root = home.root.resolve()
    is_ours = home.database.exists() or home.config.exists()
    if not is_ours or root in (Path.home().resolve(), Path(root.anchor)):
        raise UsageError(
            f"{root} is not a home of Hermes alone, so it is not deleted.",
            fix="Remove its files yourself.",
        )


def _stop_gateway(app: App) -> None:
    if gateway_service.runs_this_program():
        reason = gateway_service.remove()
        app.say("Removed the service.")
        if reason:
            click.echo(reason, err=True)
    if gateway.stop_running(app):
        app.say("Stopped the gateway.")


def _delete(app: App) -> None:
    """Delete the home; a rename comes first, so that no part of a home is ever in its place."""
    root = app.home.root
    doomed = root.with_name(f".{root.name}.deleted-{os.urandom(4).hex()}")
    with alone_with(app.home.database):
        root.rename(doomed)
    shutil.rmtree(doomed)
    app.say(f"Deleted {root}.")


def _remove_program(app: App) -> None:
    """Let the installer take the place of this process: our modules are gone when it ends."""
    words = installation.uninstall_command()
    if not words:
        app.say(f"To remove the program: rm -r {shell_quoted(_SOURCE)}")
    elif not _can_run(words):
        app.say(f"To remove the program: {_command_line(words)}")
    else:
        sys.stdout.flush()
        os.execvp(words[0], words)


def _can_run(words: list[str]) -> bool:
    """Return whether a command can be run here."""
    if words[:2] == [sys.executable, "-m"]:
        return importlib.util.find_spec(words[2]) is not None
    return shutil.which(words[0]) is not None


def _command_line(words: list[str]) -> str:
    return " ".join(map(shell_quoted, words))
