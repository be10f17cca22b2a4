"""`hermes model pull` as a person and a program use it."""

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from hermes_agent.models import embedded
from hermes_agent.models.embedded import model_files
from hermes_agent.models.embedded.progress import Step
from hermes_cli.commands import root
from hermes_cli.commands.model_pull import Bar
from hermes_core.paths import Home
from tests.agent.test_embedded_pull import OWN

TIMEOUT_S = 30


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "mine.gguf"
    path.write_bytes(OWN)
    return path


def test_a_file_of_ones_own_is_taken_and_said_to_be_ready(
    home: Home, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert root.run(["model", "pull", "--gguf", str(own)]) == 0
    output, errors = capsys.readouterr()
    assert output == f"mine is ready: {home.models / 'mine.gguf'}\n"
    assert "not in the catalog" in errors
    assert embedded.advice() in errors
    assert model_files.installed(home) == ["mine"]


def test_a_program_gets_json(home: Home, own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert root.run(["model", "pull", "other", "--gguf", str(own), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"name": "other", "path": str(home.models / "other.gguf")}


def test_without_a_terminal_nothing_is_fetched_and_the_command_is_named(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert root.run(["model", "pull", "qwen2.5-coder-0.5b"]) == 3
    assert "hermes model pull qwen2.5-coder-0.5b --yes" in capsys.readouterr().err
    assert not home.models.exists()


def test_a_wrong_name_is_told_the_right_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert root.run(["model", "pull", "gpt-99", "--yes"]) == 2
    assert "qwen2.5-coder-1.5b" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, b"not a model"])
def test_a_wrong_file_is_refused_with_a_reason(
    tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.gguf"
    if content is not None:
        path.write_bytes(content)
    assert root.run(["model", "pull", "--gguf", str(path)]) == 2
    assert ".gguf file" in capsys.readouterr().err


def test_a_source_that_cannot_be_reached_ends_with_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_MODEL_HUB", "http://127.0.0.1:9")
    assert root.run(["model", "pull", "qwen2.5-coder-0.5b", "--yes"]) == 3
    errors = capsys.readouterr().err
    assert "http://127.0.0.1:9 did not deliver" in errors
    assert "hermes model pull --gguf PATH" in errors


def test_a_person_on_a_terminal_is_asked_first(home: Home) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("hermes")), "model", "pull", "qwen2.5-coder-0.5b"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    os.write(ours, b"n\n")
    assert process.wait(TIMEOUT_S) == 130
    output = b""
    with suppress(OSError):  # what a terminal says when nobody is left at its other end
        while more := os.read(ours, 10_000):
            output += more
    os.close(ours)
    assert b"491 MB" in output
    assert not home.models.exists()


def test_the_bar_shows_words_as_lines_and_bytes_as_a_bar(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bar = Bar()
    for step in (
        Step("hub did not answer"),
        Step("from the index", 10, 100),
        Step("from the index", 100, 100),
        Step("checking", 100, 100),
        Step("done"),
    ):
        bar.show(step)
    bar.close()
    lines = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
    assert lines[0] == "hub did not answer"
    assert lines[-1] == "done"
    assert any("from the index" in line for line in lines)
    assert any("checking" in line for line in lines)
