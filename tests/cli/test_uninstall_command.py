"""`hermes uninstall`: what it removes, what it leaves, and what it asks."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_cli.commands import gateway_service, uninstall
from hermes_core import installation, own_commands
from hermes_core.installation import Method
from hermes_core.paths import Home
from hermes_state import SessionDB
from tests.cli.conftest import Shell

TIMEOUT_S = 20.0


@pytest.fixture(autouse=True)
def _no_service_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))


@pytest.fixture
def filled(home: Home) -> Home:
    with SessionDB(home.database) as store:
        store.create_session("20261101_100000_aaaaaa", "cli")
    return home


def _unit(python: str = sys.executable) -> Path:
    path = gateway_service.path()
    path.parent.mkdir(parents=True)
    path.write_text(f"[Service]\nExecStart={python} -m hermes_cli.main gateway run\n")
    return path


def _answer(home: Home, tmp_path: Path, text: str, *options: str) -> tuple[int, str]:
    """Run `hermes uninstall` on a terminal and type a line; return the status and the output."""
    primary, terminal = pty.openpty()
    variables = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "settings")}
    child = subprocess.Popen(
        [sys.executable, "-m", "hermes_cli.main", "uninstall", *options],
        env={"PATH": os.defpath, "HERMES_HOME": str(home.root), **variables},
        stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    os.close(terminal)
    os.write(primary, f"{text}\n".encode())
    output = child.communicate(timeout=TIMEOUT_S)[0]
    os.close(primary)
    return child.returncode, output


def test_a_dry_run_says_what_is_removed_and_what_stays(filled: Home, shell: Shell) -> None:
    unit = _unit()
    output = shell.run("uninstall --dry-run")
    assert f"the service: {unit}" in output
    assert f"{filled.root} (0." in output
    assert "1 conversation)" in output
    assert "the clone: " in output
    assert output.endswith("Nothing was changed.\n")
    assert unit.exists()


def test_the_service_is_removed_and_the_home_stays(filled: Home, shell: Shell) -> None:
    unit = _unit()
    output = shell.run("uninstall --yes")
    assert "Removed the service." in output
    assert "To remove the program: rm -r " in output
    assert not unit.exists()
    assert filled.database.exists()


def test_the_service_of_another_installation_stays(filled: Home, shell: Shell) -> None:
    unit = _unit("/elsewhere/bin/python")
    assert f"the service of another installation: {unit}" in shell.run("uninstall --yes")
    assert unit.exists()


def test_nothing_is_removed_when_nobody_can_be_asked(filled: Home, shell: Shell) -> None:
    unit = _unit()
    shell.run("uninstall", status=2)
    shell.run("uninstall --yes --delete-home", status=2)
    assert "nobody can be asked" in shell.errors
    assert unit.exists()
    assert filled.database.exists()


def test_no_is_an_answer(filled: Home, tmp_path: Path) -> None:
    unit = _unit()
    status, output = _answer(filled, tmp_path, "n")
    assert status == 130
    assert "Remove Hermes?" in output
    assert unit.exists()


def test_the_home_is_deleted_when_its_name_is_typed(filled: Home, tmp_path: Path) -> None:
    status, output = _answer(filled, tmp_path, "yes", "--delete-home", "--yes")
    assert status == 2
    assert "The name does not match" in output
    assert filled.database.exists()
    status, output = _answer(filled, tmp_path, str(filled.root), "--delete-home")
    assert status == 0
    assert "hermes backup" in output
    assert f"Deleted {filled.root}" in output
    assert not filled.root.exists()
    assert not list(filled.root.parent.glob(f".{filled.root.name}.deleted-*"))


def test_a_home_in_use_is_not_deleted(filled: Home, tmp_path: Path) -> None:
    with SessionDB(filled.database):
        status, output = _answer(filled, tmp_path, str(filled.root), "--delete-home")
    assert status != 0
    assert "is in use" in output
    assert filled.database.exists()


def test_a_folder_with_other_things_is_not_deleted(
    filled: Home, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(filled.root))
    shell.run("uninstall --delete-home", status=2)
    assert "is not deleted" in shell.errors
    assert filled.database.exists()


@pytest.mark.parametrize(
    ("method", "command"),
    [
        (Method.UV, "uv tool uninstall hermes-durable"),
        (Method.PIPX, "pipx uninstall hermes-durable"),
        (Method.PIP, f"{sys.executable} -m pip uninstall --yes hermes-durable"),
    ],
)
def test_the_installer_that_was_used_removes_the_program(
    home: Home,
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    method: Method,
    command: str,
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(installation, "method", lambda: method)
    monkeypatch.setattr(uninstall.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(os, "execvp", lambda _name, words: ran.append(words))
    assert f"the program: {command}" in shell.run("uninstall --yes")
    assert " ".join(ran[0]) == command


def test_a_missing_installer_is_named(
    home: Home, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "method", lambda: Method.PIPX)
    monkeypatch.setattr(uninstall.shutil, "which", lambda _name: None)
    output = shell.run("uninstall --yes")
    assert "run this yourself, as pipx was not found" in output
    assert output.endswith("To remove the program: pipx uninstall hermes-durable\n")


def test_a_command_of_the_agent_may_not_uninstall(
    filled: Home, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(own_commands.MARKER, "1")
    shell.run("uninstall --yes", status=78)
    assert "may not uninstall Hermes" in shell.errors
