"""`hermes doctor`: what is wrong with this installation, and its repair."""

import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal, NamedTuple

import click

from hermes_cli.commands import table
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_core import config
from hermes_core.errors import HermesError, StoreCorruptError
from hermes_core.settings import Settings
from hermes_core.text import typed
from hermes_core.version import VERSION
from hermes_state import SessionDB
from hermes_state.engines.sqlite import connection, maintenance, repair
from hermes_state.ledger import listing

EXIT_PROBLEMS = 1
_LEAST_FREE_BYTES = 200 * 1024 * 1024


class Finding(NamedTuple):
    """One thing that was looked at."""

    what: str
    state: Literal["ok", "fixed", "warning", "problem"]
    detail: str


@click.command("doctor")
@click.option("--fix", is_flag=True, help="Repair what can be repaired.")
@json_option
@pass_app
def command(app: App, fix: bool) -> int:
    """Check home, permissions, SQLite, the store, the disk and skills; repair with --fix."""
    findings = [finding for check in CHECKS for finding in check(app, fix)]
    if app.as_json:
        app.emit([finding._asdict() for finding in findings])
    app.say(table.render(("CHECK", "STATE", "DETAIL"), findings))
    bad = any(finding.state == "problem" for finding in findings)
    if bad and not fix:
        app.say("\nRun: hermes doctor --fix")
    return EXIT_PROBLEMS if bad else 0


def _versions(_app: App, _fix: bool) -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding(
        "version", "ok", f"hermes {VERSION}, Python {python}, SQLite {connection.sqlite_version()}"
    )


def _home(app: App, fix: bool) -> Iterator[Finding]:
    root = app.home.root
    if not root.exists():
        yield Finding("home", "ok", f"{root} (not made yet)")
        return
    if _is_shut(root):
        yield _made_usable(root, 0o700, "may not be entered", fix)
    if _is_shut(root):
        return
    try:
        paths = list(_private_paths(root))
    except OSError as error:
        yield Finding("home", "problem", f"{root} cannot be read: {error.strerror}")
        return
    yield Finding("home", "ok", str(root))
    for path, mode, wanted in paths:
        if mode & 0o077:
            yield _made_private(path, mode, wanted, fix)


def _is_shut(root: Path) -> bool:
    """Return whether the home is a folder that its mode keeps us out of."""
    return root.is_dir() and not os.access(root, os.R_OK | os.X_OK)


def _made_usable(path: Path, wanted: int, trouble: str, fix: bool) -> Finding:
    """That a mode keeps us from our own, and how that is changed."""
    mode = stat.S_IMODE(path.stat().st_mode)
    said = f"{path} is {mode:04o} and {trouble}"
    if not fix:
        return Finding("permissions", "problem", f"{said}: chmod {wanted:o} {typed(path)}")
    try:
        path.chmod(wanted)
    except OSError as error:
        return Finding(
            "permissions", "problem", f"{said}, and that cannot be changed: {error.strerror}"
        )
    return Finding("permissions", "fixed", f"{path} was {mode:04o}, is {wanted:04o}")


def _made_private(path: Path, mode: int, wanted: int, fix: bool) -> Finding:
    if not fix:
        return Finding("permissions", "problem", f"{path.name} is {mode:04o}: others may read it")
    try:
        path.chmod(wanted)
    except OSError as error:
        detail = f"{path.name} is {mode:04o}, and that cannot be changed: {error.strerror}"
        return Finding("permissions", "problem", detail)
    return Finding("permissions", "fixed", f"{path.name} was {mode:04o}, is {wanted:04o}")


def _private_paths(root: Path) -> Iterator[tuple[Path, int, int]]:
    """Return what lies in the home, its mode and the mode it should have.

    Links are left out: what they lead to lies elsewhere, and is what its owner wants it to be.
    """
    yield root, stat.S_IMODE(root.stat().st_mode), 0o700
    for path in sorted(root.iterdir()):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue  # somebody else's draft, gone by now
        if not stat.S_ISLNK(mode):
            yield path, stat.S_IMODE(mode), 0o700 if stat.S_ISDIR(mode) else 0o600


def _config(app: App, _fix: bool) -> Iterator[Finding]:
    try:
        config.load(app.home)
    except HermesError as error:
        yield Finding("config", "problem", str(error))
    else:
        there = app.home.config.exists()
        yield Finding("config", "ok", str(app.home.config) if there else "no config.toml: defaults")


