"""A summary: six sections of short lines, read from Markdown that need not be tidy, written tidily."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from hermes_agent.tokens import Estimator
from hermes_core.text import truncate

SECTIONS = {
    "goal": "Goal",
    "decisions": "Decisions",
    "facts": "Facts and identifiers",
    "files": "Files",
    "open": "Open questions",
    "next": "Next step",
}
"""The parts of a summary, in their order, with their headings."""

_WORDS = {
    "next": ("next",),
    "open": ("open", "question", "pending", "unresolved", "blocker"),
    "decisions": ("decision", "decided", "choice"),
    "files": ("file", "path", "artifact"),
    "goal": ("goal", "objective", "task", "purpose"),
    "facts": ("fact", "identifier", "context", "finding", "detail", "note"),
}
"""What a heading says when it means a section; the first that fits counts."""

_HEADING = re.compile(
    r"\s{0,3}#{1,6}\s+(?P<hashes>[^\n:]{1,80}):?(?P<beside>[^\n]*)"
    r"|\s{0,3}(?:\d\.\s*)?\*\*(?P<stars>[^*\n]{1,80})\*\*:?(?P<after>[^\n]*)"
    r"|(?P<plain>[A-Z][A-Za-z ]{2,30}):(?P<rest>[^\n]*)"
)
_BULLET = re.compile(r"\A(?:[-*•+–]+|\d{1,2}[.)])(?:\s+|\Z)")
_LONGEST_LINE = 600
_ALSO = "Also named: "

Lines = dict[str, list[str]]


class Summary(NamedTuple):
    """What a stretch of conversation comes down to."""

    sections: Lines

    def __bool__(self) -> bool:
        return any(self.sections.values())

    @property
    def text(self) -> str:
        """The summary as Markdown; empty sections are left out."""
        parts = [
            f"## {heading}\n" + "\n".join(f"- {line}" for line in self.sections[key])
            for key, heading in SECTIONS.items()
            if self.sections.get(key)
        ]
        return "\n\n".join(parts)


def of(**sections: Iterable[str]) -> Summary:
    """A summary with these lines; no line twice, none too long."""
    return Summary({key: _tidy(sections.get(key, ())) for key in SECTIONS})


def _tidy(lines: Iterable[str]) -> list[str]:
    cleaned = (truncate(" ".join(line.split()), _LONGEST_LINE) for line in lines)
    return list(dict.fromkeys(line for line in cleaned if line))


def parse(text: str) -> Summary:
    """Read a summary. Text under no heading, or under a strange one, is a fact."""
    found: Lines = {key: [] for key in SECTIONS}
    current = "facts"
    for line in text.splitlines():
        heading = _HEADING.fullmatch(line)
        if heading is not None and (said := _said(heading)) is not None:
            current, rest = said
            found[current] += rest
            continue
        bare = _BULLET.sub("", line.strip())
        if bare and not bare.startswith("```"):
            found[current].append(bare)
    return of(**found)


def _said(heading: re.Match[str]) -> tuple[str, list[str]] | None:
    """Which section a heading opens, and what stands beside it; None: it is a line like any other."""
    name = next(part for part in heading.group("hashes", "stars", "plain") if part).strip("#: ")
    beside = next(part for part in heading.group("beside", "after", "rest") if part is not None)
    rest = [beside.strip("#: ")]
    lowered = name.lower()
    for key, words in _WORDS.items():
        if any(word in lowered for word in words) and len(lowered.split()) <= 4:
            return key, rest
    return ("facts", [f"{name}:", *rest]) if heading["hashes"] else None


def update(before: Summary, after: Summary) -> Summary:
    """What a model made of an earlier summary; a section it forgot stays as it was."""
    return of(**{key: after.sections[key] or before.sections[key] for key in SECTIONS})


def keep_identifiers(
    summary: Summary, wanted: Iterable[str], budget: int, sizes: Estimator
) -> Summary:
    """Add the identifiers that a summary does not name, as many as fit into a share of it."""
    lines = [line for line in summary.sections["facts"] if not line.startswith(_ALSO)]
    plain = Summary({**summary.sections, "facts": lines})
    said = plain.text
    chosen: list[str] = []
    left = budget
    for word in wanted:
        if word in said:
            continue
        left -= sizes.text(word) + 1
        if left < 0:
            break
        chosen.append(word)
    if not chosen:
        return plain
    return Summary({**plain.sections, "facts": [*lines, _ALSO + ", ".join(chosen)]})


def fit(summary: Summary, budget: int, sizes: Estimator) -> Summary:
    """As much of a summary as fits: of the longest section the oldest lines go, the goal last of all."""
    sections = {key: list(lines) for key, lines in summary.sections.items()}
    weights = {key: [sizes.text(line) + 2 for line in lines] for key, lines in sections.items()}
    headings = sum(sizes.text(heading) + 2 for heading in SECTIONS.values())
    while sum(map(sum, weights.values())) + headings > budget:
        key = _longest(weights)
        if len(weights[key]) <= 1:
            return _squeezed(sections, budget - headings, sizes)
        del sections[key][0], weights[key][0]
    return Summary(sections)


def _longest(weights: Mapping[str, list[int]]) -> str:
    """The section that gives way: one with lines to spare, if there is any."""
    spare = {key: sum(tokens) for key, tokens in weights.items() if len(tokens) > 1}
    return max(spare, key=spare.__getitem__) if spare else next(iter(weights))


def _squeezed(sections: Lines, budget: int, sizes: Estimator) -> Summary:
    """One line a section is left and still too much: each gets its part of the room."""
    filled = [key for key in SECTIONS if sections[key]]
    each = max(budget, 0) // max(len(filled), 1)
    cut: dict[str, Any] = {}
    for key in filled:
        line = sections[key][0]
        while line and sizes.text(line) + 2 > each:
            line = line[: len(line) * 3 // 4]
        cut[key] = [line]
    return of(**cut)
