"""`hermes gateway logs`: print the log as text or JSON."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from hermes_cli.commands.app import App, json_option, pass_app
from hermes_core import log

_POLL_INTERVAL_S = 0.1


@click.command("logs")
@click.option(
    "-n", "--lines", default=50, show_default=True, type=click.IntRange(0), help="Number of lines."
)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines.")
@json_option
@pass_app
def show(app: App, lines: int, follow: bool) -> int:
    """Show the log of the gateway."""
    path = app.home.logs / log.FILE
    if not path.exists():
        app.say(f"No log yet; it will be {path}.")
        return 0
    with path.open("rb") as file:
        newest, older = _lines(file), path.with_name(f"{path.name}.1")
        if len(newest) < lines and older.exists():
            newest = [*older.read_bytes().splitlines(keepends=True), *newest]
        for line in newest[max(len(newest) - lines, 0) :]:
            _print(app, line)
        for line in _follow(path, file) if follow else ():
            _print(app, line)
    return 0


def _print(app: App, line: bytes) -> None:
    text = line.decode("utf-8", "replace").rstrip("\n")
    click.echo(text if app.as_json else log.format_line(text), file=app.output)


def _lines(file: BinaryIO) -> list[bytes]:
    """Read complete lines from the current position; an incomplete last line is left."""
    complete, newline, rest = file.read().rpartition(b"\n")
    file.seek(-len(rest), os.SEEK_CUR)
    return (complete + newline).splitlines(keepends=True)


def _follow(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """Yield new lines of the log, across rotations."""
    while True:
        is_rotated = not _is_at(
            path, file
        )  # before reading, so that the old file is read to its end
        lines = _lines(file)
        yield from lines
        if is_rotated and path.exists():
            file = path.open("rb")
        elif not lines:
            time.sleep(_POLL_INTERVAL_S)


def _is_at(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
