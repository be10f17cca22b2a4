"""The wheel, installed into an environment of its own and run as people run it."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from hermes_agent.testing.scripted import say
from hermes_agent.testing.server import ScriptedServer
from hermes_core import installation
from hermes_core.installation import Method
from hermes_core.version import VERSION

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 25.0


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the source archive, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT_S)
    return folder


@pytest.fixture(scope="module")
def environment(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, which borrows the libraries of this one."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    (wheel,) = dist.glob("*.whl")
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
    options = ["--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([*command, *options, str(wheel)], check=True, timeout=TIMEOUT_S)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    return folder


def _run(environment: Path, home: Path, *arguments: str, **variables: str) -> str:
    done = subprocess.run(
        [environment / "bin" / "hermes", *arguments],
        env={"PATH": os.defpath, "HOME": str(home), **variables},
        cwd=home, capture_output=True, text=True, timeout=TIMEOUT_S, check=True,
    )  # fmt: skip
    return done.stdout


def test_the_wheel_holds_the_packages_and_no_tests(dist: Path) -> None:
    (wheel,) = dist.glob("hermes_durable-*.whl")
    (source,) = dist.glob("hermes_durable-*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    packages = {path.name for path in (ROOT / "src").iterdir() if (path / "__init__.py").exists()}
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == packages
    assert "hermes_agent/models/known.json" in names
    assert not [name for name in names if name.endswith(".pyc")]
    assert source.stat().st_size < 10_000_000


def test_the_installed_program_answers_a_question(environment: Path, tmp_path: Path) -> None:
    assert VERSION in _run(environment, tmp_path, "--version")
    with ScriptedServer([say("The sky is blue.")]) as server:
        answer = _run(
            environment, tmp_path, "chat", "-q", "Which color has the sky?",
            OPENAI_API_KEY="sk-scripted-key", OPENAI_BASE_URL=server.openai_url,
            HERMES_MODEL="scripted", HERMES_AGENT_TITLES="false",
        )  # fmt: skip
    assert "The sky is blue." in answer
    assert "Which color has the sky?" in _run(environment, tmp_path, "sessions", "list", "--json")


def test_the_installed_program_says_how_an_extra_is_installed(environment: Path) -> None:
    code = "from hermes_core import installation as i; print(i.method(), i.install_command('tui'))"
    python = environment / "bin" / "python"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"pip {python} -m pip install 'hermes-durable[")
    assert "tui" in done.stdout


@pytest.mark.parametrize(
    ("file", "method", "command"),
    [
        ("uv-receipt.toml", Method.UV, "uv tool install --force 'hermes-durable["),
        ("pipx_metadata.json", Method.PIPX, "pipx install --force 'hermes-durable["),
    ],
)
def test_a_tool_that_installed_us_is_told_by_its_file(
    file: str, method: Method, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / file).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(installation, "_is_clone", lambda: False)
    assert installation.method() is method
    assert installation.install_command("email").startswith(command)


def test_a_clone_is_told_by_its_editable_installation() -> None:
    assert installation.method() is Method.CLONE
    assert "in the clone" in installation.install_command("tui")


def test_an_extra_is_installed_when_all_it_needs_is() -> None:
    assert installation.installed_extras() >= {"tui", "telegram", "email", "test", "local"}
