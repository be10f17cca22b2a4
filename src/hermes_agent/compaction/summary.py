"""Summaries: six sections of short lines, parsed from untidy Markdown, and written without a model.

`digest` writes one from first lines and identifiers. A stored summary names the messages it replaces.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from hermes_agent.compaction.transcript import Block, calls_of, entries, text_of
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
"""The sections of a summary in order, with their headings."""
IDENTIFIERS_SHARE = 0.25
"""The part of a summary that is reserved for identifiers."""

_SECTION_WORDS = {
    "next": ("next",),
    "open": ("open", "question", "pending", "unresolved", "blocker"),
    "decisions": ("decision", "decided", "choice"),
    "files": ("file", "path", "artifact"),
    "goal": ("goal", "objective", "task", "purpose"),
    "facts": ("fact", "identifier", "context", "finding", "detail", "note"),
}
"""Words by which a heading is recognized; the first section that matches counts."""

_HEADING = re.compile(
    r"\s{0,3}#{1,6}\s+(?P<hashes>[^\n:]{1,80}):?(?P<beside>[^\n]*)"
    r"|\s{0,3}(?:\d\.\s*)?\*\*(?P<stars>[^*\n]{1,80})\*\*:?(?P<after>[^\n]*)"
    r"|(?P<plain>[A-Z][A-Za-z ]{2,30}):(?P<rest>[^\n]*)"
)
_BULLET = re.compile(r"\A(?:[-*•+–]+|\d{1,2}[.)])(?:\s+|\Z)")
_MAX_LINE = 600
_ALSO = "Also named: "

Lines = dict[str, list[str]]


class Summary(NamedTuple):
    """The sections of a summary, each a list of lines."""

    sections: Lines

    def __bool__(self) -> bool:
        return any(self.sections.values())

    @property
    def text(self) -> str:
        """Return the summary as Markdown, without empty sections."""
        parts = [
            f"## {heading}\n" + "\n".join(f"- {line}" for line in self.sections[key])
            for key, heading in SECTIONS.items()
            if self.sections.get(key)
        ]
        return "\n\n".join(parts)


def of(**sections: Iterable[str]) -> Summary:
    """Return a summary of these lines, without duplicates and with long lines truncated."""
    return Summary({key: _tidy(sections.get(key, ())) for key in SECTIONS})


def _tidy(lines: Iterable[str]) -> list[str]:
    cleaned = (truncate(" ".join(line.split()), _MAX_LINE) for line in lines)
    return list(dict.fromkeys(line for line in cleaned if line))


def parse(text: str) -> Summary:
    """Parse a summary; text without a heading, or under an unknown one, is a fact."""
    found: Lines = {key: [] for key in SECTIONS}
    current = "facts"
    for line in text.splitlines():
        heading = _HEADING.fullmatch(line)
        if heading is not None and (opened := _section_of(heading)) is not None:
            current, rest = opened
            found[current] += rest
            continue
        bare = _BULLET.sub("", line.strip())
        if bare and not bare.startswith("```"):
            found[current].append(bare)
    return of(**found)


def _section_of(heading: re.Match[str]) -> tuple[str, list[str]] | None:
    """Return the section that a heading opens and the text beside it; None for an ordinary line."""
    name = next(part for part in heading.group("hashes", "stars", "plain") if part).strip("#: ")
    beside = next(part for part in heading.group("beside", "after", "rest") if part is not None)
    rest = [beside.strip("#: ")]
    lowered = name.lower()
    for key, words in _SECTION_WORDS.items():
        if any(word in lowered for word in words) and len(lowered.split()) <= 4:
            return key, rest
    return ("facts", [f"{name}:", *rest]) if heading["hashes"] else None


def update(before: Summary, after: Summary) -> Summary:
    """Return the later summary with the sections that the model left out taken from the earlier."""
    return of(**{key: after.sections[key] or before.sections[key] for key in SECTIONS})


def keep_identifiers(
    summary: Summary, identifiers: Iterable[str], budget: int, sizes: Estimator
) -> Summary:
    """Add the identifiers that a summary does not name, within a number of tokens."""
    lines = [line for line in summary.sections["facts"] if not line.startswith(_ALSO)]
    plain = Summary({**summary.sections, "facts": lines})
    text = plain.text
    missing: list[str] = []
    for word in identifiers:
        if word in text:
            continue
        budget -= sizes.text(word) + 1
        if budget < 0:
            break
        missing.append(word)
    if not missing:
        return plain
    return Summary({**plain.sections, "facts": [*lines, _ALSO + ", ".join(missing)]})


def fit(summary: Summary, budget: int, sizes: Estimator) -> Summary:
    """Drop the oldest lines of the longest section until a summary fits; the goal goes last."""
    sections = {key: list(lines) for key, lines in summary.sections.items()}
    weights = {key: [sizes.text(line) + 2 for line in lines] for key, lines in sections.items()}
    headings = sum(sizes.text(heading) + 2 for heading in SECTIONS.values())
    while sum(map(sum, weights.values())) + headings > budget:
        key = _longest(weights)
        if len(weights[key]) <= 1:
            return _truncated(sections, budget - headings, sizes)
        del sections[key][0], weights[key][0]
    return Summary(sections)


def _longest(weights: Mapping[str, list[int]]) -> str:
    """Return the section to shorten: the longest with more than one line, if there is any."""
    spare = {key: sum(tokens) for key, tokens in weights.items() if len(tokens) > 1}
    return max(spare, key=spare.__getitem__) if spare else next(iter(weights))


def _truncated(sections: Lines, budget: int, sizes: Estimator) -> Summary:
    """Truncate the one line of each section to its share of the budget."""
    filled = [key for key in SECTIONS if sections[key]]
    each = max(budget, 0) // max(len(filled), 1)
    cut: dict[str, Any] = {}
    for key in filled:
        line = sections[key][0]
        while line and sizes.text(line) + 2 > each:
            line = line[: len(line) * 3 // 4]
        cut[key] = [line]
    return of(**cut)


# -- the stored summary ----------------------------------------------------------------------------

_OPENING = re.compile(r"\A\[Summary of messages (?P<first>\d+)[–-](?P<last>\d+)[^\]]*\]\s*")


def opening(first: int, last: int, earlier: Sequence[int]) -> str:
    """Return the first line of a stored summary; `earlier` messages below it are older than its end."""
    text = f"[Summary of messages {first}–{last}. They are kept; /expand {first}-{last} shows them."
    if earlier:
        names = ", ".join(map(str, earlier))
        verb = "is" if len(earlier) == 1 else "are"
        text += f" Message {names} below {verb} older than some of what is summarized here."
    return f"{text}]"


def span_of(row: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the first and last message that a stored summary replaces; None if it names none."""
    match = _OPENING.match(str(row.get("content") or ""))
    return None if match is None else (int(match["first"]), int(match["last"]))


