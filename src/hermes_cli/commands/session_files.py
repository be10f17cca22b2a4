"""`hermes sessions export` and `import`: conversations in files, ours and those of hermes-agent."""

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
from hermes_cli.commands.sessions import chosen
from hermes_core.errors import UsageError
from hermes_core.paths import open_private
from hermes_state import SessionDB
from hermes_state.export_format import refusal
from hermes_state.foreign.importer import count_messages, import_hermes_agent


@click.command("export")
@click.argument("sessions", nargs=-1)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="A file instead of the screen."
)
@json_option
@pass_app
def export(app: App, sessions: tuple[str, ...], output: Path | None) -> None:
    """Write conversations as JSON Lines: those named, or all. `import` takes them back."""
    with app.store_to_read() as store:
        ids = [chosen(store, name) for name in sessions] or None
        if output is None:
            _print(store.export_lines(ids), app.output or sys.stdout)
            return
        if output.exists():
            raise UsageError(f"{output} exists already.", fix="Choose another name.")
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
        # What could not be written would be tried again when the process ends, and complained about.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, output.fileno())
        os.close(nowhere)
        raise _unwritten("The export", error) from error


def _save(output: Path, lines: Iterable[dict[str, Any]]) -> int:
    """Write a file that is whole, or none."""
    draft = output.with_name(output.name + ".part")
    try:
        with open_private(draft) as file:
            count = _write(file, lines)
        draft.rename(output)
    except OSError as error:
        raise _unwritten(str(output), error) from error
    finally:
        draft.unlink(missing_ok=True)
    return count


def _unwritten(what: str, error: OSError) -> UsageError:
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
    help="A state.db of hermes-agent, or the home it lies in.",
)
@json_option
@pass_app
def import_(app: App, file: Path | None, foreign: Path | None) -> None:
    """Take in an export of Hermes (- for what comes through a pipe), or all a hermes-agent home has.

    Conversations come in one by one. At a line that is not right the import stops: the conversations
    before it are taken, its own and those after it are not. What is here already is left alone.
    """
    if (file is None) == (foreign is None):
        raise UsageError("Name one file, or --from-hermes-agent PATH.")
    with app.store() as store:
        if foreign is not None:
            _import_foreign(app, store, foreign)
        elif file is not None:
            _import_own(app, store, file)


def _import_own(app: App, store: SessionDB, file: Path) -> None:
    """Take in an export; it is read once, from its beginning, so that it may come through a pipe."""
    name = "The standard input" if file == _STANDARD_INPUT else str(file)
    try:
        with _opened(file) as lines, _progress(lines) as count:
            report = store.import_lines(_decoded(lines), count)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}.") from error
    except UsageError as error:
        raise UsageError(f"{name}: {error.message}", fix=error.fix) from error
    if app.as_json:
        return app.emit(report._asdict())
    app.say(f"Took {len(report.imported)} sessions with {report.messages} messages.")
    if report.skipped:
        app.say(f"Left {len(report.skipped)} sessions alone: they are here already.")
    if report.detached:
        app.say(f"{len(report.detached)} stand alone now: what they came from is not here.")
    if report.interrupted:
        app.say(
            f"Not over when exported, over here: the last turn of {_names(report.interrupted)}."
        )
    if report.recounted:
        app.say(f"Other messages than they said they had: {_names(report.recounted)}.")
    for session_id, title in report.retitled.items():
        app.say(f"{session_id} is now called {title!r}: its title was taken.")
    return None


_STANDARD_INPUT = Path("-")


@contextlib.contextmanager
def _opened(file: Path) -> Generator[IO[bytes]]:
    if file == _STANDARD_INPUT:
        if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] -- a closed one is None
            raise UsageError("There is no standard input.", fix="Name a file.")
        yield sys.stdin.buffer
    else:
        with file.open("rb") as lines:
            yield lines


@contextlib.contextmanager
def _progress(lines: IO[bytes]) -> Generator[Callable[[int], None]]:
    """A bar for what has a length; what comes through a pipe has none, and is read only once."""
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
