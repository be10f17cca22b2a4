"""Tool calls as they arrive in a stream, until they are complete and each has an id of its own."""

import os
from collections.abc import Iterable

import msgspec

from hermes_agent.models import limits
from hermes_core.types import ToolCall


class PartialCall:
    """One tool call whose arguments arrive in fragments."""

    def __init__(
        self,
        allowance: limits.Allowance,
        *,
        index: int | None = None,
        call_id: str = "",
        name: str = "",
    ) -> None:
        """Count the call; raises ModelError when there are too many."""
        allowance.take_call(call_id, name)
        self.index = index
        self.id = call_id
        self.name = name
        self.arguments = allowance.text("longer arguments", limits.MAX_ARGUMENTS_CHARS)

    def add(self, arguments: object) -> None:
        """Append a fragment; a server that sends the arguments as an object sends all at once."""
        is_text = isinstance(arguments, str)
        self.arguments.add(arguments if is_text else msgspec.json.encode(arguments).decode())


def complete(partial_calls: Iterable[PartialCall]) -> list[ToolCall]:
    """Return the calls; one whose id is missing or repeated gets a new id."""
    used: set[str] = set()
    calls: list[ToolCall] = []
    for call in partial_calls:
        id_ = call.id if call.id and call.id not in used else f"call_{os.urandom(12).hex()}"
        used.add(id_)
        arguments = str(call.arguments) or "{}"
        calls.append(
            {"id": id_, "type": "function", "function": {"name": call.name, "arguments": arguments}}
        )
    return calls
