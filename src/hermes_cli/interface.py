"""Starting the terminal UI, apart from the command line, which takes as long to load as half of it."""

import importlib
import importlib.util
import sys

from hermes_core import config, log
from hermes_core.errors import ConfigError, UsageError
from hermes_core.paths import Home

INSTALL = "pip install 'hermes[tui]'"


def is_possible() -> bool:
    """Return whether this terminal, if it is one, can show the interface."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not config.is_dumb_terminal()


def is_installed() -> bool:
    """Return whether the `tui` extra is there."""
    return importlib.util.find_spec("textual") is not None


def alone() -> int:
    """Return what `hermes` without any argument does on a terminal; returns the exit status."""
    opening = importlib.import_module("hermes_tui.opening").Opening()
    transport = importlib.import_module("hermes_tui.transport")
    return run(config.home(), transport.ChildTransport.start, opening)


def run(home: Home, connect: object, opening: object) -> int:
    """Run the interface on this terminal; returns the exit status. Raises HermesError."""
    if not is_possible():
        raise UsageError(
            "The user interface needs a terminal.", fix='Try: hermes chat -q "your question".'
        )
    if not is_installed():
        raise ConfigError(
            "The user interface is not installed.",
            fix=f"Install it: {INSTALL}. Or use: hermes chat.",
        )
    log.set_up(home.create().logs, "info")
    interface = importlib.import_module("hermes_tui.app")
    status = interface.HermesApp(connect, home, opening).run()
    return status if isinstance(status, int) else 1
