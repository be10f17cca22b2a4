"""Finds the new text of a mail: without the history below or above it, and without the signature.

Only text that is marked as ours is history: all else may be what the mail is about. When in doubt a line
stays: a line too many is read twice, a line too few is lost.
"""

import re
from typing import NamedTuple

_ATTRIBUTION = re.compile(
    r"(on\s.{5,300}\swrote|am\s.{5,300}\sschrieb\s?.{0,200}|le\s.{5,300}\sa\sécrit"
    r"|el\s.{5,300}\sescribió|il\s.{5,300}\sha\sscritto|em\s.{5,300}\sescreveu"
    r"|op\s.{5,300}\sschreef\s?.{0,200}|(den|på)\s.{5,300}\sskrev\s?.{0,200})\s?:",
    re.IGNORECASE,
)
_NAMING = re.compile(
    r".{0,200}<[^<>@\s]+@[^<>\s]+>.{0,40}[:：]|.{1,200}\s(schrieb am|napisał).{0,100}:"
)
"""A possible attribution in any language, if quoted lines follow."""
_WRAPPED_OVER = 3
_ORIGINAL = re.compile(
    r"-{2,}\s*(original message|original appointment|ursprüngliche nachricht|originalnachricht"
    r"|message d['’]origine|mensaje original|messaggio originale|mensagem original"
    r"|oorspronkelijk bericht)\s*-{2,}",
    re.IGNORECASE,
)
_FORWARDED = re.compile(
    r"(-{2,}\s*(forwarded message|weitergeleitete nachricht|message transféré|mensaje reenviado"
    r"|messaggio inoltrato)\s*-{2,}|(begin forwarded message|anfang der weitergeleiteten nachricht"
    r"|début du message (transféré|réexpédié))\s?:)",
    re.IGNORECASE,
)
_FORWARD_SUBJECT = re.compile(r"\s*(fwd?|wg|tr|rv|i|enc|doorst|vb)\s*:", re.IGNORECASE)
_FROM = re.compile(r"\W*(from|von|de|da|van|från|od|expéditeur)\s?:\W*\S", re.IGNORECASE)
_FIELD = re.compile(
    r"\W*(sent|date|to|cc|subject|gesendet|datum|an|betreff|envoyé|à|objet|enviado( el)?|para|asunto"
    r"|fecha|inviato|data|a|oggetto|verzonden|aan|onderwerp|skickat|till|ämne)\s?:",
    re.IGNORECASE,
)
_RULE = re.compile(r"[_\-–—]{5,}")
_FOOTER = re.compile(
    r"(sent from (my|mail for|outlook|yahoo)|sent with proton|get outlook for"
    r"|von meinem .{2,40} gesendet"
    r"|gesendet (von|mit) |diese nachricht wurde von meinem .{2,60} gesendet|envoyé de(puis)? "
    r"|enviado desde |inviato da |verzonden (vanaf|met) |skickat från ).{0,80}",
    re.IGNORECASE,
)
_MAX_SIGNATURE = 20
_SIGNATURE = "-- "
_ADDRESS = re.compile(r"[^\s<>()\[\]:;,\"']+@[A-Za-z0-9.-]*[A-Za-z0-9]")
_MAX_HEADERS = 7
"""The most lines of a copy of headers."""


class Writer(NamedTuple):
    """The author of mails, as mails name them."""

    address: str
    name: str

    def is_named_in(self, line: str) -> bool:
        """Return whether a line names them, by the address, or without one by the name."""
        addresses = {found.lower() for found in _ADDRESS.findall(line)}
        if addresses or not self.name:
            return self.address.lower() in addresses
        return bool(re.search(rf"(?<!\w){re.escape(self.name)}(?!\w)", line, re.IGNORECASE))


def is_forward(subject: str) -> bool:
    """Return whether it is the subject of a forwarded mail."""
    return bool(_FORWARD_SUBJECT.match(subject))


def new_text(text: str, us: Writer) -> str:
    """Return the new text of a mail; all of it when nothing else remains."""
    lines = text.split("\n")
    forwarded = next(
        (n for n, line in enumerate(lines) if _FORWARDED.fullmatch(line.strip())), None
    )
    own, rest = lines[:forwarded], [] if forwarded is None else lines[forwarded:]
    new = "\n".join(without_signature(_without_history(own, us))).strip()
    return "\n\n".join([new, "\n".join(rest)]).strip() or text.strip()


