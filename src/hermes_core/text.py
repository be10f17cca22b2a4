"""Small rules about text: cleaning, shortening, numbers, and how wide it is on a terminal."""

import re
import unicodedata

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_INVISIBLE = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]")

_JOINERS = "\u200c\u200d"
"""They belong to words and to emoji, and take no room."""


def one_line(text: str) -> str:
    """Collapse every run of white space to one blank."""
    return " ".join(text.split())


def truncate(text: str, limit: int) -> str:
    """Shorten to `limit` characters, the last of which then says so."""
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


def shorten_middle(text: str, limit: int) -> str:
    """Shorten to about `limit` characters; the beginning and the end stay, and the gap says its size."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]}\n[… {len(text) - limit} characters left out …]\n{text[-tail:]}"


def number(value: float) -> str:
    """A number as people write it, never with an exponent."""
    return f"{value:.10f}".rstrip("0").rstrip(".")


def counted(number: int, noun: str) -> str:
    """So many of something: `1 call`, `2 calls`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def usd(amount: float) -> str:
    """An amount of money: in cents, and more exactly where it is less than one."""
    return f"${amount:.2f}" if amount >= 0.01 or not amount else f"${number(amount)}"


def without_surrogates(text: str) -> str:
    """Replace half characters, which no file and no wire can carry."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


def typed(name: object) -> str:
    """A name of a file as it is typed in a shell, for commands that are shown to be copied."""
    import shlex  # noqa: PLC0415 -- such commands are rare, and every start would pay for it

    return shlex.quote(str(name))


def visible(text: str) -> str:
    """Drop control characters and marks that change how text is shown, keep the line breaks."""
    return _INVISIBLE.sub("", _CONTROL.sub("", text))


def width(text: str) -> int:
    """Columns the text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.combining(c) or c in _JOINERS
        else 2
        if unicodedata.east_asian_width(c) in "WF"
        else 1
        for c in text
    )


def fit(text: str, columns: int) -> str:
    """Shorten or pad to exactly `columns` columns."""
    if width(text) > columns:
        text = _head(text, columns - 1) + "…" if columns > 0 else ""
    return text + " " * (columns - width(text))


def _head(text: str, columns: int) -> str:
    """As much of the text as fits into that many columns."""
    used = 0
    for position, character in enumerate(text):
        used += width(character)
        if used > columns:
            return text[:position]
    return text
