"""The summary of a tool call for people, on one line."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from hermes_core.text import one_line, truncate, visible

_TELLING = (
    "command",
    "path",
    "pattern",
    "query",
    "url",
    "task",
    "question",
    "action",
    "name",
    "code",
)
"""Arguments that say what a call is about; the others only matter when none of these is there."""


def summary_of(
    arguments: Mapping[str, Any], limit: int = 200, mask: Callable[[str], str] = str
) -> str:
    """Return the most telling arguments of a call, on one line; `mask` sees them before they are cut."""
    telling = [str(arguments[name]) for name in _TELLING if arguments.get(name)]
    if not telling and arguments:
        telling = [msgspec.json.encode(arguments, enc_hook=str).decode()]
    return truncate(mask(one_line(visible(" ".join(telling)))), limit)
