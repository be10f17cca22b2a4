"""Identifiers in a text: what must be kept letter by letter, because no paraphrase can stand for it."""

import re
from collections import Counter
from collections.abc import Iterable

_PATTERN = re.compile(
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
_LONGEST = 200
_SCANNED = 200_000
"""Characters of one text that are looked at."""

FILES = "path"


def found_in(text: str) -> Iterable[tuple[str, str]]:
    """Each identifier with its kind, in the order they stand in the text."""
    for match in _PATTERN.finditer(text, 0, _SCANNED):
        word = match.group().rstrip(_TRAILING)
        if 3 <= len(word) <= _LONGEST or word.startswith("#"):
            yield str(match.lastgroup), word


class Tally:
    """Identifiers of many texts, those that matter most first.

    What a person wrote weighs more than what a tool put out; numbers come after all others, and those
    of outputs not at all, for outputs are full of them. Of equal ones the later is first.
    """

    def __init__(self) -> None:
        self._weights: Counter[str] = Counter()
        self._seen = 0
        self._last: dict[str, int] = {}
        self._kinds: dict[str, str] = {}

    def add(self, text: str, weight: int, *, numbers: bool = True) -> None:
        """Note the identifiers of a text."""
        for kind, word in found_in(text):
            if kind == "number" and not numbers:
                continue
            self._weights[word] += weight
            self._seen += 1
            self._last[word] = self._seen
            self._kinds.setdefault(word, kind)

    def ranked(self, kind: str = "") -> list[str]:
        """All identifiers, or those of a kind."""
        chosen = [word for word in self._weights if not kind or self._kinds[word] == kind]
        return sorted(
            chosen,
            key=lambda word: (
                self._kinds[word] == "number",
                -self._weights[word],
                -self._last[word],
            ),
        )
