"""Remembers mail threads: which mail belongs to which, and their subjects.

It is only a cache: without it a thread is found by its References header alone. One line per mail, and
only the newest ones are kept.
"""

import json
import logging
import os
from pathlib import Path
from threading import Lock

from hermes_core.paths import make_folder, write_private

_log = logging.getLogger(__name__)
_MAX_MAILS = 20_000


class Threads:
    """The threads of one mailbox; used by the thread that reads and by the one that sends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._roots: dict[tuple[str, str], str] = {}
        self._subjects: dict[tuple[str, str], str] = {}
        make_folder(path.parent)
        self._read()

    def _read(self) -> None:
        is_there = self._path.exists()
        lines = self._path.read_text("utf-8", "replace").splitlines() if is_there else []
        if len(lines) > 2 * _MAX_MAILS:
            lines = lines[-_MAX_MAILS:]
            write_private(self._path, "\n".join(lines) + "\n")
        for line in lines:
            try:
                address, message_id, root, subject = json.loads(line)
                self._remember(address, message_id, root, subject)
            except (ValueError, TypeError):
                continue  # cut off by a crash, or damaged

    def root_of(self, address: str, message_ids: list[str]) -> str | None:
        """Return the thread with this person that one of these mails belongs to."""
        with self._lock:
            roots = (self._roots.get((address, name)) for name in reversed(message_ids))
            return next(filter(None, roots), None)

    def subject_of(self, address: str, root: str) -> str:
        with self._lock:
            return self._subjects.get((address, root), "")

    def note(self, address: str, message_id: str, root: str, subject: str) -> None:
        """Store that a mail from or to this person belongs to a thread."""
        with self._lock:
            if self._roots.get((address, message_id)) == root:
                return
            self._remember(address, message_id, root, subject)
            try:
                self._append(json.dumps([address, message_id, root, subject]) + "\n")
            except OSError as error:  # a mail must not wait or get lost for it
                _log.warning("The thread of %s cannot be noted: %s", message_id, error)

    def _append(self, line: str) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as f:
            f.write(line)

    def _remember(self, address: str, message_id: str, root: str, subject: str) -> None:
        self._roots[address, message_id] = root
        self._subjects.setdefault((address, root), subject)
        for table in (self._roots, self._subjects):
            if len(table) > _MAX_MAILS:
                del table[next(iter(table))]
