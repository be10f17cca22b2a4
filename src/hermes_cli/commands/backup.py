"""`hermes backup` and `hermes restore`."""

import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import click

from hermes_cli import backup
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_cli.encryption import MAGIC, DecryptingReader, EncryptingWriter
from hermes_core import config
from hermes_core.errors import UsageError
from hermes_core.text import counted

PASSPHRASE = "HERMES_BACKUP_PASSPHRASE"


@click.command("backup")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write to this file; the default is hermes-backup-DATE.tar.gz in this folder.",
)
@click.option("--encrypt", is_flag=True, help="Encrypt with a passphrase.")
@json_option
@pass_app
def make(app: App, output: Path | None, encrypt: bool) -> None:
    """Back up the home while Hermes runs: conversations, settings, memory, skills and the workspace.

    Logs, caches, checkpoints and downloaded models are left out. The file holds your keys, so keep it
    private or encrypt it. The passphrase is asked for, or read from HERMES_BACKUP_PASSPHRASE.
    """
    config.refuse_in_command("make a backup")
    if not app.home.root.is_dir():
        raise UsageError(f"There is nothing to back up: {app.home.root} does not exist.")
    suffix = ".tar.gz.enc" if encrypt else ".tar.gz"
    path = output or Path(time.strftime("hermes-backup-%Y%m%d-%H%M%S") + suffix)
    if path.resolve().is_relative_to(app.home.root.resolve()):
        raise UsageError("A backup inside the home is lost with it.", fix="Choose another folder.")
    passphrase = _passphrase(confirm=True) if encrypt else ""
    with _new_file(path) as file:
        if encrypt:
            sealed = EncryptingWriter(file, passphrase)
            summary = backup.write(app.home, cast("BinaryIO", sealed), _warn)
            sealed.finish()
        else:
            summary = backup.write(app.home, file, _warn)
    if app.as_json:
        app.emit({"file": str(path), "files": summary.files, "bytes": path.stat().st_size})
    app.say(
        f"Wrote {counted(summary.files, 'file')} to {path}. Restore it with: hermes restore {path}"
    )


@click.command("restore")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--check", "only_check", is_flag=True, help="Read the backup; change nothing.")
@click.option("--yes", is_flag=True, help="Restore without asking.")
@json_option
@pass_app
def restore(app: App, file: Path, only_check: bool, yes: bool) -> None:
    """Replace the home by a backup; the former home is kept beside it.

    Stop the gateway and close terminals first. Restore only backups of your own: plugins and settings in
    one decide what Hermes runs.
    """
    config.refuse_in_command("restore a backup")
    with _archive(file) as source:
        if only_check:
            summary, previous = backup.read(source), None
        else:
            _confirm(app, yes)
            summary, previous = backup.restore(app.home, source)
    manifest = summary.manifest
    if app.as_json:
        facts = {"version": manifest.version, "created_at": manifest.created_at}
        previous_home = str(previous) if previous else None
        app.emit(
            {**facts, "files": summary.files, "bytes": summary.size, "previous": previous_home}
        )
        return
    date = time.strftime("%Y-%m-%d %H:%M", time.localtime(manifest.created_at))
    held = f"{counted(summary.files, 'file')} of {date}, version {manifest.version}"
    if only_check:
        app.say(f"The backup is whole: {held}.")
        return
    app.say(f"Restored {held}, to {app.home.root}.")
    if previous is not None:
        app.say(f"The former home is {previous}. Delete it when you no longer need it.")


def _confirm(app: App, yes: bool) -> None:
    if yes or not app.home.root.exists():
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{app.home.root} exists.", fix="Add --yes to replace it.")
    click.confirm(f"Replace {app.home.root}? It is kept under another name.", abort=True, err=True)


@contextmanager
def _new_file(path: Path) -> Generator[BinaryIO]:
    """Write a new private file; nothing is left of it if that fails."""
    if path.exists():
        raise UsageError(f"{path} already exists.", fix="Choose another name.")
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
    except OSError as error:
        raise UsageError(
            f"The backup could not be written: {error.strerror} ({error.filename or path}).",
            fix="Choose another folder with -o.",
        ) from error
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _archive(path: Path) -> Generator[BinaryIO]:
    """Open a backup, and decrypt it if it is encrypted."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    with file:
        if file.read(len(MAGIC)) == MAGIC:
            yield cast("BinaryIO", DecryptingReader(file, _passphrase(confirm=False)))
        else:
            file.seek(0)
            yield file


def _passphrase(*, confirm: bool) -> str:
    if passphrase := config.variable(PASSPHRASE):
        return passphrase
    if not sys.stdin.isatty():
        raise UsageError("A passphrase is needed.", fix=f"Set {PASSPHRASE}.")
    return click.prompt("Passphrase", hide_input=True, confirmation_prompt=confirm, err=True)


def _warn(text: str) -> None:
    click.echo(text, err=True)
