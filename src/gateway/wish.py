"""What plugins wish for a text: another one, or that it goes no further. What they give back is checked
by nobody before, so anything may come.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast


def text_after(wishes: Sequence[object], text: str) -> str | None:
    """The text to go on with, None when it is dropped: a drop wins, and of several texts the first."""
    tables = _tables(wishes)
    if any(one.get("action") == "drop" for one in tables):
        return None
    texts = [one.get("text") for one in tables if one.get("action") == "rewrite"]
    return next((one for one in texts if isinstance(one, str)), text)


def reason(wishes: Sequence[object]) -> str:
    """Why it was dropped."""
    reasons = [one.get("reason") for one in _tables(wishes) if one.get("action") == "drop"]
    return str(next((one for one in reasons if one), "no reason given"))


def _tables(wishes: Sequence[object]) -> list[Mapping[str, Any]]:
    return [cast("Mapping[str, Any]", one) for one in wishes if isinstance(one, Mapping)]
