"""The material of a summary: how it began, what was noted before, what was said since."""

from collections.abc import Sequence
from functools import cached_property

from hermes_agent.compaction import summary
from hermes_agent.compaction.identifiers import Tally
from hermes_agent.compaction.summary import Summary
from hermes_agent.compaction.transcript import Block, calls_of, entries, text_of

_WEIGHTS = {"user": 3, "assistant": 2}


class Material:
    """What is to be summed up. The opening stays beside the summary and only says what it is about."""

    def __init__(self, opening: Sequence[Block], before: str, blocks: Sequence[Block]) -> None:
        self.opening = opening
        self.before = before
        self.blocks = blocks

    @cached_property
    def notes(self) -> Summary:
        """What was noted before."""
        return summary.parse(self.before)

    @cached_property
    def identifiers(self) -> Tally:
        """What the notes before and what was said since name letter by letter."""
        found = Tally()
        found.add(self.before, _WEIGHTS["user"])
        for entry in entries(self.blocks):
            message = entry.message
            weight = _WEIGHTS.get(message["role"], 1)
            found.add(text_of(message.get("content")), weight, numbers=message["role"] != "tool")
            for _, arguments in calls_of(message):
                found.add(arguments, _WEIGHTS["assistant"], numbers=False)
        return found
