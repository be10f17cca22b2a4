"""The log: records as JSON in a file, one a line, and as lines for people; without secrets in both.

What a record is about goes along as fields: `logger.info("turn answered", extra={"turn_id": …})`. Ids
and numbers, never what somebody said. Set up by entry points, never by importing.
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
_KEPT = 3
_MAX_PER_INTERVAL = 5
_LIMIT_INTERVAL_S = 60.0
_COMPARED_LENGTH = 40
"""As much of a message is compared: what follows are details, such as the address of an object."""
_MAX_COUNTED = 1000
_CHATTY = ("apscheduler", "httpcore", "httpx", "httpx2", "nio", "telegram", "uvicorn")
"""Libraries that tell of every request at the level at which we tell of every message."""
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
"""What every record has; the rest are its fields."""
_FIRST = ("time", "level", "logger", "message", "traceback")
_encode = msgspec.json.Encoder(enc_hook=str).encode


class _PrivateFile(logging.Handler):
    """A log that only its owner may read, and that makes room for itself when it has grown.

    A record is one write, so that processes which share the file do not mix their lines. The handlers of
    the standard library that make room load the network with them.
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
                self._begin_anew(os.fstat(self._descriptor))
        except OSError as error:  # a full disk, or a home that may only be read
            with suppress(AttributeError, OSError, ValueError):  # there may be nobody to tell
                sys.stderr.write(f"hermes: {self._path} cannot be written: {error.strerror}.\n")
        except Exception:  # noqa: BLE001 -- no odd record stops what it is about
            self.handleError(record)

    def _begin_anew(self, full: os.stat_result) -> None:
        """Write to a new file, which another process that shares it may have begun already."""
        self._let_go()
        if os.path.samestat(full, self._path.stat()):
            _make_room(self._path)

    def _let_go(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def close(self) -> None:
        self._let_go()
        super().close()


def _make_room(path: Path) -> None:
    """Move each old log one place further; the last one goes."""
    for number in range(_KEPT - 1, -1, -1):
        source = path.with_name(f"{path.name}.{number}") if number else path
        if source.exists():
            source.replace(path.with_name(f"{path.name}.{number + 1}"))


class _RateLimit(logging.Filter):
    """Drops records of libraries that come too often: one failure in a loop would fill the log."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[tuple[str, str], tuple[float, int]] = {}
        """By logger and message: when its interval began, and how many records came in it."""

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
            record.repeats = f"left out for {_LIMIT_INTERVAL_S:g} s"
        return count < _MAX_PER_INTERVAL


class _AsJson(logging.Formatter):
    """A record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        fields = self.said(record)
        try:
            return _encode(fields).decode()
        except UnicodeEncodeError:
            return _encode(
                {name: without_surrogates(str(fields[name])) for name in fields}
            ).decode()

    def said(self, record: logging.LogRecord) -> dict[str, Any]:
        """A record as plain values, tracebacks included, with every secret replaced by its name."""
        fields: dict[str, Any] = {
            "time": _moment(record.created),
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
    """The same as a line for a person."""

    def format(self, record: logging.LogRecord) -> str:
        return _line(self.said(record))


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def readable(line: str) -> str:
    """A line of the file as a person reads it; one that is no record stays as it is."""
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
    """Write records of `level` and above to hermes.log; `is_shown`: also to the standard error.

    The details that libraries tell are not kept at any level: they have what people say, and tokens that
    nobody knows as secrets yet.
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
    for former in root.handlers:
        if isinstance(former, _PrivateFile):
            former.close()
    root.handlers[:] = handlers
    root.setLevel("INFO" if level == "debug" else level.upper())
    # No record says these, so none need find them out.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    for name in _OURS:
        logging.getLogger(name).setLevel("DEBUG" if level == "debug" else "NOTSET")
    for name in _CHATTY:
        logging.getLogger(name).setLevel("WARNING")
