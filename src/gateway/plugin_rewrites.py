"""Answers of plugins to a text: another text, or that it is dropped."""

from collections.abc import Sequence

from hermes_cli import hook_answers
from hermes_cli.hook_answers import Answer


def text_after(answers: Sequence[Answer], text: str) -> str | None:
    """Return the text to use; None when it is dropped: a drop wins, and of several texts the first."""
    answer = hook_answers.first_refusal_or_answer(answers)
    if answer is None:
        return text
    return None if answer["action"] == "drop" else answer["text"]


def drop_reason(answers: Sequence[Answer]) -> str:
    """Return why a text was dropped."""
    reasons = [answer["reason"] for answer in answers if answer["action"] == "drop"]
    return next((reason for reason in reasons if reason), "no reason given")
