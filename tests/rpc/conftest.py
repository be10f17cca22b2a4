"""What the tests of the server share: a world with a scripted model, and clients."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_agent.testing.server import ScriptedServer
from hermes_core.paths import Home
from tests.rpc.harness import Inside, World
from tui_gateway import server
from tui_gateway.resources import Resources


@pytest.fixture
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer([]) as scripted:
        yield scripted


@pytest.fixture
def world(home: Home, tmp_path: Path, model: ScriptedServer) -> Iterator[World]:
    workspace = tmp_path / "work"
    workspace.mkdir()
    world = World(home, workspace, model)
    yield world
    world.close()


@pytest.fixture
def client(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Inside]:
    """A client of the server in this process, with the world's surroundings."""
    for name, value in world.environment.items():
        if name != "PATH":
            monkeypatch.setenv(name, value)
    monkeypatch.chdir(world.workspace)
    monkeypatch.setattr(server, "_resources", Resources())
    yield Inside()
    server.shut_down()
