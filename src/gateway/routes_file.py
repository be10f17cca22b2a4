"""RoutesFile: sessions.json shows the routes to people; written in the background."""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gateway.entry import SessionEntry
from hermes_core.paths import make_folder
from hermes_state.ledger.records import encode

logger = logging.getLogger(__name__)

FILE = "sessions.json"
_NOTE = (
    "This file is written by the gateway and shows which conversation each chat is in. It is not the"
    " list of conversations: they are in state.db, and `hermes sessions list` shows them. Changes made"
    " here are lost."
)
_BATCH = 50
"""Entries written at a time: turns would feel a long hold of the interpreter."""
_PAUSE_S = 0.005
_DELAY_S = 5.0


class RoutesFile:
    """Updates the file a few seconds after the routes change."""

    def __init__(self, folder: Path, entries: Callable[[], Sequence[SessionEntry]]) -> None:
        self.path = folder / FILE
        self._entries = entries
        self._condition = threading.Condition()
        self._is_due = False
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._writing = threading.Lock()

    def schedule(self) -> None:
        """Write the file after a few seconds, with all changes until then."""
        with self._condition:
            self._is_due = True
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="routes-file", daemon=True)
                self._thread.start()

    def now(self, pause_s: float = 0.0) -> None:
        """Replace the file atomically; in the background with pauses."""
        with self._writing:
            draft = self.path.with_name(f".{FILE}.{os.getpid()}.new")
            make_folder(self.path.parent)
            try:
                with os.fdopen(
                    os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
                ) as f:
                    for portion in self._text():
                        f.write(portion)
                        self._pause(pause_s)
                    f.flush()
                    os.fsync(f.fileno())
                draft.replace(self.path)
            finally:
                draft.unlink(missing_ok=True)

    def close(self) -> None:
        """Write pending changes, and stop."""
        with self._condition:
            is_due, self._is_due, self._is_closed = self._is_due, False, True
            self._condition.notify_all()
        with self._writing:  # wait for a write that has begun
            pass
        if is_due:
            self._write()

    def read(self) -> dict[str, Any]:
        """Return the entries of the file; empty when it cannot be read."""
        try:
            entries = msgspec.json.decode(self.path.read_bytes(), type=dict[str, Any])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError):
            logger.warning("Cannot read %s", self.path, exc_info=True)
            return {}
        return {key: entry for key, entry in entries.items() if not key.startswith("_")}

    def _text(self) -> Iterator[bytes]:
        entries = self._entries()
        yield b'{\n  "_README": ' + msgspec.json.encode(_NOTE)
        for start in range(0, len(entries), _BATCH):
            yield b"".join(_line(entry) for entry in entries[start : start + _BATCH])
        yield b"\n}\n"

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._is_closed, timeout=_DELAY_S)
                if self._is_closed or not self._is_due:
                    self._thread = None
                    return
                self._is_due = False
            self._write(_PAUSE_S)

    def _pause(self, seconds: float) -> None:
        """Leave the interpreter to turns for a moment, unless `close` waits."""
        if seconds:
            with self._condition:
                self._condition.wait_for(lambda: self._is_closed, timeout=seconds)

    def _write(self, pause_s: float = 0.0) -> None:
        """Write the file; a failure is only logged, as nothing depends on it."""
        try:
            self.now(pause_s)
        except (OSError, ValueError):
            logger.warning("Cannot write %s", self.path, exc_info=True)


def _line(entry: SessionEntry) -> bytes:
    body = msgspec.json.format(encode(entry.to_dict()).encode(), indent=2)
    key = msgspec.json.encode(entry.session_key)
    return b",\n  " + key + b": " + body.replace(b"\n", b"\n  ")