def without_signature(lines: list[str]) -> list[str]:
    """Remove the last signature and the footer of a phone."""
    for position in range(len(lines) - 1, max(-1, len(lines) - 2 - _MAX_SIGNATURE), -1):
        if lines[position] == _SIGNATURE:
            lines = lines[:position]
            break
    while lines and (not lines[-1].strip() or _FOOTER.fullmatch(lines[-1].strip())):
        lines = lines[:-1]
    return lines


def _without_history(lines: list[str], us: Writer) -> list[str]:
    above = _cut_below_headers(lines, us)
    return _without_quotes(_cut_below_attribution(above, us), us)


def _cut_below_headers(lines: list[str], us: Writer) -> list[str]:
    """Cut the history of Outlook: a copy of the headers, with everything below it."""
    for position in range(len(lines)):
        if lines[position].strip() and _are_our_headers(
            lines[position : position + _MAX_HEADERS], us
        ):
            above = lines[:position]
            while above and (not above[-1].strip() or _RULE.fullmatch(above[-1].strip())):
                above.pop()
            return above or lines
    return lines


def _are_our_headers(lines: list[str], us: Writer) -> bool:
    """Return whether a copy of the headers of a mail of ours begins here."""
    filled = [line for line in lines if line.strip()]
    is_marked = bool(filled) and _ORIGINAL.fullmatch(lines[0].strip()) is not None
    if is_marked:
        filled = filled[1:]
        if _attribution_at(filled, 0, us):
            return True
    if not filled or not _FROM.match(filled[0]) or not us.is_named_in(filled[0]):
        return False
    return is_marked or sum(bool(_FIELD.match(line)) for line in filled[1:]) >= 2


def _cut_below_attribution(lines: list[str], us: Writer) -> list[str]:
    """Cut the history that follows its attribution without quote marks, up to the end."""
    for position in range(len(lines)):
        length = _attribution_at(lines, position, us)
        if length and any(line.strip() for line in lines[:position]):
            below = [line for line in lines[position + length :] if line.strip()]
            is_dated = any(
                c.isdigit() or c == "@" for c in "".join(lines[position : position + length])
            )
            if is_dated and below and not any(line.lstrip().startswith(">") for line in below):
                return lines[:position]
    return lines


def _attribution_at(lines: list[str], position: int, us: Writer) -> int:
    """Return how many lines from here are an attribution to us, perhaps wrapped; 0: none."""
    for length in range(1, _WRAPPED_OVER + 1):
        part = [line.strip() for line in lines[position : position + length]]
        if len(part) < length or not all(part) or any(line.startswith(">") for line in part):
            return 0
        if _ATTRIBUTION.fullmatch(" ".join(part)):
            return length if us.is_named_in(" ".join(part)) else 0
    return 0


def _without_quotes(lines: list[str], us: Writer) -> list[str]:
    """Without blocks of `>` lines that are the history.

    Blocks that somebody answered one after the other have their meaning: then all of them stay.
    """
    blocks = _blocks(lines)
    answered = [end for _, end in blocks if any(line.strip() for line in lines[end:])]
    if len(answered) > 1:
        return lines
    remaining: list[str] = []
    before = 0
    for start, end in blocks:
        head = _attribution_before(lines, start, us)
        if head < start or _is_attributed_inside(lines[start:end], us):
            remaining += lines[before:head]
            before = end
    return [*remaining, *lines[before:]]


def _blocks(lines: list[str]) -> list[tuple[int, int]]:
    """Return the ranges of quoted lines; blank lines between two runs belong to one block."""
    blocks: list[tuple[int, int]] = []
    for position, line in enumerate(lines):
        if not line.lstrip().startswith(">"):
            continue
        if blocks and not any(line.strip() for line in lines[blocks[-1][1] : position]):
            blocks[-1] = (blocks[-1][0], position + 1)
        else:
            blocks.append((position, position + 1))
    return blocks


def _attribution_before(lines: list[str], start: int, us: Writer) -> int:
    """Return where the attribution of a block to us begins; its own start without one."""
    end = start
    while end > 0 and not lines[end - 1].strip():
        end -= 1
    for length in range(1, min(_WRAPPED_OVER, end) + 1):
        if _attribution_at(lines, end - length, us) == length:
            return end - length
    last = lines[end - 1].strip() if end > 0 else ""
    return end - 1 if _NAMING.fullmatch(last) and us.is_named_in(last) else start


def _is_attributed_inside(block: list[str], us: Writer) -> bool:
    """Return whether a block begins with an attribution to us."""
    lines = [re.sub(r"^\s*>\s?", "", line) for line in block]
    while lines and (not lines[0].strip() or _RULE.fullmatch(lines[0].strip())):
        lines = lines[1:]
    return bool(_attribution_at(lines, 0, us)) or _are_our_headers(lines[:_MAX_HEADERS], us)
