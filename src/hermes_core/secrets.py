"""The registry of the secrets of this process, and the function that redacts them.

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
from typing import cast

_MIN_LENGTH = 8
"""Shorter ones are not secrets of the environment, and their encodings would occur by chance."""
_BEGINNING = 28
"""Characters that an encoding is recognized by; as many as it has are replaced."""
_UNESCAPED = frozenset(string.ascii_letters + string.digits + "-._~")

_SECRET_NAME = re.compile(
    r"(?:^|[_.])(?:API_?KEY|KEY|TOKEN|SECRET|PASS|CREDENTIALS?|PRIVATE_KEY|PAT|DSN)S?$"
    r"|_(?:PWD|PW)$|(?:PASSWORD|PASSWD|PASSPHRASE)S?$|_(?:KEY|TOKEN|SECRET)_",
    re.IGNORECASE,
)
_URL_PASSWORD = re.compile(r"\b[a-zA-Z][\w+.-]*://[^\s/@:]*:([^\s/@]+)@")
_SECRET_LIKE = re.compile(
    r"key|token|secret|pass|pwd|auth(?!ors?$)|credential|cookie|dsn|private", re.I
)
"""Names in tables of platforms and plugins, which may be spelled in any way."""
_KEY_SHAPE = re.compile(
    r"\b(?:sk|pk|rk|xox[a-z]|gh[a-z]|glpat)[-_]\w[\w-]{6}|\b\d{6,}:[\w-]{20}|\beyJ\w{20}"
)
"""Keys of well-known services, bots and JSON web tokens."""
_WORDS = (
    rf"(?P<key>(?:{_KEY_SHAPE.pattern})\S*)"
    r"|(?P<before>(?<!\S)--?[\w-]*(?:key|token|secret|pass|pwd|credential)[\w-]*(?:\s+|=)"
    r"|\b\w*(?:key|token|secret|passw|pass|pwd|credential)\w*[\"']?\s*[=:]\s*"
    r"|\b(?:bearer|basic)\s+|(?<!\S)(?:-u|--user)[\s=]+[^\s:]+:)"
    r"""(?P<value>"[^"]*"|'[^']*'|\S+)"""
)
"""Keys by their shape, and the words of a command that follow the name of a secret."""
MASK = "********"

_lock = Lock()
_names: dict[str, str] = {}
_encodings: dict[str, tuple[str, int]] = {}
"""By their beginnings: the name of the secret, and the length."""
_pattern: re.Pattern[str] | None = None
_bytes_pattern: re.Pattern[bytes] | None = None
"""Each is compiled when it is first needed: that takes milliseconds for every secret."""


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
            _pattern = _bytes_pattern = None


def _encoded(secret: str) -> Iterator[str]:
    """Yield base64 at each offset, hexadecimal, percent and reversed forms of a secret."""
    if len(secret) < _MIN_LENGTH:
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


def clear() -> None:
    """Remove all secrets; for tests."""
    global _pattern, _bytes_pattern  # noqa: PLW0603 -- as above
    with _lock:
        _names.clear()
        _encodings.clear()
        _pattern = _bytes_pattern = None


def redact(text: str) -> str:
    """Replace every registered secret by its name."""
    if not _names:
        return text
    pattern = _pattern or _compile()
    return pattern.sub(lambda found: _named(found[0]), text)


def redact_bytes(data: bytes) -> bytes:
    """Redact encoded text, such as the body of a request."""
    if not _names:
        return data
    pattern = _bytes_pattern or _compile_bytes()
    return pattern.sub(lambda found: _named(found[0].decode()).encode(), data)


def _compile() -> re.Pattern[str]:
    global _pattern  # noqa: PLW0603 -- as above
    with _lock:
        _pattern = _pattern or re.compile(_alternation())
        return _pattern


def _compile_bytes() -> re.Pattern[bytes]:
    global _bytes_pattern  # noqa: PLW0603 -- as above
    with _lock:
        _bytes_pattern = _bytes_pattern or re.compile(_alternation().encode())
        return _bytes_pattern


def _named(value: str) -> str:
    name = _names.get(value)
    if name is None:
        name, _ = _encodings[value.replace("\n", "").replace("\r", "")[:_BEGINNING]]
    return f"[secret {name}]"


def is_secret_name(name: str) -> bool:
    """Return whether a setting or variable of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def holds_secret(name: str, value: str) -> bool:
    """Return whether a variable holds a secret: by its name, or as a URL with a password."""
    return is_secret_name(name) or _URL_PASSWORD.search(value) is not None


def secrets_in(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets of an environment, by name; short ones are words that occur everywhere."""
    found = {name: value for name, value in environment.items() if holds_secret(name, value)}
    for name, value in environment.items():
        for number, password in enumerate(_URL_PASSWORD.findall(value), 1):
            if not password.isalpha():  # postgres, changeme: no secret, and in every other line
                from urllib.parse import unquote  # noqa: PLC0415 -- slow to load, and rarely needed

                found[f"{name} password {number}"] = password
                found[f"{name} password {number} decoded"] = unquote(password)
    return {name: value for name, value in found.items() if len(value) >= _MIN_LENGTH}


def masked(name: str, value: object, *, is_table: bool = False) -> object:
    """Return the value of a setting without secrets, which people would paste into bug reports."""
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        return {
            key: masked(name if is_secret_name(name) else key, item, is_table=True)
            for key, item in table.items()
        }
    if isinstance(value, list):
        items = cast("list[object]", value)
        return [masked(name, item, is_table=is_table) for item in items]
    if not isinstance(value, str) or not value:
        return value
    if is_secret_name(name) or (is_table and _SECRET_LIKE.search(name)) or _KEY_SHAPE.search(value):
        return MASK
    return without_passwords(value)


def mask_words(text: str) -> str:
    """Mask what looks like a secret in a command that other people may read; too much at times."""
    words = re.sub(_WORDS, lambda found: f"{found['before'] or ''}{MASK}", text, flags=re.I)
    return without_passwords(words)


def without_passwords(text: str) -> str:
    """Mask the passwords in the URLs of a text."""
    return _URL_PASSWORD.sub(lambda found: found[0].replace(f":{found[1]}@", f":{MASK}@"), text)
