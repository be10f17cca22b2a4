"""Tool calls as they grow in a stream, until they are whole and each has an id of its own."""

import os
from collections.abc import Iterable

import msgspec

from hermes_core.types import ToolCall


class Growing(msgspec.Struct):
    """One tool call whose arguments come in fragments."""

    index: int | None = None
    id: str = ""
    name: str = ""
    fragments: list[str] = msgspec.field(default_factory=list[str])

    def add(self, arguments: object) -> None:
        """The next fragment; a server that sends the arguments as an object sends all at once."""
        is_text = isinstance(arguments, str)
        self.fragments.append(arguments if is_text else msgspec.json.encode(arguments).decode())


def whole(growing: Iterable[Growing]) -> list[ToolCall]:
    """The calls; an id that is missing or given twice is made up."""
    taken: set[str] = set()
    calls: list[ToolCall] = []
    for call in growing:
        id_ = call.id if call.id and call.id not in taken else f"call_{os.urandom(12).hex()}"
        taken.add(id_)
        written = "".join(call.fragments) or "{}"
        calls.append(
            {"id": id_, "type": "function", "function": {"name": call.name, "arguments": written}}
        )
    return calls