def body_of(row: Mapping[str, Any]) -> str:
    """Return the text of a stored summary without its first line."""
    return _OPENING.sub("", str(row.get("content") or ""))


# -- identifiers -----------------------------------------------------------------------------------

_IDENTIFIER = re.compile(
    # Every repetition is bounded and begins only where a word does, so that no text takes long.
    r"""
    (?P<address> \b(?:https?|ftp|ssh|git|file)://[^\s<>"'`)\]}]{1,300} )
  | (?P<mail>    (?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,6}\b )
  | (?P<path>    (?<![\w/.@+-])(?:~|\.{1,2})?/(?:[\w.@+-]{1,80}/){0,24}[\w.@+-]{0,80}[A-Za-z0-9]
               | (?<![\w/.@+\\-])[A-Za-z]:\\(?:[\w.@+-]{1,80}\\){0,24}[\w.@+-]{1,80}
               | (?<![\w/.@+-])(?:[\w.@+-]{1,80}/){1,24}[\w@+-]{1,80}\.[A-Za-z]\w{0,7}
               | (?<![\w/.@+-])[\w@+-]{1,80}\.(?:py|pyi|js|ts|tsx|jsx|go|rs|c|h|cc|cpp|hpp|java|kt|rb|sh
                 |sql|md|txt|rst|toml|yaml|yml|json|ini|cfg|conf|env|csv|log|html|css|lock|db|pdf|png
                 |jpg)\b )
  | (?P<hash>    \b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b
               | \b(?=[0-9a-fA-F]{0,63}[0-9])(?=[0-9]{0,63}[a-fA-F])[0-9a-fA-F]{7,64}\b )
  | (?P<number>  \b\d{1,3}(?:,\d{3}){1,5}\b | \bv?\d{1,9}(?:[.:_-]\d{1,9}){1,8}\b
               | \#\d{1,9}\b | \b\d{3,20}\b )
    """,
    re.VERBOSE,
)
_TRAILING = ".,;:!?"
_MAX_IDENTIFIER = 200
_MAX_SCANNED = 200_000
"""Characters of one text that are searched."""

FILES = "path"


