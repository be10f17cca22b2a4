"""The session store: conversations on disk, safe against whatever happens to the process."""

from pathlib import Path

from hermes_core import config
from hermes_state.db import SessionDB

__all__ = ["DEFAULT_DB_PATH", "SessionDB"]

DEFAULT_DB_PATH: Path


def __getattr__(name: str) -> Path:
    if name == "DEFAULT_DB_PATH":  # asked for, not computed at import: the home may be set by then
        return config.home().database
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
