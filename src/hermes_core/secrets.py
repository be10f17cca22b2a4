"""Secrets of this process, and the one function that keeps their values out of whatever is written.

Exact values, not patterns: what was registered never passes a sink, and nothing else is touched. The
sinks are the store, the log, requests to models, exports, events and the output of commands.
"""

import json
import re
from collections.abc import Mapping
from threading import Lock

_lock = Lock()
_names: dict[str, str] = {}
_pattern: re.Pattern[str] | None = None
_bytes_pattern: re.Pattern[bytes] | None = None


def register(secrets: Mapping[str, str]) -> None:
    """From now on `redact` replaces these values; the keys are the names they are shown under."""
    global _pattern, _bytes_pattern  # noqa: PLW0603 -- the one set of secrets of the process
    with _lock:
        for name, value in secrets.items():
            if value:
                _names[value] = name
                _names[json.dumps(value)[1:-1]] = name  # as it looks inside JSON text
        if _names:
            # Longest first: one secret may be the beginning of another.
            text = "|".join(re.escape(value) for value in sorted(_names, key=len, reverse=True))
            _pattern = re.compile(text)
            _bytes_pattern = re.compile(text.encode())


def forget() -> None:
    """Redact nothing any more; for tests."""
    global _pattern, _bytes_pattern  # noqa: PLW0603 -- as above
    with _lock:
        _names.clear()
        _pattern = _bytes_pattern = None


def redact(text: str) -> str:
    """The text with every registered secret replaced by its name."""
    if _pattern is None:
        return text
    return _pattern.sub(lambda found: f"[secret {_names[found[0]]}]", text)


def redact_bytes(data: bytes) -> bytes:
    """The same for encoded text, such as the body of a request."""
    if _bytes_pattern is None:
        return data
    return _bytes_pattern.sub(lambda found: f"[secret {_names[found[0].decode()]}]".encode(), data)
