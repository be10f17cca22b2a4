"""Text helpers: cleaning, truncation, numbers, width on a terminal."""

import re
import unicodedata
from collections.abc import Iterable, Iterator

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_INVISIBLE = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]")

_BLANK = frozenset(
    [0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0]
    + [*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]
)
"""Characters that count as printable and are not seen: fillers and variation selectors."""

_NO_COLUMNS = frozenset({"Mn", "Me", "Cf"})
_HANGUL_PARTS = frozenset(map(chr, range(0x1160, 0x1200)))
"""Vowels and final consonants, which join the one before them."""
_EMOJI_VARIANT = "\ufe0f"
_SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "KB"))
_MATCH = re.compile(r">>>(.*?)<<<", re.DOTALL)


def one_line(text: str) -> str:
    """Collapse every run of whitespace to one space."""
    return " ".join(text.split())


def truncate(text: str, limit: int) -> str:
    """Truncate to `limit` characters with an ellipsis at the end."""
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


def shorten_middle(text: str, limit: int) -> str:
    """Remove the middle of a text longer than `limit` and say how much was removed."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]}\n[… {len(text) - limit} characters omitted …]\n{text[-tail:]}"


def number(value: float) -> str:
    """Format a number without an exponent."""
    return f"{value:.10f}".rstrip("0").rstrip(".")


def counted(number: int, noun: str) -> str:
    """Format a count with its noun: `1 call`, `2 calls`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def usd(amount: float) -> str:
    """Format an amount in USD; less than a cent gets more digits."""
    return f"${amount:.2f}" if amount >= 0.01 or not amount else f"${number(amount)}"


def human_size(count: float) -> str:
    """Format a number of bytes: `950 bytes`, `2.5 MB`, `491 MB`, `1.1 GB`."""
    if count < 1000:
        return f"{max(count, 0):.0f} bytes"
    unit, name = next(((u, n) for u, n in _SIZES if count >= u), _SIZES[-1])
    digits = 1 if name == "GB" or count < 10 * unit else 0
    return f"{count / unit:.{digits}f} {name}"


def split_matches(text: str) -> list[str]:
    """Split a text found by a search; every second part is a match."""
    return _MATCH.split(text)


def without_marks(text: str) -> str:
    """Remove the marks around the matches from a text found by a search."""
    return _MATCH.sub(r"\1", text)


def similar(name: str, names: Iterable[str], count: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the names that may have been meant by one that does not exist, the most likely first."""
    import difflib  # noqa: PLC0415 -- slow to load, and only a mistake needs it

    return difflib.get_close_matches(name, list(names), count, cutoff)


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


def shell_quoted(name: object) -> str:
    """Quote a file name for a shell, in commands that users copy."""
    import shlex  # noqa: PLC0415 -- such commands are rare, and every start would pay for it

    return shlex.quote(str(name))


def visible(text: str) -> str:
    """Remove control and direction characters; line breaks stay."""
    return _INVISIBLE.sub("", _CONTROL.sub("", text))


def width(text: str) -> int:
    """Return the columns a text takes on a terminal."""
    return len(text) if text.isascii() else sum(_columns(text))


def _columns(text: str) -> Iterator[int]:
    """Yield the columns of each character; the parts of an emoji may be apart."""
    previous = 0
    for character in text:
        if character == _EMOJI_VARIANT:
            previous = int(previous == 1)  # it widens a narrow symbol
        elif unicodedata.category(character) in _NO_COLUMNS or character in _HANGUL_PARTS:
            previous = 0
        else:
            previous = 2 if unicodedata.east_asian_width(character) in "WF" else 1
        yield previous


def fit(text: str, columns: int) -> str:
    """Truncate or pad to exactly `columns` columns."""
    if width(text) > columns:
        text = _head(text, columns - 1) + "…" if columns > 0 else ""
    return text + " " * (columns - width(text))


def wrap(text: str, columns: int) -> list[str]:
    """Break one line into lines of at most `columns` columns, at spaces where possible."""
    lines: list[str] = []
    start = used = 0
    space = -1
    for position, (character, size) in enumerate(zip(text, _columns(text), strict=True)):
        if used + size > columns and position > start:
            if character == " ":
                space = position
            end = space if space > start else position
            lines.append(text[start:end])
            start = end + (space > start)
            used, space = width(text[start:position]), -1
            if start > position:
                continue
        elif character == " ":
            space = position
        used += size
    return [*lines, text[start:]]


def escaped(text: str) -> str:
    """Return a text in which everything can be seen: `<U+202E>` stands for what is invisible.

    Line breaks, tabs and spaces stay.
    """
    hidden = {
        c for c in set(text) if c not in "\n\t" and not (c.isprintable() and ord(c) not in _BLANK)
    }
    return text.translate({ord(c): f"<U+{ord(c):04X}>" for c in hidden}) if hidden else text


def _head(text: str, columns: int) -> str:
    """Return the longest prefix that fits into `columns` columns."""
    used = 0
    for position, size in enumerate(_columns(text)):
        used += size
        if used > columns:
            return text[:position]
    return text
