"""`hermes sessions export` and `import`: conversations in files, ours and those of hermes-agent."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import click
import msgspec

from hermes_cli.commands.app import App, json_option, pass_app
from hermes_cli.commands.sessions import chosen
from hermes_core.errors import UsageError
from hermes_core.paths import open_private
from hermes_state import SessionDB
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
    with app.store() as store:
        ids = [chosen(store, name) for name in sessions] or None
        if output is None:
            _write(sys.stdout.buffer, store.export_lines(ids))
            return
        if output.exists():
            raise UsageError(f"{output} exists already.", fix="Choose another name.")
        draft = output.with_name(output.name + ".part")
        with open_private(draft) as file:
            count = _write(file, store.export_lines(ids))
        draft.rename(output)
    if app.as_json:
        app.emit({"file": str(output), "lines": count})
    app.say(f"Wrote {count} lines to {output}.")


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
    """Take in an export of Hermes, or everything a hermes-agent home has."""
    if (file is None) == (foreign is None):
        raise UsageError("Name one file, or --from-hermes-agent PATH.")
    with app.store() as store:
        if foreign is not None:
            _import_foreign(app, store, foreign)
        elif file is not None:
            _import_own(app, store, file)


def _import_own(app: App, store: SessionDB, file: Path) -> None:
    try:
        with file.open("rb") as lines:
            total = sum(1 for _ in lines)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from error
    with click.progressbar(length=total, label="Importing", file=sys.stderr) as bar:
        report = store.import_lines(_lines(file), bar.update)
    if app.as_json:
        return app.emit(report._asdict())
    app.say(f"Took {len(report.imported)} sessions with {report.messages} messages.")
    if report.skipped:
        app.say(f"Left {len(report.skipped)} sessions alone: they are here already.")
    if report.detached:
        app.say(f"{len(report.detached)} stand alone now: what they came from is not here.")
    for session_id, title in report.retitled.items():
        app.say(f"{session_id} is now called {title!r}: its title was taken.")
    return None


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield msgspec.json.decode(line, type=dict[str, Any])
            except msgspec.DecodeError as error:
                raise UsageError(
                    f"{file}, line {number}: {error}.",
                    fix="Conversations before this line were taken in; correct it and import again.",
                ) from error


def _import_foreign(app: App, store: SessionDB, path: Path) -> None:
    total = count_messages(path)
    with click.progressbar(length=total, label="Importing", file=sys.stderr) as bar:
        report = import_hermes_agent(store, path, bar.update)
    if app.as_json:
        return app.emit(report._asdict())
    for line in report.lines():
        app.say(line)
    return None
