"""Reference links: `[words][1]` with `[1]: address` elsewhere, put where they are used.

So each part of a text has its links. Only addresses count: `[Note]: soon` stays as text.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gateway.outline import Line, Outline

_DEFINITION = re.compile(
    r"(?:[ ]{0,3}>)*[ ]{0,3}\[(?!\^)(?P<label>(?:[^\[\]\\]|\\.){1,200})\]:[ \t]*"
    r"(?:<(?P<bracketed>[^<>\n]{1,2000})>|(?P<bare>[^\s<]\S{0,2000}))"
    r"""(?:[ \t]+(?P<title>"[^"\n]{0,300}"|'[^'\n]{0,300}'|\([^()\n]{0,300}\)))?[ \t]*\r?"""
)
_ADDRESS = re.compile(
    r"[a-z][a-z0-9+.-]+:\S|/|\#|\.{1,2}/|[\w-]+(?:\.[\w-]+)*\.[a-z]{2,}(?:[/:?#]|$)", re.IGNORECASE
)
_WORDS = r"!?\[(?P<{0}>(?:[^\[\]\\`]|\\.|`[^`\n]*`|\[[^\[\]]{{0,200}}\]){{1,1000}})\]"
_USE = re.compile(
    rf"""\\.
    | (?P<code>(?<!`)`+(?!`)).*?(?<!`)(?P=code)(?!`)
    | {_WORDS.format("linked")}\(
    | (?P<words>{_WORDS.format("text")})(?:\[(?P<label>(?:[^\[\]\\]|\\.){{0,200}})\]|(?!\[))
    """,
    re.VERBOSE | re.DOTALL,
)
_PROSE = ("text", "heading", "head", "row")


class _Part(NamedTuple):
    """A paragraph, a definition, or lines of which neither is true."""

    text: str
    is_prose: bool = False
    label: str = ""
    """The name of what is defined here."""
    target: str = ""
    """Where that leads, as it stands between the parentheses of a link."""


def resolved(text: str) -> str:
    """Put the address beside the words of each link that names one; leave the rest as it was."""
    if "]:" not in text:
        return text
    parts = list(_parts(text))
    targets: dict[str, str] = {}
    for part in parts:
        if part.label:
            targets.setdefault(part.label, part.target)
    used: set[str] = set()
    inlined = [_inlined(part.text, targets, used) if part.is_prose else part.text for part in parts]
    remaining = (
        words
        for words, part in zip(inlined, parts, strict=True)
        if part.label not in used or part.target != targets[part.label]
    )
    return "".join(remaining) if used else text


def _parts(text: str) -> Iterator[_Part]:
    """Yield the parts of a text from its beginning to its end."""
    paragraph = ""
    for line in Outline(text).lines:
        whole = text[line.start : line.end + 1]
        defined = None if paragraph else _definition(whole.rstrip("\n"), line)
        if defined is None and line.kind in _PROSE:
            paragraph += whole
            continue
        yield _Part(paragraph, is_prose=True)
        paragraph = ""
        yield defined._replace(text=whole) if defined else _Part(whole)
    yield _Part(paragraph, is_prose=True)


def _definition(text: str, line: Line) -> _Part | None:
    found = _DEFINITION.fullmatch(text) if line.kind == "text" else None
    if found is None:
        return None
    address = found["bracketed"] or found["bare"]
    if not _ADDRESS.match(address):
        return None
    target = address.replace("(", "%28").replace(")", "%29").replace(" ", "%20")
    if found["title"]:
        title = found["title"][1:-1].replace('"', "'")
        target += f' "{title}"'
    return _Part("", label=_name(found["label"]), target=target)


def _inlined(paragraph: str, targets: Mapping[str, str], used: set[str]) -> str:
    """Put the addresses of its links into a paragraph; note which were used."""

    def link(found: re.Match[str]) -> str:
        name = _name(found["label"] or found["text"] or "")
        if found["words"] is None or name not in targets:
            return found[0]
        used.add(name)
        return f"{found['words']}({targets[name]})"

    return _USE.sub(link, paragraph)


def _name(label: str) -> str:
    """Return a label as it is compared with others."""
    return " ".join(label.split()).casefold()
