"""The script: what people ask, each under a token of its own, and what the model makes of it.

Every reply is made of numbered lines with the token, so that what is missing, doubled, torn or in the
wrong chat shows in the text alone. The model also looks whether a conversation is shown to it that
mixes with another one, or is out of order.
"""

import random
import re
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from hermes_agent.testing.faults import Cut, Refuse, rate_limited
from hermes_agent.testing.scripted import call, say
from hermes_agent.testing.server import Play, Recorded

_KINDS = {"plain": 45, "slow": 15, "tool": 15, "flaky": 10, "long": 7, "failing": 3, "command": 5}
_LINES = {"slow": 8, "long": 130, "failing": 1}
_SLOW_S = 0.03
"""Between the words of a slow reply."""
_TOKEN = re.compile(r"\b(k\d+)n(\d+)\b")
_PROMPT = re.compile(r"(?:\[[\w ]+\] )?(?:[\w ]+\n\n|@\w+ )?(k\d+)n(\d+) wants a (\w+) reply")
"""A question as the model is shown it: said by somebody in a shared conversation, below the subject of a
mail, or with our name before it."""
_LINE = re.compile(r"\b(k\d+n\d+) (\d+)/(\d+)\b")


class Line(NamedTuple):
    """A line of a reply, as it was found in a text."""

    token: str
    number: int
    total: int


@dataclass
class Question:
    """What a person wrote."""

    talk: int
    number: int
    kind: str
    id: str = ""
    """Its name on the platform."""

    @property
    def token(self) -> str:
        return f"k{self.talk}n{self.number}"

    @property
    def total(self) -> int:
        """How many lines its reply has."""
        return _LINES.get(self.kind, 2)

    @property
    def is_command(self) -> bool:
        return self.kind == "command"

    def text(self, prefix: str) -> str:
        if not self.is_command:
            return f"{self.token} wants a {self.kind} reply"
        return f"{prefix}status" if self.number % 2 else f"{prefix}title Talk {self.token}"


def questions(count: int, talks: int, dice: random.Random) -> list[Question]:
    """So many questions, dealt to the conversations at random, in the order they are asked."""
    numbers: Counter[int] = Counter()
    found: list[Question] = []
    for index in range(count):
        talk = index if index < talks else dice.randrange(talks)
        numbers[talk] += 1
        (kind,) = dice.choices(list(_KINDS), list(_KINDS.values()))
        found.append(Question(talk, numbers[talk], kind))
    return found


def lines(text: str) -> list[Line]:
    """The lines of replies in a text."""
    return [Line(token, int(number), int(total)) for token, number, total in _LINE.findall(text)]


def tokens(text: str) -> list[str]:
    return [found[0] for found in _TOKEN.finditer(text)]


class Script:
    """The model: it answers the last question of a conversation as that question says."""

    def __init__(self) -> None:
        self.call_counts: Counter[str] = Counter()
        """How often it was asked about each token."""
        self.mixed: list[str] = []
        """What is wrong with the conversations that it was shown."""
        self.compactions = 0
        self._lock = threading.Lock()

    def __call__(self, request: Recorded) -> Play:
        messages = cast("Sequence[dict[str, Any]]", request.json["messages"])
        texts = [_text(message) for message in messages if message["role"] == "user"]
        if "<conversation>" in texts[-1]:
            self.compactions += 1
            return say("## Goal\n- To have every question answered.")
        history = [found for text in texts if (found := _PROMPT.fullmatch(text.strip()))]
        if not history or _PROMPT.fullmatch(texts[-1].strip()) is None:
            self.mixed.append(f"it was asked about {texts[-1][:200]!r}")
            return Refuse(400, "This is no question.")
        talk, number, kind = history[-1].groups()
        token = f"{talk}n{number}"
        with self._lock:
            self.call_counts[token] += 1
            attempt = self.call_counts[token]
            self._look(token, history)
        return _play(token, kind, attempt, messages[-1]["role"])

    def _look(self, token: str, history: Sequence["re.Match[str]"]) -> None:
        if len({found[1] for found in history}) != 1:
            self.mixed.append(f"{token} was asked about with {[found[0] for found in history]}")
        numbers = [int(found[2]) for found in history]
        if numbers != sorted(set(numbers)):
            self.mixed.append(f"{token} was asked about in the order {numbers}")


def _play(token: str, kind: str, attempt: int, role: str) -> Play:
    if kind == "failing":
        return Refuse(400, f"{token} 1/1 cannot be done.")
    if kind == "flaky" and attempt == 1:
        faults = (Refuse(500, "Something broke."), rate_limited(0.1), Cut("So far"))
        return faults[sum(map(ord, token)) % len(faults)]
    if kind == "tool" and role == "user":
        return call("todo", items=[])
    return say(_reply(token, _LINES.get(kind, 2)), delay_s=_SLOW_S if kind == "slow" else 0.0)


def _reply(token: str, total: int) -> str:
    lines = (f"{token} {number}/{total} is what I say to that." for number in range(1, total + 1))
    return "\n\n".join(lines)


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join(str(part.get("text", "")) for part in content)
