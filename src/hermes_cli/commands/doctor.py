"""`hermes doctor`: check the installation and repair it."""

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
from hermes_core.text import shell_quoted
from hermes_core.version import VERSION
from hermes_state import SessionDB
from hermes_state.engines.sqlite import connection, maintenance, repair
from hermes_state.ledger import listing

EXIT_PROBLEMS = 1
_MIN_FREE_BYTES = 200 * 1024 * 1024


class Finding(NamedTuple):
    """The result of one check."""

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
        yield Finding("home", "ok", f"{root} (not created yet)")
        return
    if _is_inaccessible(root):
        yield _make_usable(root, 0o700, "cannot be entered", fix)
    if _is_inaccessible(root):
        return
    try:
        paths = list(_private_paths(root))
    except OSError as error:
        yield Finding("home", "problem", f"{root} cannot be read: {error.strerror}")
        return
    yield Finding("home", "ok", str(root))
    for path, mode, expected in paths:
        if mode & 0o077:
            yield _make_private(path, mode, expected, fix)


def _is_inaccessible(root: Path) -> bool:
    """Return whether the mode of the home keeps us out."""
    return root.is_dir() and not os.access(root, os.R_OK | os.X_OK)


def _make_usable(path: Path, expected: int, trouble: str, fix: bool) -> Finding:
    mode = stat.S_IMODE(path.stat().st_mode)
    problem = f"{path} has mode {mode:04o} and {trouble}"
    if not fix:
        return Finding(
            "permissions", "problem", f"{problem}: chmod {expected:o} {shell_quoted(path)}"
        )
    return _change_mode(path, mode, expected)


def _make_private(path: Path, mode: int, expected: int, fix: bool) -> Finding:
    if not fix:
        problem = f"{path.name} has mode {mode:04o}: others can read it"
        return Finding("permissions", "problem", problem)
    return _change_mode(path, mode, expected)


def _change_mode(path: Path, mode: int, expected: int) -> Finding:
    try:
        path.chmod(expected)
    except OSError as error:
        problem = f"{path} has mode {mode:04o}, and chmod failed: {error.strerror}"
        return Finding("permissions", "problem", problem)
    return Finding("permissions", "fixed", f"{path}: mode {mode:04o} changed to {expected:04o}")


def _private_paths(root: Path) -> Iterator[tuple[Path, int, int]]:
    """Yield each path in the home with its mode and the mode it should have; skips links."""
    yield root, stat.S_IMODE(root.stat().st_mode), 0o700
    for path in sorted(root.iterdir()):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue  # another process's temp file
        if not stat.S_ISLNK(mode):
            yield path, stat.S_IMODE(mode), 0o700 if stat.S_ISDIR(mode) else 0o600


def _config(app: App, _fix: bool) -> Iterator[Finding]:
    try:
        config.load(app.home)
    except HermesError as error:
        yield Finding("config", "problem", str(error))
    else:
        exists = app.home.config.exists()
        yield Finding(
            "config", "ok", str(app.home.config) if exists else "no config.toml: defaults"
        )


def _disk(app: App, _fix: bool) -> Iterator[Finding]:
    place = next(p for p in (app.home.root, *app.home.root.parents) if p.exists())
    free = shutil.disk_usage(place).free
    detail = f"{free // (1024 * 1024)} MB free"
    if not os.access(place, os.W_OK):
        yield Finding("disk", "problem", f"{place} is not writable")
    elif free < _MIN_FREE_BYTES:
        yield Finding("disk", "warning", f"{detail}: the store may run out of space")
    else:
        yield Finding("disk", "ok", detail)


def _store(app: App, fix: bool) -> Iterator[Finding]:
    path = app.home.database
    if _is_inaccessible(app.home.root):
        yield Finding("store", "problem", "not checked: the home cannot be entered")
        return
    if not path.exists():
        yield Finding("store", "ok", "none yet; the first message creates it")
        return
    if not os.access(path, os.R_OK | os.W_OK):
        yield _make_usable(path, 0o600, "is not writable", fix)
        if not os.access(path, os.R_OK):
            return
    try:
        yield from _check_store(path, fix, _busy_timeout_s(app))
    except StoreCorruptError as error:
        yield from _repair(path, error.message, fix)
    except HermesError as error:
        yield Finding("store", "problem", str(error))


