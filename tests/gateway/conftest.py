"""What the tests of the gateway share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_core.paths import Home
from tests.gateway.harness import World


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_GATEWAY_LOCK_DIR", str(tmp_path / "locks"))


@pytest.fixture
def world(home: Home) -> Iterator[World]:
    with World(home) as running_world:
        yield running_world
