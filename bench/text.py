"""Text that behaves like what people and programs write: made from a seed, the same in every run.

Words come from an invented vocabulary and occur as often as words do (Zipf), with identifiers, paths,
numbers and code in between. Random letters would make a search index look far too large, one text
repeated far too small. Nothing is imported from Hermes: the peer's driver uses this module too.
"""

import itertools
import random
from collections.abc import Iterator

WORDS = 8_000
RARE = "quibblezorn"
"""A word that is in no generated text."""

_ONSETS = [*"bcdfghklmnprrssttvw", "ch", "pl", "pr", "sh", "st", "th", "tr"]
_VOWELS = [*"aaeeeiioou", "ea", "ou"]
_CODAS = ["", "", "", "", "n", "r", "s", "t", "l", "nd", "ck"]
_ENDINGS = ["", "", "", "ing", "ed", "s", "er", "ly", "tion"]
_CODE = (
    "def {0}({1}, {2}):\n    return {1}.{0}({2})\n",
    'if {0} is None:\n    raise ValueError("{1} {2}")\n',
    "{0} = self.{1}[{3}] + {2}\n",
    "src/{1}/{0}.py:{3}: {2}\n",
    '{{"{0}": {3}, "{1}": "{2}"}}\n',
    "$ {1} --{2}={3} ./{0}\n",
)


def _vocabulary(chance: random.Random) -> list[str]:
    words: dict[str, None] = {}
    while len(words) < WORDS:
        frequent, common = len(words) < 60, len(words) < 800
        syllables = 1 if frequent else chance.choice((1, 2, 2) if common else (2, 2, 3))
        stem = "".join(
            chance.choice(_ONSETS) + chance.choice(_VOWELS) + chance.choice(_CODAS)
            for _ in range(syllables)
        )
        words[stem if frequent else stem + chance.choice(_ENDINGS)] = None
    return list(words)


class Writer:
    """Writes texts of a wanted size, deterministically."""

    def __init__(self, seed: int = 1) -> None:
        fixed = random.Random(20_260_101)
        self.words = _vocabulary(fixed)
        """The most frequent first."""
        self._weights = _zipf(WORDS)
        self._identifiers = [
            "_".join(fixed.choices(self.words[60:], k=fixed.choice((2, 2, 3))))
            for _ in range(3_000)
        ]
        self._identifier_weights = _zipf(len(self._identifiers))
        self.han = [chr(fixed.randrange(0x4E00, 0x5E00)) + chr(fixed.randrange(0x4E00, 0x5E00))
                    for _ in range(2_000)]  # fmt: skip
        """Words of two Han characters, the most frequent first."""
        self._han_weights = _zipf(len(self.han))
        self._chance = random.Random(seed)

    def text(self, size: int = 500) -> str:
        """Prose with some code in it, of about `size` characters and never more."""
        pieces: list[str] = []
        length = 0
        while length < size:
            piece = self._code() if self._chance.random() < 0.15 else self._sentence()
            pieces.append(piece)
            length += len(piece) + 1
        return " ".join(pieces)[:size]

    def short(self, words: int = 16) -> str:
        """A line of so many words."""
        return " ".join(self._chance.choices(self.words, cum_weights=self._weights, k=words))

    def chinese(self, words: int = 20) -> str:
        """The same in a script without blanks."""
        return "".join(self._chance.choices(self.han, cum_weights=self._han_weights, k=words))

    def _sentence(self) -> str:
        chance = self._chance
        words = chance.choices(self.words, cum_weights=self._weights, k=chance.randrange(6, 18))
        if chance.random() < 0.3:
            words[chance.randrange(len(words))] = f"`{self._identifier()}`"
        if chance.random() < 0.2:
            words.append(str(chance.randrange(10_000)))
        return " ".join(words).capitalize() + chance.choice((".", ".", ".", ":", "?", ",\n"))

    def _code(self) -> str:
        chance = self._chance
        names = chance.choices(self.words, cum_weights=self._weights, k=2)
        return chance.choice(_CODE).format(self._identifier(), *names, chance.randrange(500))

    def _identifier(self) -> str:
        return self._chance.choices(
            self._identifiers, cum_weights=self._identifier_weights, k=1
        )[0]  # fmt: skip


def _zipf(count: int) -> list[float]:
    return list(itertools.accumulate(1 / (rank + 2.7) for rank in range(count)))


def conversation(messages: int, size: int = 500) -> Iterator[dict[str, object]]:
    """Messages as they occur: a question, a tool call, its result, an answer."""
    writer = Writer(7)
    for number in range(0, messages, 4):
        call = f"call_{number:06d}"
        arguments = f'{{"path": "{writer.short(2)}", "lines": {number}}}'
        function = {"name": "read_file", "arguments": arguments}
        exchange: list[dict[str, object]] = [
            {"role": "user", "content": writer.text(size // 2)},
            {"role": "assistant", "content": None, "finish_reason": "tool_calls",
             "tool_calls": [{"id": call, "type": "function", "function": function}]},
            {"role": "tool", "content": writer.text(size * 2), "tool_call_id": call,
             "tool_name": "read_file"},
            {"role": "assistant", "content": writer.text(size), "finish_reason": "stop"},
        ]  # fmt: skip
        yield from exchange[: messages - number]
