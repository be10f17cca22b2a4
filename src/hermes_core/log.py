"""Logging set-up; called by entry points, never by importing."""

import logging
import os
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from hermes_core.paths import make_folder

_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_MAX_BYTES = 2_000_000
_KEPT = 3


class _PrivateFile(RotatingFileHandler):
    """A rotating log that only its owner may read."""

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return TextIOWrapper(os.fdopen(descriptor, "ab"), encoding=self.encoding)


def set_up(folder: Path, level: str) -> None:
    """Write records of `level` and above to hermes.log, and nothing to the terminal."""
    handler = _PrivateFile(
        make_folder(folder) / "hermes.log",
        maxBytes=_MAX_BYTES,
        backupCount=_KEPT,
        encoding="utf-8",
        delay=True,
    )
    handler.setFormatter(logging.Formatter(_FORMAT))
    root = logging.getLogger()
    for former in root.handlers:
        if isinstance(former, _PrivateFile):
            former.close()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
