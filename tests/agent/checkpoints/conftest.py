"""A workspace with checkpoints, whatever sandbox this machine has."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_agent.checkpoints.shadow import Shadow
from hermes_core.paths import Home
from hermes_core.settings import AgentSettings, ApprovalSettings, Settings, ToolSettings

SETTINGS = Settings(
    agent=AgentSettings(titles=False),
    tools=ToolSettings(sandbox="host", checkpoint_file_mb=1),
    approvals=ApprovalSettings(mode="allow"),
)
"""Commands run as they are and nothing is asked: what is tested is the way back."""


@pytest.fixture(autouse=True)
def git() -> str:
    found = shutil.which("git")
    if found is None:
        pytest.skip("git is not installed")
    return found


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The workspace of `make_chat`."""
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.fixture
def open_shadow(home: Home, work: Path) -> Iterator[Callable[[], Shadow]]:
    opened: list[Shadow] = []

    def make() -> Shadow:
        opened.append(Shadow(home, work, SETTINGS.tools))
        return opened[-1]

    yield make
    for shadow in opened:
        shadow.close()


@pytest.fixture
def shadow(open_shadow: Callable[[], Shadow]) -> Shadow:
    return open_shadow()
