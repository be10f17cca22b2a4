"""`hermes sessions export` and `import`: JSON Lines files, and homes of hermes-agent."""

import codecs
import contextlib
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, TextIO

import click
import msgspec

from hermes_cli.commands.app import App, json_option, pass_app, progress
from hermes_cli.commands.sessions import find_session
from hermes_core.errors import UsageError
from hermes_core.paths import open_private
from hermes_core.text import counted
from hermes_state import SessionDB
from hermes_state.export_format import refusal
from hermes_state.foreign.importer import count_messages, import_hermes_agent


@click.command("export")
@click.argument("sessions", nargs=-1)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write to this file instead of stdout."
)
@json_option
@pass_app
def export(app: App, sessions: tuple[str, ...], output: Path | None) -> None:
    """Export conversations as JSON Lines: the named ones, or all."""
    with app.store_to_read() as store:
        ids = [find_session(store, name) for name in sessions] or None
        if output is None:
            _print(store.export_lines(ids), app.output or sys.stdout)
            return
        if output.exists():
            raise UsageError(f"{output} already exists.", fix="Choose another name.")
        count = _save(output, store.export_lines(ids))
    if app.as_json:
        app.emit({"file": str(output), "lines": count})
    app.say(f"Wrote {count} lines to {output}.")


def _print(lines: Iterable[dict[str, Any]], output: TextIO) -> None:
    try:
        _write(output.buffer, lines)
    except BrokenPipeError:
        raise
    except OSError as error:
        # Otherwise the interpreter would write again at exit and complain.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, output.fileno())
        os.close(nowhere)
        raise _write_error("The export", error) from error


def _save(output: Path, lines: Iterable[dict[str, Any]]) -> int:
    """Write a file atomically."""
    temp = output.with_name(output.name + ".part")
    try:
        with open_private(temp) as file:
            count = _write(file, lines)
        temp.rename(output)
    except OSError as error:
        raise _write_error(str(output), error) from error
    finally:
        temp.unlink(missing_ok=True)
    return count


def _write_error(what: str, error: OSError) -> UsageError:
    return UsageError(
        f"{what} could not be written: {error.strerror}.",
        fix="Nothing was changed. Write it to a place where there is room, and where you may.",
    )


def _write(file: IO[bytes], lines: Iterable[dict[str, Any]]) -> int:
    count = 0
    for line in lines:
        file.write(msgspec.json.encode(line) + b"\n")
        count += 1
    file.flush()
    return count


@click.command("import")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--from-hermes-agent",
    "foreign",
    type=click.Path(path_type=Path),
    help="Import a hermes-agent home, or its state.db.",
)
@json_option
@pass_app
def import_(app: App, file: Path | None, foreign: Path | None) -> None:
    """Import an export of Hermes (- reads stdin), or a hermes-agent home.

    Conversations that already exist are skipped. A bad line stops the import; the conversations
    before it are imported.
    """
    if (file is None) == (foreign is None):
        raise UsageError("Name one file, or --from-hermes-agent PATH.")
    with app.store() as store:
        if foreign is not None:
            _import_foreign(app, store, foreign)
        elif file is not None:
            _import_own(app, store, file)


def _import_own(app: App, store: SessionDB, file: Path) -> None:
    """Import an export file in one pass, so that it may come through a pipe."""
    name = "stdin" if file == _STANDARD_INPUT else str(file)
    try:
        with _opened(file) as lines, _progress(lines) as count:
            report = store.import_lines(_decoded(lines), count)
    except OSError as error:
        raise UsageError(f"Cannot read {name}: {error.strerror}.") from error
    except UsageError as error:
        raise UsageError(f"{name}: {error.message}", fix=error.fix) from error
    if app.as_json:
        return app.emit(report._asdict())
    app.say(
        f"Imported {counted(len(report.imported), 'session')} with"
        f" {counted(report.messages, 'message')}."
    )
    if report.skipped:
        app.say(f"Skipped {counted(len(report.skipped), 'session')} that already exist here.")
    if report.detached:
        number = counted(len(report.detached), "session")
        app.say(f"Imported without their origin, which is missing: {number}.")
    if report.interrupted:
        app.say(f"Marked the unfinished last turn as interrupted in: {_names(report.interrupted)}.")
    if report.recounted:
        app.say(f"Corrected the message count of: {_names(report.recounted)}.")
    for session_id, title in report.retitled.items():
        app.say(f"Renamed {session_id} to {title!r}: its title already exists.")
    return None


_STANDARD_INPUT = Path("-")


@contextlib.contextmanager
def _opened(file: Path) -> Generator[IO[bytes]]:
    if file == _STANDARD_INPUT:
        if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] -- None if closed
            raise UsageError("stdin is closed.", fix="Name a file.")
        yield sys.stdin.buffer
    else:
        with file.open("rb") as lines:
            yield lines


@contextlib.contextmanager
def _progress(lines: IO[bytes]) -> Generator[Callable[[int], None]]:
    """Show a progress bar, except for a pipe, which has no length."""
    if not lines.seekable():
        yield lambda _lines: None
        return
    total = sum(1 for _ in lines)
    lines.seek(0)
    with progress(total, "Importing") as count:
        yield count


def _decoded(lines: IO[bytes]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        line = line.removeprefix(codecs.BOM_UTF8).strip()
        if not line:
            continue
        try:
            yield msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise refusal(number, str(error).rstrip(".")) from error


def _names(ids: list[str]) -> str:
    return ", ".join(ids)


def _import_foreign(app: App, store: SessionDB, path: Path) -> None:
    with progress(count_messages(path), "Importing") as count:
        report = import_hermes_agent(store, path, count)
    if app.as_json:
        return app.emit(report._asdict())
    for line in report.lines():
        app.say(line)
    return None
