"""What every test gets: a home of its own, a clean environment, no plugins and no secrets."""

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_cli import plugins
from hermes_core import secrets
from hermes_core.paths import Home

# A shell that runs this in the background has Ctrl-C ignored, and nohup the end of the terminal; every
# child would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    for name in [name for name in os.environ if name.startswith("HERMES_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "home"))
    return Home(tmp_path / "home")


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
    secrets.forget()


@pytest.fixture(autouse=True)
def no_plugins_stay() -> Iterator[None]:
    yield
    plugins.host.reset()
