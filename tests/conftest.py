"""What every test gets: a home of its own, a clean environment, no plugins and no secrets."""

import gc
import itertools
import logging
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from hermes_cli import plugins
from hermes_core import gc_tuning, secrets
from hermes_core.paths import Home
from tests.support.examples import SHARE
from tests.support.stores import copy_new_stores

# A shell that runs this in the background has Ctrl-C ignored, and nohup the end of the terminal; every
# child would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Everybody sees the same examples, whatever was found before; `make fuzz` looks for others.
settings.register_profile(
    "fixed", derandomize=True, database=None, deadline=None, max_examples=100 // SHARE
)
settings.register_profile("fuzz", derandomize=False, deadline=None, print_blob=True)
settings.load_profile("fixed")

_NUMBERS = itertools.count()

TIERS = {"servers": 120, "e2e": 120, "proof": 600}
"""Tests that `make test` leaves out, and how many seconds each may take; CONTRIBUTING.md has more."""


COPYING_STORES = {"test_conformance.py", "test_transfer.py", "test_search.py"}
"""Tests in `tests/state` for which any store will do."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        limits = [TIERS[mark.name] for mark in item.iter_markers() if mark.name in TIERS]
        if limits and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(max(limits)))


def pytest_collection_finish() -> None:
    """Exclude the tests themselves from every garbage collection that one of them causes."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def gc_of_all_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what tunes the garbage collection of a process: many tests share this one."""
    for name in ("freeze", "unfreeze", "use_small_generations"):
        monkeypatch.setattr(gc_tuning, name, lambda: None)


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder by number; pytest's own lists the others and moves a link for each test."""
    path = tmp_path_factory.getbasetemp() / str(next(_NUMBERS))
    path.mkdir(mode=0o700)
    return path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    for name in [name for name in os.environ if name.startswith("HERMES_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "home"))
    return Home(tmp_path / "home")


@pytest.fixture(autouse=True)
def temp_folders_of_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give processes a temporary directory of their own: one that is killed leaves its folders."""
    folder = tmp_path.with_name(f"{tmp_path.name}-tmp")
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("TMPDIR", str(folder))
    start = subprocess.Popen.__init__

    def start_there(process: Any, *args: Any, **options: Any) -> None:
        if options.get("env") is not None:
            options["env"] = {"TMPDIR": str(folder), **options["env"]}
        start(process, *args, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", start_there)


@pytest.fixture(autouse=True)
def new_stores(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Copy new stores from a template, except where the making of a store is the subject."""
    if request.path.name in COPYING_STORES or "state" not in request.path.parts:
        copy_new_stores(tmp_path_factory.getbasetemp(), monkeypatch)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(autouse=True)
def no_secrets_stay() -> Iterator[None]:
    yield
    secrets.clear()


@pytest.fixture(autouse=True)
def no_plugins_stay() -> Iterator[None]:
    yield
    plugins.host.reset()
