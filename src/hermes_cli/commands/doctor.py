"""`hermes doctor`: check the installation and repair it."""

import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import click

from hermes_cli.commands import doctor_answers, table
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_cli.commands.finding import Finding
from hermes_core import config
from hermes_core.errors import HermesError, StoreCorruptError
from hermes_core.settings import Settings
from hermes_core.text import counted, human_size, shell_quoted
from hermes_core.version import VERSION
from hermes_state import SessionDB
from hermes_state.engines.sqlite import connection, maintenance, repair
from hermes_state.ledger import listing

EXIT_PROBLEMS = 1
_MIN_FREE_BYTES = 200 * 1024 * 1024
_REPAIR = "Run: hermes doctor --fix"


@click.command("doctor")
@click.option("--fix", is_flag=True, help="Repair what can be repaired.")
@click.option("--online", is_flag=True, help="Ask the model one tiny question.")
@json_option
@pass_app
def command(app: App, fix: bool, online: bool) -> int:
    """Check that Hermes can work: model, keys, gateway, sandbox, home, store, disk and skills.

    Each finding names its fix; --fix repairs what it can. Exit status 1: there is a problem, for example
    no model can answer.
    """
    findings = [finding for check in CHECKS for finding in check(app, fix)]
    if all(finding.what != "config" or finding.state == "ok" for finding in findings):
        findings += [
            *doctor_answers.check_model(app, online=online),
            *doctor_answers.check_keys(app),
            *doctor_answers.check_gateway(app),
        ]
    if app.as_json:
        app.emit([finding._asdict() for finding in findings])
    table.show(app, ("CHECK", "STATE", "DETAIL"), [finding[:3] for finding in findings])
    for finding in findings:
        if finding.state in ("warning", "problem"):
            app.say(f"\n{finding.what}: {finding.detail}\n  {finding.fix}".rstrip())
    return EXIT_PROBLEMS if any(finding.state == "problem" for finding in findings) else 0


def _versions(_app: App, _fix: bool) -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding(
        "version", "ok", f"hermes {VERSION}, Python {python}, SQLite {connection.sqlite_version()}"
    )


def _update(_app: App, _fix: bool) -> Iterator[Finding]:
    from hermes_cli import update  # noqa: PLC0415 -- slow to import

    if update.interrupted() is not None:
        yield Finding("update", "problem", "interrupted; to finish or undo it: hermes update")


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
        detail = f"{root} cannot be read: {error.strerror}"
        yield Finding("home", "problem", detail, "Set HERMES_HOME to a folder that you may read.")
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
        how = f"chmod {expected:o} {shell_quoted(path)}"
        return Finding("permissions", "problem", f"{problem}: {how}", f"Run: {how}")
    return _change_mode(path, mode, expected)


def _make_private(path: Path, mode: int, expected: int, fix: bool) -> Finding:
    if not fix:
        problem = f"{path.name} has mode {mode:04o}: others can read it"
        return Finding("permissions", "problem", problem, _REPAIR)
    return _change_mode(path, mode, expected)


def _change_mode(path: Path, mode: int, expected: int) -> Finding:
    try:
        path.chmod(expected)
    except OSError as error:
        problem = f"{path} has mode {mode:04o}, and chmod failed: {error.strerror}"
        how = f"As its owner, run: chmod {expected:o} {shell_quoted(path)}"
        return Finding("permissions", "problem", problem, how)
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
        yield Finding("config", "problem", error.message, error.fix)
    else:
        exists = app.home.config.exists()
        yield Finding(
            "config", "ok", str(app.home.config) if exists else "no config.toml: defaults"
        )


def _disk(app: App, _fix: bool) -> Iterator[Finding]:
    place = next(p for p in (app.home.root, *app.home.root.parents) if p.exists())
    free = shutil.disk_usage(place).free
    detail = f"{human_size(free)} free"
    if not os.access(place, os.W_OK):
        how = "Make it writable, or set HERMES_HOME to another folder."
        yield Finding("disk", "problem", f"{place} is not writable", how)
    elif free < _MIN_FREE_BYTES:
        how = "Free some space; `hermes sessions prune` deletes old conversations."
        yield Finding("disk", "warning", f"{detail}: the store may run out of space", how)
    else:
        yield Finding("disk", "ok", detail)


def _store(app: App, fix: bool) -> Iterator[Finding]:
    path = app.home.database
    if _is_inaccessible(app.home.root):
        detail = "not checked: the home cannot be entered"
        yield Finding("store", "problem", detail, f"Run: chmod 700 {shell_quoted(app.home.root)}")
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
        yield Finding("store", "problem", error.message, error.fix)


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
            f"{upgraded}, {counted(numbers['conversations'], 'conversation')},"
            f" {counted(numbers['messages'], 'message')}",
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
        yield Finding("integrity", "problem", problem, _REPAIR)
        return
    try:
        report = repair.repair(path)
    except HermesError as error:
        yield Finding("integrity", "problem", f"{problem} {error.message}", error.fix)
        return
    rows = ", ".join(f"{count} {name}" for name, count in report.recovered.items() if count)
    detail = f"recovered {rows or 'nothing'}; old file: {report.damaged_file.name}"
    yield Finding("integrity", "fixed", detail)
    for text in report.lost:
        yield Finding("integrity", "warning", f"lost: {text}")


def _sandbox(app: App, _fix: bool) -> Iterator[Finding]:
    from hermes_agent.sandbox import detect  # noqa: PLC0415 -- slow to import

    try:
        settings = config.load(app.home, overrides=app.overrides)
    except HermesError:
        return  # a finding of its own
    try:
        chosen = detect.choose(settings)
    except HermesError as error:
        yield Finding("sandbox", "problem", error.message, error.fix)
    else:
        how = "" if chosen.is_confining else "Install bubblewrap, and set tools.sandbox to auto."
        state = "ok" if chosen.is_confining else "warning"
        yield Finding("sandbox", state, chosen.describe(), how)
        if chosen.network.problem:
            how = "Install bubblewrap and util-linux, or set tools.network to open."
            detail = f"commands have none: {chosen.network.problem}"
            yield Finding("network", "warning", detail, how)
        if settings.approvals.mode == "allow":
            detail = "nothing is asked: approvals.mode is allow"
            how = "Run: hermes config unset approvals.mode"
            yield Finding("approvals", "warning", detail, how)


def _checkpoints(app: App, _fix: bool) -> Iterator[Finding]:
    from hermes_agent.checkpoints import git  # noqa: PLC0415 -- slow to import

    try:
        if app.settings.tools.checkpoints:
            found = git.program()
            yield Finding("checkpoints", "ok", f"taken with {found} before turns that write")
        else:
            how = "Run: hermes config unset tools.checkpoints"
            yield Finding("checkpoints", "warning", "off; /undo --files restores nothing", how)
    except HermesError as error:
        yield Finding("checkpoints", "warning", error.message, error.fix)


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
        yield Finding("workspace", "problem", error.message, error.fix)
        return
    yield Finding("workspace", "ok", workspaces.describe())
    for folder in workspaces.broad:
        detail = (
            f"chats may change everything in {folder} without approval (gateway.broad_workspace)"
        )
        yield Finding("workspace", "warning", detail, "Choose another folder: hermes setup")


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
    _update,
    _home,
    _config,
    _disk,
    _store,
    _sandbox,
    _checkpoints,
    _workspaces,
    _skills,
)
