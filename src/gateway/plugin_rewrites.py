"""What plugins wish for a text: another one, or that it goes no further."""

from collections.abc import Sequence

from hermes_cli import hook_answers
from hermes_cli.hook_answers import Answer


def text_after(wishes: Sequence[Answer], text: str) -> str | None:
    """The text to go on with, None when it is dropped: a drop wins, and of several texts the first."""
    wish = hook_answers.decisive(wishes)
    if wish is None:
        return text
    return None if wish["action"] == "drop" else wish["text"]


def reason(wishes: Sequence[Answer]) -> str:
    """Why it was dropped."""
    reasons = [one["reason"] for one in wishes if one["action"] == "drop"]
    return next((one for one in reasons if one), "no reason given")
