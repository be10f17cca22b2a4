"""Logging: JSON records in a file, one per line, and plain lines on stderr; both without secrets.

Ids and numbers go into fields: `logger.info("turn answered", extra={"turn_id": …})`. Text of messages
is never logged. Entry points set logging up; importing does not.
"""

import logging
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from hermes_core.paths import make_folder
from hermes_core.secrets import redact
from hermes_core.text import without_surrogates

FILE = "hermes.log"
_MAX_BYTES = 2_000_000
_MAX_OLD_FILES = 3
_MAX_PER_INTERVAL = 5
_LIMIT_INTERVAL_S = 60.0
_COMPARED_LENGTH = 40
"""Characters of a message that the rate limit compares; details such as object addresses follow."""
_MAX_COUNTED = 1000
_CHATTY = ("apscheduler", "httpcore", "httpx", "httpx2", "nio", "telegram", "uvicorn")
"""Libraries that log every request at level INFO."""
_OURS = (
    "gateway",
    "hermes_agent",
    "hermes_cli",
    "hermes_core",
    "hermes_engine",
    "hermes_plugins",
    "hermes_state",
    "hermes_tui",
    "tui_gateway",
)
_OWN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
"""Attributes of every record; all others are fields."""
_FIRST = ("time", "level", "logger", "message", "traceback")
_encode = msgspec.json.Encoder(enc_hook=str).encode


class _PrivateFile(logging.Handler):
    """Handler for a private log file with rotation, shared by several processes.

    Each record is one write, so lines of different processes do not mix. ADR 18 says why this is not
    `RotatingFileHandler`.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._descriptor: int | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._descriptor is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                self._descriptor = os.open(self._path, flags, 0o600)
            os.write(self._descriptor, f"{self.format(record)}\n".encode("utf-8", "replace"))
            if os.lseek(self._descriptor, 0, os.SEEK_CUR) > _MAX_BYTES:
                self._rotate(os.fstat(self._descriptor))
        except OSError as error:  # full disk, or read-only home
            with suppress(AttributeError, OSError, ValueError):  # stderr may be closed
                sys.stderr.write(f"hermes: cannot write {self._path}: {error.strerror}.\n")
        except Exception:  # noqa: BLE001 -- a broken record must not stop its caller
            self.handleError(record)

    def _rotate(self, full: os.stat_result) -> None:
        """Start a new file, unless another process has already done so."""
        self._close_file()
        if os.path.samestat(full, self._path.stat()):
            _rename_old(self._path)

    def _close_file(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def close(self) -> None:
        self._close_file()
        super().close()


def _rename_old(path: Path) -> None:
    """Rename each log file to the next number; the last one is overwritten."""
    for number in range(_MAX_OLD_FILES - 1, -1, -1):
        source = path.with_name(f"{path.name}.{number}") if number else path
        if source.exists():
            source.replace(path.with_name(f"{path.name}.{number + 1}"))


class _RateLimit(logging.Filter):
    """Drops repeated records of libraries: one failure in a loop would fill the log."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[tuple[str, str], tuple[float, int]] = {}
        """Start of the interval and number of records in it, by logger and message."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] in _OURS:
            return True
        key = (record.name, str(record.msg)[:_COMPARED_LENGTH])
        began, count = self._counts.get(key, (record.created, 0))
        if record.created - began > _LIMIT_INTERVAL_S or record.created < began:
            began, count = record.created, 0
        if key not in self._counts and len(self._counts) >= _MAX_COUNTED:
            self._counts.clear()
        self._counts[key] = (began, count + 1)
        if count == _MAX_PER_INTERVAL - 1:
            record.repeats = f"suppressed for {_LIMIT_INTERVAL_S:g} s"
        return count < _MAX_PER_INTERVAL


class _AsJson(logging.Formatter):
    """Formats a record as a JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        fields = self.fields(record)
        try:
            return _encode(fields).decode()
        except UnicodeEncodeError:
            return _encode(
                {name: without_surrogates(str(fields[name])) for name in fields}
            ).decode()

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return a record as plain values with its traceback, redacted."""
        fields: dict[str, Any] = {
            "time": _timestamp(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        for name, value in vars(record).items():
            if name not in _OWN:
                is_plain = value is None or isinstance(value, int | float)
                fields[name] = value if is_plain else redact(str(value))
        if record.exc_info and record.exc_info[0]:
            fields["traceback"] = redact(self.formatException(record.exc_info))
        return fields


class _AsLine(_AsJson):
    """Formats a record as a line for a person."""

    def format(self, record: logging.LogRecord) -> str:
        return _line(self.fields(record))


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def format_line(line: str) -> str:
    """Format a line of the file for a person; a line that is not a record stays unchanged."""
    try:
        return _line(msgspec.json.decode(line, type=dict[str, Any]))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return line


def _line(record: dict[str, Any]) -> str:
    """`2026-03-01 10:00:00 INFO gateway.turns: turn answered (chat=7 seconds=1.5)`."""
    moment = datetime.fromisoformat(record["time"]).astimezone()
    fields = " ".join(f"{name}={value}" for name, value in record.items() if name not in _FIRST)
    text = f"{moment:%Y-%m-%d %H:%M:%S} {record['level']} {record['logger']}: {record['message']}"
    more = f" ({fields})" if fields else ""
    trace = f"\n{record['traceback']}" if "traceback" in record else ""
    return f"{text}{more}{trace}"


def set_up(folder: Path, level: str, *, is_shown: bool = False) -> None:
    """Write records of `level` and above to hermes.log; with `is_shown` also to stderr.

    Debug records of libraries are never logged: they hold messages, and tokens not yet registered as
    secrets.
    """
    file = _PrivateFile(make_folder(folder) / FILE)
    file.setFormatter(_AsJson())
    handlers: list[logging.Handler] = [file]
    if is_shown:
        handlers.append(logging.StreamHandler(sys.stderr))
        handlers[-1].setFormatter(_AsLine())
    for handler in handlers:
        handler.addFilter(_RateLimit())
    root = logging.getLogger()
    for old in root.handlers:
        if isinstance(old, _PrivateFile):
            old.close()
    root.handlers[:] = handlers
    root.setLevel("INFO" if level == "debug" else level.upper())
    # No formatter uses these; skip the work.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    for name in _OURS:
        logging.getLogger(name).setLevel("DEBUG" if level == "debug" else "NOTSET")
    for name in _CHATTY:
        logging.getLogger(name).setLevel("WARNING")
