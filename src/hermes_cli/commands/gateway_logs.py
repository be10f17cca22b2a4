"""`hermes gateway logs`: the log, as lines for a person or as the JSON that it is."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from hermes_cli.commands.app import App, json_option, pass_app
from hermes_core import log

_LOOK_EVERY_S = 0.1


@click.command("logs")
@click.option(
    "-n", "--lines", default=50, show_default=True, type=click.IntRange(0), help="How many lines."
)
@click.option("-f", "--follow", is_flag=True, help="Go on as it grows.")
@json_option
@pass_app
def show(app: App, lines: int, follow: bool) -> int:
    """Show the log of the gateway."""
    path = app.home.logs / log.FILE
    if not path.exists():
        app.say(f"There is no log yet; it will be {path}.")
        return 0
    with path.open("rb") as file:
        newest, older = _lines(file), path.with_name(f"{path.name}.1")
        if len(newest) < lines and older.exists():
            newest = [*older.read_bytes().splitlines(keepends=True), *newest]
        for line in newest[max(len(newest) - lines, 0) :]:
            _print(app, line)
        for line in _growing(path, file) if follow else ():
            _print(app, line)
    return 0


def _print(app: App, line: bytes) -> None:
    text = line.decode("utf-8", "replace").rstrip("\n")
    click.echo(text if app.as_json else log.readable(text), file=app.output)


def _lines(file: BinaryIO) -> list[bytes]:
    """The whole lines that follow in a file; one that is still being written is left for later."""
    whole, mark, rest = file.read().rpartition(b"\n")
    file.seek(-len(rest), os.SEEK_CUR)
    return (whole + mark).splitlines(keepends=True)


def _growing(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """Return what is written to the log from now on, also when it makes room for itself meanwhile."""
    while True:
        is_full = not _is_at(path, file)  # before reading, so that it is read to its end
        lines = _lines(file)
        yield from lines
        if is_full and path.exists():
            file = path.open("rb")
        elif not lines:
            time.sleep(_LOOK_EVERY_S)


def _is_at(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