def identifiers_in(text: str) -> Iterable[tuple[str, str]]:
    """Yield the kind and the text of each identifier: addresses, paths, hashes, numbers."""
    for match in _IDENTIFIER.finditer(text, 0, _MAX_SCANNED):
        word = match.group().rstrip(_TRAILING)
        if 3 <= len(word) <= _MAX_IDENTIFIER or word.startswith("#"):
            yield str(match.lastgroup), word


class Tally:
    """The identifiers of many texts, ranked.

    A person's message weighs more than a tool output. Numbers rank last, and those of tool outputs are
    not counted: outputs are full of them. Of equal weight, the later ranks first.
    """

    def __init__(self) -> None:
        self._weights: Counter[str] = Counter()
        self._count = 0
        self._last: dict[str, int] = {}
        self._kinds: dict[str, str] = {}

    def add(self, text: str, weight: int, *, numbers: bool = True) -> None:
        """Count the identifiers of a text."""
        for kind, word in identifiers_in(text):
            if kind == "number" and not numbers:
                continue
            self._weights[word] += weight
            self._count += 1
            self._last[word] = self._count
            self._kinds.setdefault(word, kind)

    def ranked(self, kind: str = "") -> list[str]:
        """Return all identifiers, or those of a kind, the most important first."""
        chosen = [word for word in self._weights if not kind or self._kinds[word] == kind]
        return sorted(
            chosen,
            key=lambda word: (
                self._kinds[word] == "number",
                -self._weights[word],
                -self._last[word],
            ),
        )


# -- without a model -------------------------------------------------------------------------------

_WEIGHTS = {"user": 3, "assistant": 2}
_MAX_DIGEST_LINE = 200
_MAX_FILES = 40
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s")


class Material:
    """The material that a summary is written from.

    `head` is the first exchange, which stays in the conversation and only tells the topic; `earlier` is
    the text of the summary before; `blocks` are the messages to replace.
    """

    def __init__(self, head: Sequence[Block], earlier: str, blocks: Sequence[Block]) -> None:
        self.head = head
        self.earlier = earlier
        self.blocks = blocks

    @cached_property
    def summary(self) -> Summary:
        """Return the summary before, parsed."""
        return parse(self.earlier)

    @cached_property
    def identifiers(self) -> Tally:
        """Return the identifiers of the summary before and of the messages to replace."""
        tally = Tally()
        tally.add(self.earlier, _WEIGHTS["user"])
        for entry in entries(self.blocks):
            message = entry.message
            weight = _WEIGHTS.get(message["role"], 1)
            tally.add(text_of(message.get("content")), weight, numbers=message["role"] != "tool")
            for _, arguments in calls_of(message):
                tally.add(arguments, _WEIGHTS["assistant"], numbers=False)
        return tally


def digest(material: Material, budget: int, sizes: Estimator) -> Summary:
    """Summarize without a model: first lines of requests and answers, file names, identifiers."""
    blocks, identifiers, old = material.blocks, material.identifiers, material.summary.sections
    requests = [_first_sentence(block) for block in blocks if block.is_request]
    first_requests = [_first_sentence(block) for block in material.head if block.is_request]
    answers = [_first_sentence(block) for block in blocks if block.is_answer]
    whole = of(
        goal=old["goal"] or first_requests or requests[:1],
        decisions=[*old["decisions"], *answers],
        facts=[*old["facts"], *(f"Asked: {line}" for line in requests if line), *_tools_of(blocks)],
        files=[*old["files"], *identifiers.ranked(FILES)[:_MAX_FILES]],
        open=old["open"],
        next=old["next"],
    )
    reserved = int(budget * IDENTIFIERS_SHARE)
    fitted = fit(whole, budget - reserved, sizes)
    return keep_identifiers(fitted, identifiers.ranked(), reserved // 2, sizes)


def _first_sentence(block: Block) -> str:
    """Return the first line with a letter or digit in it, up to the end of its first sentence."""
    text = text_of(block.entries[0].message.get("content"))
    line = next((line for line in text.splitlines() if any(map(str.isalnum, line))), "")
    return truncate(_SENTENCE.split(line.strip(), 1)[0], _MAX_DIGEST_LINE)


def _tools_of(blocks: Sequence[Block]) -> list[str]:
    """Return a line with the tools that were called and how often, if there are any."""
    counts = Counter(name for entry in entries(blocks) for name, _ in calls_of(entry.message))
    if not counts:
        return []
    return ["Tools used: " + ", ".join(f"{name} × {n}" for name, n in sorted(counts.items()))]
