"""What the tests of the interface share."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from hermes_core import clock
from hermes_core.paths import Home
from tests.tui.fake_server import NOW
from tests.tui.harness import Interface, running


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the double keeps its conversations."""
    path = tmp_path / "double"
    path.mkdir()
    return path


@pytest.fixture
async def ui(folder: Path, home: Home) -> AsyncIterator[Interface]:
    async with running(folder, home) as interface:
        yield interface


@pytest.fixture
def a_fixed_moment() -> Iterator[None]:
    with clock.replaced(lambda: NOW):
        yield


class SvgExtension(SingleFileSnapshotExtension):
    """One picture a file, which a browser shows."""

    _write_mode = WriteMode.TEXT
    file_extension = "svg"


@pytest.fixture
def picture(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(SvgExtension)
