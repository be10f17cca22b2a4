"""sessions.json: the routes for people to read, written beside the work, never on the way of a turn."""

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
_AT_A_TIME = 50
"""Entries that are made into text in one go: a long hold of the interpreter would be felt by turns."""
_PAUSE_S = 0.005
_WAIT_S = 5.0


class RoutesFile:
    """Keeps the file in step with the routes, a few seconds behind."""

    def __init__(self, folder: Path, entries: Callable[[], Sequence[SessionEntry]]) -> None:
        self.path = folder / FILE
        self._entries = entries
        self._condition = threading.Condition()
        self._is_due = False
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._writing = threading.Lock()

    def soon(self) -> None:
        """Have the file written within some seconds, with all that changes until then."""
        with self._condition:
            self._is_due = True
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)
                self._thread.start()

    def now(self, pause_s: float = 0.0) -> None:
        """Write the file as a whole, or leave the old one; in the background with pauses."""
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
        """Write what is still to be written, and stop."""
        with self._condition:
            is_due, self._is_due, self._is_closed = self._is_due, False, True
            self._condition.notify_all()
        with self._writing:  # what is being written now is written to its end
            pass
        if is_due:
            self._write()

    def read(self) -> dict[str, Any]:
        """What the file says, without its notes; nothing when it cannot be read."""
        try:
            said = msgspec.json.decode(self.path.read_bytes(), type=dict[str, Any])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError):
            logger.warning("%s cannot be read and is left out", self.path, exc_info=True)
            return {}
        return {key: one for key, one in said.items() if not key.startswith("_")}

    def _text(self) -> Iterator[bytes]:
        entries = self._entries()
        yield b'{\n  "_README": ' + msgspec.json.encode(_NOTE)
        for start in range(0, len(entries), _AT_A_TIME):
            yield b"".join(_line(entry) for entry in entries[start : start + _AT_A_TIME])
        yield b"\n}\n"

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._is_closed, timeout=_WAIT_S)
                if self._is_closed or not self._is_due:
                    self._thread = None
                    return
                self._is_due = False
            self._write(_PAUSE_S)

    def _pause(self, seconds: float) -> None:
        """Leave the interpreter to turns for a moment, unless somebody waits for our end."""
        if seconds:
            with self._condition:
                self._condition.wait_for(lambda: self._is_closed, timeout=seconds)

    def _write(self, pause_s: float = 0.0) -> None:
        """The boundary of the mirror: a file that cannot be written harms nobody."""
        try:
            self.now(pause_s)
        except (OSError, ValueError):
            logger.warning("%s cannot be written", self.path, exc_info=True)


def _line(entry: SessionEntry) -> bytes:
    body = msgspec.json.format(encode(entry.to_dict()).encode(), indent=2)
    key = msgspec.json.encode(entry.session_key)
    return b",\n  " + key + b": " + body.replace(b"\n", b"\n  ")
