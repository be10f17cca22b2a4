"""Logging set-up; called by entry points, never by importing."""

import logging
import os
from io import TextIOWrapper
from pathlib import Path

from hermes_core.paths import make_folder
from hermes_core.secrets import redact

_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_MAX_BYTES = 2_000_000
_KEPT = 3


class _PrivateFile(logging.FileHandler):
    """A log that only its owner may read, and that makes room for itself when it has grown.

    The handlers of the standard library that do this load the network with them.
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
            if self.stream is not None and self.stream.tell() > _MAX_BYTES:
                self.close()
                _make_room(Path(self.baseFilename))
                self._closed = False
        except OSError:  # a full disk must not stop what the record is about
            self.handleError(record)

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return TextIOWrapper(os.fdopen(descriptor, "ab"), encoding=self.encoding)


def _make_room(path: Path) -> None:
    """Move each old log one place further; the last one goes."""
    for number in range(_KEPT - 1, -1, -1):
        source = path.with_name(f"{path.name}.{number}") if number else path
        if source.exists():
            source.replace(path.with_name(f"{path.name}.{number + 1}"))


class _WithoutSecrets(logging.Formatter):
    """Writes a record, tracebacks included, with every secret replaced by its name."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


def set_up(folder: Path, level: str) -> None:
    """Write records of `level` and above to hermes.log, and nothing to the terminal."""
    handler = _PrivateFile(make_folder(folder) / "hermes.log", encoding="utf-8", delay=True)
    handler.setFormatter(_WithoutSecrets(_FORMAT))
    root = logging.getLogger()
    for former in root.handlers:
        if isinstance(former, _PrivateFile):
            former.close()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
