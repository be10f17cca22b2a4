"""Start of the terminal UI, without importing the command line (which would double the time)."""

import importlib
import importlib.util
import sys

from hermes_core import config, log
from hermes_core.errors import ConfigError, UsageError
from hermes_core.installation import install_command
from hermes_core.paths import Home


def install_hint() -> str:
    """Return the command that installs the terminal UI."""
    return install_command("tui")


def is_possible() -> bool:
    """Return whether this is a terminal that can show the UI."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not config.is_dumb_terminal()


def is_installed() -> bool:
    """Return whether the `tui` extra is installed."""
    return importlib.util.find_spec("textual") is not None


def is_first_run() -> bool:
    """Return whether nothing was set up or said in this home yet."""
    home = config.home()
    return not (home.config.exists() or home.database.exists())


def run_default() -> int:
    """Run the UI as `hermes` without arguments does; return the exit status."""
    opening = importlib.import_module("hermes_tui.opening").Opening()
    transport = importlib.import_module("hermes_tui.transport")
    return run(config.home(), transport.ChildTransport.start, opening)


def run(home: Home, connect: object, opening: object) -> int:
    """Run the UI on this terminal; return the exit status. Raises HermesError."""
    if not is_possible():
        raise UsageError(
            "The terminal UI needs a terminal.", fix='Try: hermes chat -q "your question".'
        )
    if not is_installed():
        raise ConfigError(
            "The terminal UI is not installed.",
            fix=f"Install it: {install_hint()}. Or use: hermes chat.",
        )
    log.set_up(home.create().logs, "info")
    interface = importlib.import_module("hermes_tui.app")
    status = interface.HermesApp(connect, home, opening).run()
    return status if isinstance(status, int) else 1
