"""Registry of this process's secrets, and the function that redacts them.

Matches exact values, not patterns. Every sink redacts: the store, the log, requests to models, exports,
events and output of commands.
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
    """Let `redact` replace these values by their names, which are the keys."""
    global _pattern, _bytes_pattern  # noqa: PLW0603 -- the one set of secrets of the process
    with _lock:
        for name, value in secrets.items():
            if value:
                _names[value] = name
                _names[json.dumps(value)[1:-1]] = name  # escaped as in JSON text
        if _names:
            # Longest first: one secret may be a prefix of another.
            text = "|".join(re.escape(value) for value in sorted(_names, key=len, reverse=True))
            _pattern = re.compile(text)
            _bytes_pattern = re.compile(text.encode())


def forget() -> None:
    """Remove all secrets; for tests."""
    global _pattern, _bytes_pattern  # noqa: PLW0603 -- as above
    with _lock:
        _names.clear()
        _pattern = _bytes_pattern = None


def redact(text: str) -> str:
    """Replace every registered secret by its name."""
    if _pattern is None:
        return text
    return _pattern.sub(lambda found: f"[secret {_names[found[0]]}]", text)


def redact_bytes(data: bytes) -> bytes:
    """Redact encoded text, such as the body of a request."""
    if _bytes_pattern is None:
        return data
    return _bytes_pattern.sub(lambda found: f"[secret {_names[found[0].decode()]}]".encode(), data)
