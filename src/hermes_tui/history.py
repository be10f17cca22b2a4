"""The input history, shared with `hermes chat`: the same private file in the same form.

A text is a comment with the time, then each of its lines after a plus sign.
"""

import logging
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from hermes_core import clock
from hermes_core.errors import ConfigError
from hermes_core.paths import touch_private
from hermes_core.secrets import redact

logger = logging.getLogger(__name__)

_READ_BYTES = 1_000_000
_MAX_BYTES = 64_000_000
_MAX_TEXTS = 1000
_MIN_TEXTS = 100
_MAX_LENGTH = 100_000
"""Characters from which on a text is kept in its short form only: it would push the others out."""


class InputHistory:
    """Going back through what was typed, and forward again to what is being typed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.texts: list[str] = []
        self._place: int | None = None
        self._draft = ""

    def load(self) -> None:
        """Read the end of the file; a disk that fails costs only the history."""
        found: list[str] = []
        try:
            size, window = self._path.stat().st_size, _READ_BYTES
            found = self._read(size, window)
            while len(found) < _MIN_TEXTS and window < min(size, _MAX_BYTES):
                window *= 4  # something long stands at the end
                found = self._read(size, window)
        except FileNotFoundError:
            return
        except OSError:
            logger.warning("the history %s cannot be read", self._path, exc_info=True)
            return
        self.texts = [*found, *self.texts][-_MAX_TEXTS:]

    def _read(self, size: int, window: int) -> list[str]:
        """The texts in the last so many bytes, without one that begins before them."""
        with self._path.open("rb") as f:
            f.seek(max(0, size - window))
            lines = f.read().decode("utf-8", "replace").split("\n")
        if window < size:
            lines = lines[next((n for n, line in enumerate(lines) if not line), 0) :]
        return [text for text in _texts(lines) if len(text) <= _MAX_LENGTH]

    def add(self, text: str, short: str = "") -> None:
        """Remember a text, for later starts too; secrets are replaced by their names.

        Of one that is very long the short form is remembered.
        """
        self.rest()
        text = redact((text if len(text) <= _MAX_LENGTH else short[:_MAX_LENGTH]).strip("\n"))
        if not text.strip() or (self.texts and self.texts[-1] == text):
            return
        self.texts.append(text)
        moment = datetime.fromtimestamp(clock.now(), UTC).replace(tzinfo=None)
        written = "".join(f"+{line}\n" for line in text.split("\n"))
        try:
            touch_private(self._path)
            with self._path.open("ab") as f:
                f.write(f"\n# {moment}\n{written}".encode())
                f.flush()
                os.fsync(f.fileno())
        except (OSError, ConfigError):
            logger.warning("the history %s cannot be written", self._path, exc_info=True)

    def rest(self) -> None:
        """Stop going through the history; the next step back begins at its end."""
        self._place = None

    def back(self, typed: str) -> str | None:
        """The text before; `typed` is kept to come back to. None at the beginning."""
        if self._place is None:
            self._draft, self._place = typed, len(self.texts)
        if self._place == 0:
            return None
        self._place -= 1
        return self.texts[self._place]

    def forward(self) -> str | None:
        """The text after, at last what was being typed; None when not going through the history."""
        if self._place is None:
            return None
        self._place += 1
        if self._place < len(self.texts):
            return self.texts[self._place]
        self._place = None
        return self._draft


def _texts(lines: Iterable[str]) -> list[str]:
    found: list[str] = []
    current: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("+"):
            current.append(line[1:])
        elif current:
            found.append("\n".join(current))
            current = []
    return found