def _disk(app: App, _fix: bool) -> Iterator[Finding]:
    place = next(p for p in (app.home.root, *app.home.root.parents) if p.exists())
    free = shutil.disk_usage(place).free
    detail = f"{free // (1024 * 1024)} MB free"
    if not os.access(place, os.W_OK):
        yield Finding("disk", "problem", f"{place} cannot be written")
    elif free < _LEAST_FREE_BYTES:
        yield Finding("disk", "warning", f"{detail}: the store may run out of space")
    else:
        yield Finding("disk", "ok", detail)


def _store(app: App, fix: bool) -> Iterator[Finding]:
    path = app.home.database
    if _is_shut(app.home.root):
        yield Finding("store", "problem", "it cannot be looked into before the home is entered")
        return
    if not path.exists():
        yield Finding("store", "ok", "none yet; it is made with the first message")
        return
    if not os.access(path, os.R_OK | os.W_OK):
        yield _made_usable(path, 0o600, "may not be written", fix)
        if not os.access(path, os.R_OK):
            return
    try:
        yield from _look_into(path, fix, _patience(app))
    except StoreCorruptError as error:
        yield from _repaired(path, error.message, fix)
    except HermesError as error:
        yield Finding("store", "problem", str(error))


def _patience(app: App) -> float:
    """Return how long to wait for a lock; settings that cannot be read are a finding of their own."""
    try:
        return app.settings.store.busy_timeout_s
    except HermesError:
        return Settings().store.busy_timeout_s


def _look_into(path: Path, fix: bool, patience_s: float) -> Iterator[Finding]:
    connection.check_file(path)
    before = maintenance.schema_of(path)
    with closing(SessionDB(path, busy_timeout_s=patience_s)) as store:
        after = maintenance.schema_of(path)
        upgraded = (
            f"upgraded from schema {before} to {after}" if after != before else f"schema {after}"
        )
        numbers = store.read(listing.stats)
        yield Finding(
            "store",
            "fixed" if after != before else "ok",
            f"{upgraded}, {numbers['conversations']} conversations, {numbers['messages']} messages",
        )
        problems = store.check()
        if problems and fix and (fixed := store.fix()):
            shown = "; ".join(fixed[:5]) + (f" and {len(fixed) - 5} more" * (len(fixed) > 5))
            yield Finding("integrity", "fixed", shown)
            problems = store.check()
        elif not problems:
            yield Finding("integrity", "ok", "every page and every row")
        lag = store.index.lag()
        if lag and fix:
            yield Finding("search", "fixed", f"{store.index.catch_up()} messages indexed")
        else:
            yield Finding(
                "search", "ok", f"{lag} messages still to be indexed" if lag else "up to date"
            )
    if problems:
        yield from _repaired(path, "; ".join(problems[:5]), fix)


def _repaired(path: Path, problem: str, fix: bool) -> Iterator[Finding]:
    if not fix:
        yield Finding("integrity", "problem", problem)
        return
    try:
        done = repair.repair(path)
    except HermesError as error:
        yield Finding("integrity", "problem", f"{problem} {error}")
        return
    saved = ", ".join(f"{count} {name}" for name, count in done.recovered.items() if count)
    yield Finding("integrity", "fixed", f"saved {saved or 'nothing'}; old file: {done.kept.name}")
    for text in done.lost:
        yield Finding("integrity", "warning", f"lost: {text}")


def _sandbox(app: App, _fix: bool) -> Iterator[Finding]:
    from hermes_agent.sandbox import detect  # noqa: PLC0415 -- costs more than all other checks together

    try:
        chosen = detect.choose(app.settings)
    except HermesError as error:
        yield Finding("sandbox", "problem", str(error))
    else:
        yield Finding("sandbox", "ok", chosen.describe())


def _skills(app: App, _fix: bool) -> Iterator[Finding]:
    if _is_shut(app.home.root) or not app.home.skills.exists():
        return
    # knows the commands of all surfaces: only a home with skills pays for it
    from hermes_agent.skills import shelf  # noqa: PLC0415
    from hermes_cli.commands import skills  # noqa: PLC0415

    found = shelf(app.home)
    yield Finding("skills", "ok", f"{len(found.skills)} in {app.home.skills}")
    for text in skills.problems(found):
        yield Finding("skills", "warning", text)


CHECKS: tuple[Callable[[App, bool], Iterator[Finding]], ...] = (
    _versions,
    _home,
    _config,
    _disk,
    _store,
    _sandbox,
    _skills,
)
