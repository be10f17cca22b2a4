"""Read JSON values of the server: a value of the wrong type is refused here, at the edge."""

import re
from typing import Any, TypeVar, cast

import msgspec

from hermes_core.text import visible

T = TypeVar("T")

Json = dict[str, Any]

_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-9;?:<=>]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])"
)
_OVERWRITTEN = re.compile(r"[^\n\r]*\r")
"""What a lone carriage return goes back over, as progress bars do."""


def read(value: object, kind: type[T]) -> T:
    """Turn a result into the type it is read as; raises msgspec.ValidationError."""
    return msgspec.convert(value, kind, strict=False)


def clean(text: str) -> str:
    """Text as it may be shown and copied: without sequences that move the cursor, colour or ring.

    Tabs stay, which code may need; whoever draws makes blanks of them.
    """
    text = _SEQUENCE.sub("", text).replace("\r\n", "\n")
    return visible(_OVERWRITTEN.sub("", text))


def cleaned(value: object) -> object:
    """The same for every text inside a JSON value, but what waits to be said: it may be sent again."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [cleaned(member) for member in cast("list[object]", value)]
    if isinstance(value, dict):
        members = cast("Json", value).items()
        return {key: member if key == "queued" else cleaned(member) for key, member in members}
    return value
