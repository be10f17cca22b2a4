"""Prepare a new version beside the old one: find it, install it, and try it on a copy of the home.

Nothing of the old version and of the home is changed here; `update_switch` does that afterwards.
Decisions: docs/adr/0023.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import tomlkit

from hermes_cli import backup, update_switch
from hermes_cli.update_switch import Files, Journal, SwitchError
from hermes_core import installation
from hermes_core.errors import HermesError, UsageError
from hermes_core.installation import NAME, Method
from hermes_core.locks import LockFile, LockHeldError
from hermes_core.paths import Home, make_folder, open_private
from hermes_core.version import VERSION

_WHEEL = re.compile(r"hermes_durable-(?P<version>[^-]+)-[^/]*\.whl")
_ADDED = re.compile(rf"(?m)^\s*\+ {NAME}==(\S+)")
_INSTALL_TIMEOUT_S = 1800.0
_MAX_SCRIPT_BYTES = 1_000_000


class UpdateError(HermesError):
    """A new version cannot be installed; the old one stays as it is."""

    code = "update"


class Target(NamedTuple):
    """The version to install."""

    version: str
    requirement: str
    """As the installer reads it."""
    source: str
    """As a person reads it, and as uv and pipx store it."""
    wheel: Path | None


class Installer(NamedTuple):
    """A program that installs into an environment."""

    words: tuple[str, ...]
    is_uv: bool

    def run(self, *options: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*self.words, *options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_INSTALL_TIMEOUT_S,
            check=False,
            pass_fds=update_switch.held,
        )


def work_folder() -> Path:
    """Return the folder of an update of this environment; it exists only during one."""
    prefix = Path(sys.prefix).resolve()
    name = f".{prefix.name}.hermes-update"
    if installation.method() in (Method.UV, Method.PIPX):
        above = prefix.parent.parent  # uv and pipx take every folder beside for one of their own
        if os.access(above, os.W_OK) and above.stat().st_dev == prefix.stat().st_dev:
            return above / name
    return prefix.parent / name


def refuse_by_hand() -> None:
    """Raise UsageError when this kind of installation is updated by hand."""
    prefix = Path(sys.prefix).resolve()
    if installation.method() is Method.CLONE:
        raise UsageError("This is a clone, which git updates.", fix="Run: git pull && make setup")
    if sys.prefix == sys.base_prefix:
        raise UsageError(
            f"Hermes is installed in the Python of the system ({prefix}), which is not replaced.",
            fix="Update it with the program that installed it, or use: uv tool install hermes-durable",
        )
    if not os.access(prefix.parent, os.W_OK):
        raise UsageError(
            f"{prefix.parent} is not writable, so the environment cannot be replaced.",
            fix="Update it as the user who installed it; for a container, pull the new image.",
        )


def find(version: str | None, wheel: Path | None) -> Target:
    """Return the version to install: that of a wheel, the one named, or the newest."""
    extras = ",".join(sorted(installation.installed_extras()))
    name = f"{NAME}[{extras}]" if extras else NAME
    if wheel is not None:
        found = _WHEEL.fullmatch(wheel.name)
        if found is None or not wheel.is_file():
            raise UsageError(f"{wheel} is not a wheel of {NAME}.", fix=f"Use {NAME}-….whl.")
        path = wheel.resolve()
        return Target(found["version"], f"{name} @ {path.as_uri()}", str(path), path)
    newest = version or _newest(installer(Path(sys.prefix)))
    return Target(newest, f"{name}=={newest}", name, None)


def installer(environment: Path) -> Installer:
    """Return a program that installs into an environment: its own pip, uv, or the pip of the system."""
    python = str(environment / "bin" / "python")
    quiet = ("--disable-pip-version-check", "--no-input")
    if importlib.util.find_spec("pip") is not None:
        return Installer((python, "-m", "pip", *quiet, "install"), is_uv=False)
    if uv := shutil.which("uv"):
        return Installer((uv, "pip", "install", "--python", python), is_uv=True)
    base = (_base_python(), "-m", "pip")
    if subprocess.run([*base, "--version"], capture_output=True, check=False).returncode == 0:
        return Installer((*base, *quiet, "--python", python, "install"), is_uv=False)
    raise UsageError("Neither pip nor uv was found.", fix="Put uv on the PATH, and try again.")


def _base_python() -> str:
    """Return the interpreter that the environment was made with."""
    return getattr(sys, "_base_executable", sys.executable)


def _newest(program: Installer) -> str:
    """Return the newest version that the installer can get; ours if there is none."""
    options = ["--dry-run", "--no-deps", "--upgrade", NAME]
    done = program.run(*options, *([] if program.is_uv else ["--quiet", "--report", "-"]))
    if done.returncode:
        raise UpdateError(
            f"No version was found: {update_switch.reason_of(done)}",
            fix="Name a wheel: hermes update --from FILE",
        )
    if program.is_uv:
        added = _ADDED.search(done.stderr)
        return added[1] if added else VERSION
    report = json.loads(done.stdout)["install"]
    return report[0]["metadata"]["version"] if report else VERSION


def interrupted() -> Path | None:
    """Return the folder of an update that was killed; None if there is none, or if it still runs."""
    work = work_folder()
    if not work.is_dir():
        return None
    try:
        with _locked(work):
            return work
    except UsageError:
        return None


def resume(work: Path) -> None:
    """Let the switch finish or undo an interrupted update; returns if nothing had been changed."""
    with _locked(work) as lock:
        files = Files(work)
        if files.load() is None:
            files.remove()
            return
        _hand_over(work, lock, "--resume")


def prepare(home: Home, target: Target, say: Callable[[str], None]) -> None:
    """Make a new version ready, and hand over to the switch, which takes the place of this process.

    Raises an error after which everything is as it was.
    """
    work = work_folder()
    make_folder(work)
    with _locked(work) as lock:
        files = Files(work)
        is_ready = False
        try:
            _probe(work)
            update_switch.hold(lock)
            files.save(_staged(home, files, target, say))
            is_ready = True
        finally:
            if not is_ready:
                files.remove()
        sys.stdout.flush()
        _hand_over(work, lock)


def _hand_over(work: Path, lock: int, *options: str) -> None:
    """Replace this process by the switch: it imports nothing from an environment."""
    script = work / "switch.py"
    if not script.exists():
        shutil.copyfile(update_switch.__file__, script)
    os.set_inheritable(lock, True)
    base = _base_python()
    os.execv(base, [base, "-I", "-S", str(script), str(work), str(lock), *options])


@contextmanager
def _locked(work: Path) -> Generator[int]:
    lock = LockFile(work / "lock")
    try:
        lock.acquire()
    except LockHeldError as error:
        raise UsageError("Another update runs.", fix="Wait until it has ended.") from error
    try:
        yield lock.descriptor
    finally:
        lock.release()


def _probe(work: Path) -> None:
    """Raise UpdateError unless folders can be exchanged here, and there is room for another one."""
    folders = work / "probe-1", work / "probe-2"
    for folder in folders:
        folder.mkdir()
    try:
        update_switch.exchange(*folders)
    except OSError as error:
        raise UpdateError(
            f"This file system cannot exchange folders ({error.strerror or error}).",
            fix="Remove and install Hermes with its installer; your home stays.",
        ) from error
    size = sum(path.lstat().st_size for path in Path(sys.prefix).rglob("*"))
    if shutil.disk_usage(work).free < 2 * size:
        raise UpdateError(
            f"The update needs {2 * size / 1e6:.0f} MB at {work.parent}.", fix="Free some space."
        )


def _staged(home: Home, files: Files, target: Target, say: Callable[[str], None]) -> Journal:
    """Back up, install beside, and try; return the journal of an update that is ready."""
    prefix = Path(sys.prefix).resolve()
    shutil.copyfile(update_switch.__file__, files.work / "switch.py")
    journal = Journal(str(prefix), str(home.root), "", VERSION, target.version)
    trial = Home(files.work / "home")
    if home.root.is_dir():
        say("Backing up your home.")
        archive = home.root.with_name(
            f"{home.root.name}.before-{target.version}-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz"
        )
        journal.database, journal.backup = str(home.database.resolve()), str(archive)
    is_good = False
    try:
        if journal.backup:
            _back_up(home, Path(journal.backup), trial, say)
        say(f"Installing version {target.version} beside {VERSION}.")
        _install(prefix, files.environment, target)
        say("Trying it on a copy of your home.")
        baseline = update_switch.problems(prefix, trial.root)
        update_switch.check(files.environment, trial.root, list(baseline))
        is_good = True
    except SwitchError as error:
        fix = f"Version {VERSION} stays, and nothing was changed."
        raise UpdateError(f"Version {target.version} does not work: {error}", fix=fix) from error
    finally:
        if journal.backup and not is_good:
            Path(journal.backup).unlink(missing_ok=True)
    shutil.rmtree(trial.root, ignore_errors=True)
    return journal


def _back_up(home: Home, archive: Path, trial: Home, say: Callable[[str], None]) -> None:
    """Write a backup, and restore it elsewhere, which proves that it can be."""
    with open_private(archive) as file:
        backup.write(home, file, say)
        file.flush()
        os.fsync(file.fileno())
    with archive.open("rb") as file:
        backup.restore(trial, file)


def _install(prefix: Path, environment: Path, target: Target) -> None:
    """Make a copy of the environment with the new version, which works at the place of the old one."""
    shutil.copytree(prefix, environment, symlinks=True)
    program = installer(environment)
    done = program.run(*([] if program.is_uv else ["--no-compile"]), target.requirement)
    if done.returncode:
        raise UpdateError(
            f"Version {target.version} cannot be installed: {update_switch.reason_of(done)}",
            fix=f"Version {VERSION} stays, and nothing was changed.",
        )
    version = update_switch.run(environment, "-m", "hermes_cli.main", "--version")
    if version.returncode or target.version not in version.stdout:
        raise SwitchError(update_switch.reason_of(version))
    for script in (environment / "bin").iterdir():
        _move_script(script, environment, prefix)
    _write_receipt(environment, target)
    (environment / update_switch.MARK).write_text(target.version, "utf-8")


def _move_script(script: Path, environment: Path, prefix: Path) -> None:
    """Let a script start the interpreter at the place where its environment will be."""
    if script.is_symlink() or not script.is_file() or script.stat().st_size > _MAX_SCRIPT_BYTES:
        return
    before = script.read_bytes()
    after = before.replace(os.fsencode(environment), os.fsencode(prefix))
    if after != before:
        script.write_bytes(after)


def _write_receipt(environment: Path, target: Target) -> None:
    """Record the version where uv and pipx look for what they installed."""
    receipt = environment / "uv-receipt.toml"
    if receipt.is_file():
        document = tomlkit.parse(receipt.read_text("utf-8"))
        for requirement in document["tool"]["requirements"]:  # pyright: ignore[reportGeneralTypeIssues, reportIndexIssue, reportUnknownVariableType]
            if requirement["name"] == NAME:  # pyright: ignore[reportIndexIssue, reportArgumentType]
                for key in ("path", "url", "specifier"):
                    requirement.pop(key, None)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
                if target.wheel is not None:
                    requirement["path"] = str(target.wheel)  # pyright: ignore[reportIndexIssue, reportArgumentType]
        receipt.write_text(tomlkit.dumps(document), "utf-8")  # pyright: ignore[reportUnknownMemberType]
    metadata = environment / "pipx_metadata.json"
    if metadata.is_file():
        values = msgspec.json.decode(metadata.read_bytes())
        values["main_package"] |= {
            "package_version": target.version,
            "package_or_url": target.source,
        }
        metadata.write_bytes(msgspec.json.format(msgspec.json.encode(values)))
