"""Two really built versions, environments with the old one, and a home, for tests of `hermes update`."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hermes_core.paths import Home
from hermes_core.version import VERSION
from hermes_state import SessionDB

ROOT = Path(__file__).parents[2]
NEW = "99.1.0"
SESSION = "20261101_100000_aaaaaa"
TIMEOUT_S = 240.0
_OURS = ("hermes", "_editable", "__editable", "gateway", "tui_gateway")
_MIGRATION = ('"m012_taint", _TAINT),', '"m012_taint", _TAINT),\n    Step("m999_next", "{sql}"),')
_DOCTOR = ('    python = ".".join(', '    {line}\n    python = ".".join(')
_REAL = 'if app.home.root.name == "real": yield Finding("new check", "problem", "it fails")'

VARIANTS: dict[str, list[tuple[str, str, str]]] = {
    "good": [],
    "import": [("hermes_core/errors.py", "import errno", 'raise ImportError("a broken build")')],
    "migration": [
        (
            "hermes_state/engines/sqlite/schema.py",
            "CREATE TABLE added (id TEXT) STRICT;",
            "CREATE oops;",
        )
    ],
    "doctor": [
        ("hermes_cli/commands/doctor.py", "def _versions(_app:", "def _versions(app:"),
        (
            "hermes_cli/commands/doctor.py",
            _DOCTOR[0],
            _DOCTOR[1].format(line='yield Finding("new check", "problem", "it fails")'),
        ),
    ],
    "real home": [
        ("hermes_cli/commands/doctor.py", "def _versions(_app:", "def _versions(app:"),
        ("hermes_cli/commands/doctor.py", _DOCTOR[0], _DOCTOR[1].format(line=_REAL)),
    ],
    "gateway": [
        ("gateway/run.py", "import hermes_state\n", 'raise ImportError("a broken gateway")\n')
    ],
}
"""Copies of the new version, by what is changed in them: file, text, new text."""


def build(folder: Path) -> dict[str, Path]:
    """Build the tree and a newer copy of it, and derive the broken copies; return wheels by name."""
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    wheels = {"old": _build(source, folder / "old")}
    _edit(source / "src/hermes_core/version.py", VERSION, NEW)
    old, new = _MIGRATION
    schema = source / "src/hermes_state/engines/sqlite/schema.py"
    _edit(schema, old, new.format(sql="CREATE TABLE added (id TEXT) STRICT;"))
    good = _build(source, folder / "good")
    for name, edits in VARIANTS.items():
        wheels[name] = _variant(good, folder / name.replace(" ", "_"), edits) if edits else good
    return wheels


def _build(source: Path, target: Path) -> Path:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target)]
    subprocess.run([*command, str(source)], check=True, capture_output=True, timeout=TIMEOUT_S)
    return next(target.glob("*.whl"))


def _edit(file: Path, before: str, after: str) -> None:
    text = file.read_text("utf-8")
    assert text.count(before) == 1, (file, before)
    file.write_text(text.replace(before, after), "utf-8")


def _variant(wheel: Path, folder: Path, edits: list[tuple[str, str, str]]) -> Path:
    folder.mkdir()
    target = folder / wheel.name
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(target, "w") as copy:
        for info in source.infolist():
            data = source.read(info).decode("utf-8", "surrogateescape")
            for file, before, after in edits:
                if info.filename == file:
                    assert before in data, (file, before)
                    data = data.replace(before, after, 1)
            copy.writestr(info.filename, data.encode("utf-8", "surrogateescape"))
    return target


def template(folder: Path, wheel: Path) -> Path:
    """Make an environment with a wheel, and the libraries of this one without ourselves."""
    venv.create(folder, with_pip=False)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    borrowed = folder / "borrowed"
    borrowed.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(_OURS) and entry.suffix != ".pth":
            (borrowed / entry.name).symlink_to(entry)
    (packages / "borrowed.pth").write_text(str(borrowed))
    options = ["--no-deps", "--no-index", "--disable-pip-version-check", "-q"]
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", *options, str(wheel)]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    return folder


def wait_for(met: Callable[[], bool]) -> None:
    """Wait for something that takes as long as an update."""
    moment, deadline = threading.Event(), time.monotonic() + TIMEOUT_S
    while not met():
        assert time.monotonic() < deadline
        moment.wait(0.02)


class World:
    """An environment with the old version, and a home with a conversation."""

    def __init__(self, folder: Path, environment: Path) -> None:
        self.folder = folder
        self.prefix = folder / "tools" / "hermes"
        self.home = Home(folder / "real")
        self.work = self.prefix.parent / ".hermes.hermes-update"
        shutil.copytree(environment, self.prefix, symlinks=True)
        script = self.prefix / "bin" / "hermes"
        script.write_text(script.read_text().replace(str(environment), str(self.prefix)))
        self.home.create()
        with SessionDB(self.home.database) as store:
            store.create_session(SESSION, "cli")
            store.append_message(SESSION, "user", "Remember the blue house.")
        self.home.config.write_text("[agent]\nmax_steps = 7\n", "utf-8")
        self.home.config.chmod(0o600)

    @property
    def variables(self) -> dict[str, str]:
        return {
            "PATH": os.defpath,
            "HOME": str(self.folder),
            "HERMES_HOME": str(self.home.root),
            "HERMES_GATEWAY_LOCK_DIR": str(self.folder / "locks"),
            "PIP_NO_INDEX": "1",
            "PIP_CONFIG_FILE": os.devnull,
        }

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Start the installed program."""
        return subprocess.Popen(
            [str(self.prefix / "bin" / "hermes"), *words],
            env=self.variables, cwd=self.folder, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, *words: str) -> tuple[int, str]:
        """Run the installed program; return its status and output."""
        child = self.start(*words)
        output, _ = child.communicate(timeout=TIMEOUT_S)
        return child.returncode, output

    def update(self, wheel: Path) -> tuple[int, str]:
        return self.run("update", "--yes", "--from", str(wheel))

    def version(self) -> str:
        return self.run("--version")[1].split()[-1]

    def is_whole(self) -> bool:
        """Return whether the program in its place works with the home, and nothing is left over."""
        status, output = self.run("sessions", "show", SESSION)
        assert status == 0, output
        assert "Remember the blue house." in output
        findings = self.json("doctor")
        assert not [each for each in findings if each["what"] in ("store", "integrity", "update")
                    and each["state"] == "problem"], findings  # fmt: skip
        return not self.work.exists()

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json")[1].splitlines()[-1])
