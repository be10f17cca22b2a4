"""Every store this project ships passes the conformance suite."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import SessionDB
from hermes_state.testing.conformance import StoreConformance


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionDB]:
    where = tmp_path / "state.db" if request.param == "file" else ":memory:"
    with SessionDB(where) as opened:
        yield opened


class TestConformance(StoreConformance):
    """The suite itself."""
