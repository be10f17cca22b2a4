"""A passage that is not in a text to the letter: where it most likely is, if that is clear."""

from typing import NamedTuple

from hermes_core.text import similar

_ALIKE = 0.9
_AHEAD = 0.03
"""By how much the best place must be more alike than any other."""
_MAX_LINES = 5_000


class Found(NamedTuple):
    """One clear place."""

    begin: int
    end: int
    replacement: str
    how: str


def find_loosely(text: str, old: str, new: str) -> Found | int:
    """The one place that is meant, or how many there might be."""
    lines = text.splitlines(keepends=True)
    target = _trimmed(old)
    if not target:
        return 0
    places = _same_but_for_blanks(lines, target)
    if len(places) == 1:
        return _found(lines, places[0], len(target), old, new, "only white space differed")
    if places:
        return len(places)
    if len(lines) > _MAX_LINES:
        return 0
    return _most_alike(lines, target, old, new)


def closest(text: str, old: str) -> str:
    """A hint at the line that is most like the passage's first one."""
    target = _trimmed(old)
    lines = [line.strip() for line in text.splitlines()[:_MAX_LINES]]
    near = similar(target[0].strip(), lines) if target else []
    return f" Line {lines.index(near[0]) + 1} is most like it: {near[0][:120]}" if near else ""


def _trimmed(old: str) -> list[str]:
    """The lines of the passage without empty ones around them."""
    lines = old.splitlines()
    while lines and not lines[0].strip():
        lines.pop(0)
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def _squeezed(line: str) -> str:
    return " ".join(line.split())


def _same_but_for_blanks(lines: list[str], target: list[str]) -> list[int]:
    have = [_squeezed(line) for line in lines]
    want = [_squeezed(line) for line in target]
    return [at for at in range(len(have) - len(want) + 1) if have[at : at + len(want)] == want]


def _most_alike(lines: list[str], target_lines: list[str], old: str, new: str) -> Found | int:
    """The block that is clearly most like the passage; blocks that overlap count as one."""
    import difflib  # noqa: PLC0415 -- slow to load, and rarely needed

    target = "\n".join(map(_squeezed, target_lines))
    matcher = difflib.SequenceMatcher(None, "", target, autojunk=False)
    have = [_squeezed(line) for line in lines]
    scores: list[tuple[float, int]] = []
    for at in range(len(have) - len(target_lines) + 1):
        matcher.set_seq1("\n".join(have[at : at + len(target_lines)]))
        if matcher.real_quick_ratio() >= _ALIKE and matcher.quick_ratio() >= _ALIKE:
            scores.append((matcher.ratio(), at))
    good = sorted((score for score in scores if score[0] >= _ALIKE), reverse=True)
    if not good:
        return 0
    best, at = good[0]
    rivals = [
        s for s, other in good[1:] if best - s < _AHEAD and abs(other - at) >= len(target_lines)
    ]
    if rivals:
        return len(rivals) + 1
    return _found(lines, at, len(target_lines), old, new, f"{best:.0%} alike")


def _found(lines: list[str], at: int, count: int, old: str, new: str, how: str) -> Found:
    begin = sum(map(len, lines[:at]))
    block = lines[at : at + count]
    end = begin + sum(map(len, block))
    replacement = _indented(new, _indent_of(_trimmed(old)[0]), _indent_of(block[0]))
    replacement = replacement.strip("\n") if not old.startswith("\n") else replacement.lstrip("\n")
    if block[-1].endswith("\n") and replacement and not replacement.endswith("\n"):
        replacement += "\n"
    return Found(begin, end, replacement, how)


def _indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _indented(new: str, indent: str, real: str) -> str:
    """The new text, moved to where the old one really stood."""
    if indent == real:
        return new
    lines = new.splitlines(keepends=True)
    return "".join(
        real + line[len(indent) :] if line.strip() and line.startswith(indent) else line
        for line in lines
    )
