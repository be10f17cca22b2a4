"""The part of a running turn that events have reported, for a client that comes in the middle of it."""

from typing import NamedTuple

import msgspec

from hermes_state.values import Row


class RunningTool(msgspec.Struct):
    """A call that has begun and not ended."""

    tool_id: str
    name: str
    arguments: dict[str, object]
    output: str = ""
    """The end of its output so far."""


class Inflight(NamedTuple):
    """The part of a running turn that events have reported so far."""

    turn_id: str
    text: str
    tools: list[RunningTool]
    ended_calls: set[str]
    last_message_id: int

    def includes(self, message: Row) -> bool:
        """Return whether a message of the turn was reported; of the others, events follow."""
        return (
            message["id"] <= self.last_message_id or message.get("tool_call_id") in self.ended_calls
        )


NOTHING = Inflight("", "", [], set(), 0)
