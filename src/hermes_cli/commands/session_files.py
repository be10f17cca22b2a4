"""`hermes sessions export` and `import`: files for people and programs, and homes of hermes-agent."""

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
from hermes_core import config, secrets
from hermes_core.errors import UsageError
from hermes_core.paths import open_private
from hermes_core.text import counted, human_size
from hermes_state import SessionDB
from hermes_state.export_format import refusal
from hermes_state.foreign.importer import count_messages, import_hermes_agent
from hermes_state.ledger import listing
from hermes_state.values import Filter


@click.command("export")
@click.argument("sessions", nargs=-1)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write to this file instead of stdout."
)
@click.option(
    "-f",
    "--format",
    "format_",
    type=click.Choice(["jsonl", "markdown", "html", "atif"]),
    default="jsonl",
    show_default=True,
    help="jsonl can be imported again; markdown and html are for people; atif is for other programs.",
)
@click.option("--full", is_flag=True, help="markdown: whole tool calls. html: tool calls are open.")
@json_option
@pass_app
def export(
    app: App, sessions: tuple[str, ...], output: Path | None, format_: str, full: bool
) -> None:
    """Export conversations: the named ones, or all. Secrets are redacted.

    An atif file has one conversation per line.
    """
    secrets.register(config.secrets(app.settings))
    with app.store_to_read() as store:
        ids = [find_session(store, name) for name in sessions] or None
        pieces = _pieces(store, ids, format_, full)
        if output is None:
            _print(pieces, app.output or sys.stdout)
            return
        if output.exists():
            raise UsageError(f"{output} already exists.", fix="Choose another name.")
        lines, size = _save(output, pieces)
    if app.as_json:
        app.emit({"file": str(output), "lines": lines})
    app.say(f"Wrote {counted(lines, 'line')} ({human_size(size)}) to {output}.")


def _pieces(store: SessionDB, ids: list[str] | None, format_: str, full: bool) -> Iterator[bytes]:
    """Yield the export piece by piece, each from one moment of the store."""
    if format_ == "jsonl":
        for line in store.export_lines(ids):
            yield secrets.redact_bytes(msgspec.json.encode(line)) + b"\n"
        return
    from hermes_cli.transcripts import atif, html, markdown, transcript  # noqa: PLC0415 -- slow

    names = ids if ids is not None else _conversations(store)
    found = (store.read(transcript.load, name) for name in dict.fromkeys(names))
    if format_ == "html":
        yield from (piece.encode() for piece in html.render(found, full=full))
        return
    for number, conversation in enumerate(found):
        if format_ == "atif":
            if conversation.entries:
                yield msgspec.json.encode(atif.trajectory(conversation)) + b"\n"
            continue
        if number:
            yield b"\n---\n\n"
        yield from (piece.encode() for piece in markdown.render(conversation, full=full))


def _conversations(store: SessionDB) -> list[str]:
    """Return all conversations, oldest first."""
    rows = store.read(listing.select, Filter(include_archived=True), limit=None)
    return [row["id"] for row in sorted(rows, key=lambda row: row["started_at"])]


def _print(pieces: Iterable[bytes], output: TextIO) -> None:
    try:
        _write(output.buffer, pieces)
    except BrokenPipeError:
        raise
    except OSError as error:
        # Otherwise the interpreter would write again at exit and complain.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, output.fileno())
        os.close(nowhere)
        raise _write_error("The export", error) from error


def _save(output: Path, pieces: Iterable[bytes]) -> tuple[int, int]:
    """Write a file atomically; return its lines and bytes."""
    temp = output.with_name(output.name + ".part")
    try:
        with open_private(temp) as file:
            written = _write(file, pieces)
        temp.rename(output)
    except OSError as error:
        raise _write_error(str(output), error) from error
    finally:
        temp.unlink(missing_ok=True)
    return written


def _write_error(what: str, error: OSError) -> UsageError:
    return UsageError(
        f"{what} could not be written: {error.strerror}.",
        fix="Nothing was changed. Choose a place that is writable and has room.",
    )


def _write(file: IO[bytes], pieces: Iterable[bytes]) -> tuple[int, int]:
    lines = size = 0
    for piece in pieces:
        file.write(piece)
        lines += piece.count(b"\n")
        size += len(piece)
    file.flush()
    return lines, size


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