def _busy_timeout_s(app: App) -> float:
    """Return the timeout for the write lock; bad settings are a finding of their own."""
    try:
        return app.settings.store.busy_timeout_s
    except HermesError:
        return Settings().store.busy_timeout_s


def _check_store(path: Path, fix: bool, busy_timeout_s: float) -> Iterator[Finding]:
    connection.check_file(path)
    before = maintenance.schema_of(path)
    with closing(SessionDB(path, busy_timeout_s=busy_timeout_s)) as store:
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
            detail = "; ".join(fixed[:5]) + (f" and {len(fixed) - 5} more" * (len(fixed) > 5))
            yield Finding("integrity", "fixed", detail)
            problems = store.check()
        elif not problems:
            yield Finding("integrity", "ok", "all pages and rows")
        lag = store.index.lag()
        if lag and fix:
            yield Finding("search", "fixed", f"{store.index.catch_up()} messages indexed")
        else:
            yield Finding(
                "search", "ok", f"{lag} messages not indexed yet" if lag else "up to date"
            )
    if problems:
        yield from _repair(path, "; ".join(problems[:5]), fix)


def _repair(path: Path, problem: str, fix: bool) -> Iterator[Finding]:
    if not fix:
        yield Finding("integrity", "problem", problem)
        return
    try:
        report = repair.repair(path)
    except HermesError as error:
        yield Finding("integrity", "problem", f"{problem} {error}")
        return
    rows = ", ".join(f"{count} {name}" for name, count in report.recovered.items() if count)
    detail = f"recovered {rows or 'nothing'}; old file: {report.damaged_file.name}"
    yield Finding("integrity", "fixed", detail)
    for text in report.lost:
        yield Finding("integrity", "warning", f"lost: {text}")


def _sandbox(app: App, _fix: bool) -> Iterator[Finding]:
    from hermes_agent.sandbox import detect  # noqa: PLC0415 -- slow to import

    try:
        chosen = detect.choose(app.settings)
    except HermesError as error:
        yield Finding("sandbox", "problem", str(error))
    else:
        yield Finding("sandbox", "ok" if chosen.is_confining else "warning", chosen.describe())
        if chosen.network.problem:
            how = "install bubblewrap and util-linux, or set tools.network to open"
            yield Finding(
                "network", "warning", f"commands have none: {chosen.network.problem}; {how}"
            )
        if app.settings.approvals.mode == "allow":
            yield Finding("approvals", "warning", "nothing is asked: approvals.mode is allow")


def _checkpoints(app: App, _fix: bool) -> Iterator[Finding]:
    from hermes_agent.checkpoints import git  # noqa: PLC0415 -- slow to import

    try:
        if app.settings.tools.checkpoints:
            found = git.program()
            yield Finding("checkpoints", "ok", f"taken with {found} before turns that write")
        else:
            yield Finding("checkpoints", "warning", "off; /undo --files restores nothing")
    except HermesError as error:
        yield Finding("checkpoints", "warning", str(error))


def _workspaces(app: App, _fix: bool) -> Iterator[Finding]:
    """Check the folders that chats work in; which they do is news after an upgrade."""
    from gateway.workspaces import Workspaces  # noqa: PLC0415 -- slow to import

    try:
        settings = config.load(app.home)
    except HermesError:
        return  # a finding of its own
    if not settings.gateway.platforms:
        return
    try:
        workspaces = Workspaces(app.home, settings)
    except HermesError as error:
        yield Finding("workspace", "problem", str(error))
        return
    yield Finding("workspace", "ok", workspaces.describe())
    for folder in workspaces.broad:
        detail = (
            f"chats may change everything in {folder} without approval (gateway.broad_workspace)"
        )
        yield Finding("workspace", "warning", detail)


def _skills(app: App, _fix: bool) -> Iterator[Finding]:
    if _is_inaccessible(app.home.root) or not app.home.skills.exists():
        return
    # slow to import: only for homes with skills
    from hermes_agent.skills import load_all  # noqa: PLC0415
    from hermes_cli.commands import skills  # noqa: PLC0415

    found = load_all(app.home)
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
    _checkpoints,
    _workspaces,
    _skills,
)
