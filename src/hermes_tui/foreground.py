"""Run a program on our terminal while the interface is suspended."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

SETUP_COMMAND = (sys.executable, "-m", "hermes_cli.main", "setup")


def run_in_foreground(command: Sequence[str]) -> int:
    """Run a program to its end and return its exit status. Ctrl+C is for the program alone."""
    before = signal.signal(signal.SIGINT, _ignore)  # SIG_IGN would be inherited
    try:
        return subprocess.run(command, check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing: the terminal sends Ctrl+C to every process in its foreground."""
