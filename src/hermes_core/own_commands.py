"""Tell commands of the agent apart, which may not change what the agent is allowed to do.

Commands carry a marker in their environment. One that was started without it is found by its ancestors;
one that left these too is held by a sandbox alone.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from hermes_core.errors import ConfigError

MARKER = "HERMES_IN_COMMAND"
_MAX_ANCESTORS = 64


def refuse(action: str, environment: Mapping[str, str]) -> None:
    """Raise ConfigError if this process is a command of the agent."""
    if MARKER in environment or any(map(_is_marked, _ancestry())):
        raise ConfigError(
            f"A command of the agent may not {action}.",
            fix="Run this yourself, in a terminal of your own.",
        )


def _is_marked(process: Path) -> bool:
    """Return whether a process was started with the marker; it cannot take that back."""
    try:
        environment = (process / "environ").read_bytes()
    except OSError:  # of another user, or over; or there is no /proc
        return False
    return any(entry.startswith(f"{MARKER}=".encode()) for entry in environment.split(b"\0"))


def _ancestry() -> Iterator[Path]:
    """Yield this process and its ancestors in /proc."""
    name = "self"
    for _ in range(_MAX_ANCESTORS):
        process = Path("/proc", name)
        yield process
        try:
            name = (process / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1]
        except (OSError, IndexError):
            return
        if name == "0":
            return
