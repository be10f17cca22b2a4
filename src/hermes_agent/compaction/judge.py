"""The judge of what a model wrote as a summary: why it cannot be used, or that it can."""

import re

from hermes_agent.models.base import Reply
from hermes_agent.tokens import Estimator

_THOUGHT = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_WORD = re.compile(r"[^\W\d_]{2,}")
_WIDE = re.compile("[\u0e00-\u0eff\u1000-\u109f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_REFUSAL = re.compile(
    r"\b(?:i['’]?m sorry|i am sorry|i apologi[sz]e|i (?:can['’]?t|cannot|can not|am unable to|won['’]?t)"
    r"|as an ai)\b",
    re.IGNORECASE,
)
_LEAST_WORDS = 5
_REFUSAL_WORDS = 80
_MANY_LINES, _REPEATED_LINES = 8, 0.5
_MANY_WORDS, _REPEATED_WORDS = 60, 0.12
TOO_LONG = 3
"""How many times its room a summary may be: so much is trimmed, more was not meant as a summary."""
_SHORT = 500
"""Tokens that are never too many: small models cannot say it in less."""


def spoken(reply: Reply) -> str:
    """What was said, without what was thought aloud before it."""
    return _THOUGHT.sub("", reply.text).strip()


def fault(reply: Reply, budget: int, given: int, sizes: Estimator) -> str:
    """What is wrong with a summary, in words; empty when nothing is.

    `given` is the size of what was to be summed up, with the summary before it.
    """
    text = spoken(reply)
    words = _WORD.findall(text.lower())
    said = len(words) + len(_WIDE.findall(text)) // 2
    size = sizes.text(text)
    if reply.finish == "refusal":
        return "the model refused"
    if said < _LEAST_WORDS:
        return "it is empty" if not text else "it says nothing"
    if reply.finish == "length":
        return "it was cut off"
    if size > max(TOO_LONG * budget, _SHORT):
        return f"it is too long ({size} tokens for {budget})"
    if size > max(given, 1):
        return "it is longer than what it sums up"
    if _repeats(text, words):
        return "it repeats itself"
    if len(words) < _REFUSAL_WORDS and "#" not in text and _REFUSAL.search(text):
        return "the model refused"
    return ""


def _repeats(text: str, words: list[str]) -> bool:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) >= _MANY_LINES:
        return len(set(lines)) < _REPEATED_LINES * len(lines)
    return len(words) >= _MANY_WORDS and len(set(words)) < _REPEATED_WORDS * len(words)
