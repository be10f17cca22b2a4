"""Temporary folders do not outlive their use, however their process ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_agent.testing.scripted import call, say
from hermes_agent.testing.server import ScriptedServer

_MAKE = (
    "from hermes_core.temp_folders import TempFolder; f = TempFolder('x'); "
    "print(f.path, flush=True); "
)


@pytest.fixture
def temp(tmp_path: Path) -> Path:
    """The temporary directory of the processes."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


def start(temp: Path, code: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "TMPDIR": str(temp)}
    return subprocess.Popen(
        [sys.executable, "-c", _MAKE + code],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def made_by(process: "subprocess.Popen[str]") -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())


def make_old(folder: Path) -> None:
    os.utime(folder, (0, 0))


@pytest.mark.parametrize("end", ["", "f.close()", "raise SystemExit(3)", "f.close(); f.close()"])
def test_a_folder_is_removed_when_its_process_ends(temp: Path, end: str) -> None:
    with start(temp, end) as process:
        process.communicate(timeout=20)
    assert list(temp.iterdir()) == []


def test_a_fork_leaves_the_folder_to_its_parent(temp: Path) -> None:
    code = "import os, sys; os.fork() or sys.exit(); os.wait(); print(f.path.exists())"
    with start(temp, code) as process:
        output, _ = process.communicate(timeout=20)
    assert output.splitlines()[-1] == "True"


def test_what_a_killed_process_left_is_removed_by_the_next_one(temp: Path) -> None:
    with start(temp, "input()") as living, start(temp, "input()") as killed:
        held, abandoned = made_by(living), made_by(killed)
        (abandoned / "file").write_text("x")
        killed.kill()
        killed.wait(20)
        stranger = temp / "hermes-by-another-program.txt"
        stranger.write_text("kept")
        make_old(stranger)
        with start(temp, "") as young:
            young.communicate(timeout=20)
        assert abandoned.exists()  # it may be about to be locked
        for folder in (held, abandoned):
            make_old(folder)
        with start(temp, "") as next_one:
            next_one.communicate(timeout=20)
        assert sorted(temp.iterdir()) == sorted([held, stranger])
        living.communicate("\n", timeout=20)
    assert list(temp.iterdir()) == [stranger]


def test_a_run_of_the_program_with_a_command_leaves_nothing(temp: Path, tmp_path: Path) -> None:
    steps = [call("terminal", command="echo x > /tmp/from-a-command; ls"), say("Done.")]
    home = tmp_path / "home"
    home.mkdir()
    with ScriptedServer(lambda _request: steps.pop(0) if steps else say("Done.")) as model:
        (home / "config.toml").write_text(
            f'[model]\nname = "scripted"\nbase_url = "{model.openai_url}"\napi_key = "key-of-tests"\n'
            "[agent]\ntitles = false\n"
        )
        ran = subprocess.run(
            [sys.executable, "-m", "hermes_cli.main", "chat", "-q", "go"],
            env={
                **os.environ,
                "TMPDIR": str(temp),
                "HERMES_HOME": str(home),
                "HOME": str(tmp_path),
            },
            cwd=tmp_path,
            capture_output=True,
            timeout=60,
            check=False,
        )
    assert b"Done." in ran.stdout, ran.stderr
    assert list(temp.iterdir()) == []


def test_processes_of_a_test_do_not_use_the_directory_of_the_system(tmp_path: Path) -> None:
    code = "import tempfile; print(tempfile.gettempdir())"
    for environment in ({"PATH": "/usr/bin:/bin"}, None):
        listed = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert Path(listed.stdout.strip()).parent == tmp_path.parent
