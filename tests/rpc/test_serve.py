"""The server that stays: started by `hermes serve`, one for each home, found by `hermes attach`."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hermes_cli.commands import attach
from hermes_core.errors import ConfigError
from tests.rpc.harness import TIMEOUT_S, World
from tests.rpc.test_ws import Socket

SERVE = ("hermes_cli.main", "serve")
ENTRY = ("tui_gateway.entry", "--ws")


@contextmanager
def serving(world: World, *arguments: str) -> Generator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=world.workspace,
        env=world.environment,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def refused(world: World, *arguments: str) -> str:
    """What a server says that does not start."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        capture_output=True,
        text=True,
        env=world.environment,
        timeout=TIMEOUT_S,
    )
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def test_serve_says_where_it_listens_and_serves_until_ctrl_c(world: World) -> None:
    with serving(world, *SERVE) as process:
        first_line = line_of(process)
        address = attach.find(world.home)
        assert address.url in first_line
        assert address.pid == process.pid
        assert "hermes attach" in line_of(process)
        world.model.add("hi")
        client = Socket({"url": address.url, "token": address.token})
        assert client.say(client.open(cwd=str(world.workspace)))["text"] == "hi"
        client.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0
    with pytest.raises(ConfigError, match="Start one with: hermes serve"):
        attach.find(world.home)


def test_serve_listens_where_it_is_told_and_tells_a_program(world: World, tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    file = tmp_path / "address.json"
    options = ("--port", str(port), "--token-file", str(file), "--json")
    with serving(world, *SERVE, *options) as process:
        payload = json.loads(line_of(process))["params"]["payload"]
        assert payload == {**payload, "url": f"ws://127.0.0.1:{port}/", "token_file": str(file)}
        assert json.loads(file.read_text())["pid"] == process.pid


@pytest.mark.parametrize("second", [SERVE, ENTRY])
def test_a_second_server_for_a_home_refuses_and_leaves_the_first_alone(
    world: World, second: tuple[str, ...]
) -> None:
    with serving(world, *ENTRY) as process:
        line_of(process)
        address = attach.find(world.home)
        for port in (0, int(address.url.rstrip("/").rpartition(":")[2])):
            text = refused(world, *second, "--port", str(port))
            assert f"process {process.pid} at {address.url}" in text
        assert attach.find(world.home) == address


def test_the_file_of_a_server_that_is_gone_is_taken_over(world: World) -> None:
    with serving(world, *ENTRY) as process:
        line_of(process)
        dead = attach.find(world.home)
    assert (world.home.root / "tui_gateway.json").exists()
    with serving(world, *ENTRY) as process:
        line_of(process)
        assert attach.find(world.home).pid == process.pid != dead.pid


def test_a_server_removes_only_its_own_file(world: World) -> None:
    file = world.home.root / "tui_gateway.json"
    with serving(world, *ENTRY) as first:
        line_of(first)
        file.unlink()
        with serving(world, *ENTRY) as second:
            line_of(second)
            first.terminate()
            assert first.wait(TIMEOUT_S) == 0
            assert attach.find(world.home).pid == second.pid
            os.kill(second.pid, 0)
