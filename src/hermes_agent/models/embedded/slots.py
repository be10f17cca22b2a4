"""Saved beginnings of prompts: what the engine has worked out for a prompt's head, kept on disk.

Reading the head is most of the work of a first answer, and the head is the same at every start. A file
that is not what the engine wrote would end the process, so its name carries the hash of its content,
and only a file that still has it is handed over.
"""

import hashlib
import logging
from collections.abc import Iterable
from pathlib import Path

logger = logging.getLogger(__name__)

_MAX_STATES = 4
"""How many are kept: a file has about 30 kB a token."""

_DIGEST = 32


class Slots:
    """The saved beginnings for one model and one version of the engine."""

    def __init__(self, folder: Path, model: str) -> None:
        self._folder = folder
        self._model = _short(model.encode())

    def find(self, head: str) -> str | None:
        """The name of the file for this head."""
        return self._first_whole(f"{self._model}-{_short(head.encode())}-*.slot")

    def nearest(self) -> str | None:
        """The name of the latest file for any head, whose beginning may be the same."""
        return self._first_whole(f"{self._model}-*.slot")

    def draft(self, head: str) -> str:
        """The name under which the engine is to write the file for this head."""
        return f"{self._model}-{_short(head.encode())}.draft"

    def keep(self, head: str) -> None:
        """Take the engine's draft for good, and let the oldest ones go."""
        draft = self._folder / self.draft(head)
        try:
            draft.chmod(0o600)
            draft.replace(draft.with_name(f"{draft.stem}-{_digest(draft)}.slot"))
            for old in _latest_first(self._folder.glob("*.slot"))[_MAX_STATES:]:
                old.unlink(missing_ok=True)
        except OSError:  # the next start is slow again, and that is all
            logger.warning("Could not store the prompt prefix", exc_info=True)

    def drop(self, name: str) -> None:
        """Forget a file that the engine would not take."""
        (self._folder / name).unlink(missing_ok=True)

    def _first_whole(self, pattern: str) -> str | None:
        for path in _latest_first(self._folder.glob(pattern)):
            if path.stem.endswith(f"-{_digest(path)}"):
                return path.name
            path.unlink(missing_ok=True)
        return None


def _latest_first(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: -path.stat().st_mtime_ns)


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGEST]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:_DIGEST]
