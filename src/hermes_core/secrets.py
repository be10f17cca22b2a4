"""Registry of this process's secrets, and the function that redacts them.

Matches exact values and their usual encodings, not patterns. Every sink redacts: the store, the log,
requests to models, exports, events and output of commands.
"""

import base64
import json
import re
import string
from collections import defaultdict
from collections.abc import Iterator, Mapping
from threading import Lock

_MIN_ENCODED = 8
"""Shorter secrets are looked for as they are: their encodings would occur by chance."""
_BEGINNING = 28
"""Characters that an encoding is recognized by; as many as it has are replaced."""
_UNESCAPED = frozenset(string.ascii_letters + string.digits + "-._~")

_lock = Lock()
_names: dict[str, str] = {}
_encodings: dict[str, tuple[str, int]] = {}
"""By their beginnings: the name of the secret, and the length."""
_pattern: re.Pattern[str] | None = None
_bytes_pattern: re.Pattern[bytes] | None = None


def register(secrets: Mapping[str, str]) -> None:
    """Let `redact` replace these values and their encodings by their names, which are the keys."""
    global _pattern, _bytes_pattern  # noqa: PLW0603 -- the one set of secrets of the process
    with _lock:
        before = len(_names)
        for name, value in secrets.items():
            if value:
                for text in _encoded(value):
                    _encodings[text[:_BEGINNING]] = name, len(text)
                _names[json.dumps(value)[1:-1]] = name  # escaped as in JSON text
                _names[value] = name
        if len(_names) > before:
            text = _alternation()
            _pattern = re.compile(text)
            _bytes_pattern = re.compile(text.encode())


def _encoded(secret: str) -> Iterator[str]:
    """Yield base64 at each offset, hexadecimal, percent and reversed forms of a secret."""
    if len(secret) < _MIN_ENCODED:
        return
    data = secret.encode("utf-8", "replace")
    for offset in range(3):
        # The characters at both ends depend on what stands beside the secret.
        start, end = (offset * 8 + 5) // 6, (offset + len(data)) * 8 // 6
        text = base64.b64encode(bytes(offset) + data).decode()[start:end]
        yield from (text, text.translate(str.maketrans("+/", "-_")))
    yield from (data.hex(), data.hex().upper(), secret[::-1])
    for form in ("%{:02X}", "%{:02x}"):
        escaped = "".join(chr(b) if chr(b) in _UNESCAPED else form.format(b) for b in data)
        if escaped != secret:
            yield from (escaped, escaped.replace("%20", "+"))


def _alternation() -> str:
    """Return a pattern of all values, by their first letters: a long list is slow to go through.

    Encoders break lines, so an encoding may have line ends inside.
    """
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for value in sorted(_names, key=len, reverse=True):  # one secret may be a prefix of another
        groups[re.escape(value[0])].append(re.escape(value[1:]))
    for beginning, (_, length) in _encodings.items():
        rest = "[\r\n]*".join(map(re.escape, beginning[1:]))
        more = rf"(?:[\r\n]*.){{0,{length - len(beginning)}}}"
        groups[re.escape(beginning[0])].append(f"[\r\n]*{rest}{more}")
    return "|".join(f"{first}(?:{'|'.join(rests)})" for first, rests in groups.items())


def forget() -> None:
    """Remove all secrets; for tests."""
    global _pattern, _bytes_pattern  # noqa: PLW0603 -- as above
    with _lock:
        _names.clear()
        _encodings.clear()
        _pattern = _bytes_pattern = None


def redact(text: str) -> str:
    """Replace every registered secret by its name."""
    if _pattern is None:
        return text
    return _pattern.sub(lambda found: _named(found[0]), text)


def redact_bytes(data: bytes) -> bytes:
    """Redact encoded text, such as the body of a request."""
    if _bytes_pattern is None:
        return data
    return _bytes_pattern.sub(lambda found: _named(found[0].decode()).encode(), data)


def _named(value: str) -> str:
    name = _names.get(value)
    if name is None:
        name, _ = _encodings[value.replace("\n", "").replace("\r", "")[:_BEGINNING]]
    return f"[secret {name}]"
