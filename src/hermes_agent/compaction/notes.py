"""The notes of a conversation: brought up to date by a model, checked, and never worse than before."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from hermes_agent.compaction import judge, question, summary
from hermes_agent.compaction.material import Material
from hermes_agent.compaction.summary import Summary
from hermes_agent.models.base import Reply, Request, Usage
from hermes_agent.tokens import Estimator
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ModelError, ModelUnreachableError

Ask = Callable[[Request], Reply]

_MOST_CALLS = 4
_IDENTIFIERS_SHARE = 0.25
_FILLED = 0.95
"""How much of the window a question and its reply may take, by the estimate."""


class Room(NamedTuple):
    """Tokens of a summary: how many are asked for, and how many there is space for."""

    asked: int
    most: int


@dataclass
class Writer:
    """Who asks the model, and what that has cost so far."""

    ask: Ask
    sizes: Estimator
    stop: Stop
    window: int
    max_output: int
    focus: str = ""
    usage: Usage = Usage()
    fault: str = ""
    """Why there is no summary by the model."""

    def bring_up_to_date(self, material: Material, room: Room) -> Summary | None:
        """The notes before, and what was said since, as one summary.

        None when the model gave nothing that can be used; raises ModelUnreachableError and Interrupted.
        """
        self.fault = ""
        kept = int(room.asked * _IDENTIFIERS_SHARE)
        room = Room(room.asked - kept, room.most - kept)
        opening = question.opening(material.opening, self.sizes)
        notes = summary.fit(material.notes, room.most, self.sizes)
        parts = question.pieces(
            material.blocks, self._space(opening, room), _MOST_CALLS, self.sizes
        )
        if not parts:
            self.fault = "there is no room to ask for one"
            return None
        for part in parts:
            updated = self._updated(notes, opening + part, room)
            if updated is None:
                return None
            notes, opening = updated, ""
        return summary.keep_identifiers(notes, material.identifiers.ranked(), kept, self.sizes)

    def _space(self, opening: str, room: Room) -> int:
        """Tokens of conversation that fit into a question beside all else and the reply to it."""
        bare = question.make("-", opening, budget=room.asked, max_output=0, focus=self.focus)
        taken = self.sizes.count(bare) + room.most + self._output(room)
        return int(self.window * _FILLED) - taken

    def _updated(self, notes: Summary, said: str, room: Room) -> Summary | None:
        """The notes after one more piece of the conversation."""
        request = question.make(
            notes.text, said, budget=room.asked, max_output=self._output(room), focus=self.focus
        )
        self.stop.check()
        try:
            reply = self.ask(request)
        except ModelUnreachableError:
            raise
        except ModelError as error:
            self.fault = error.message
            return None
        self.stop.check()
        self.usage = Usage(*map(sum, zip(self.usage, reply.usage, strict=True)))
        given = self.sizes.text(said) + self.sizes.text(notes.text)
        written = summary.parse(judge.spoken(reply))
        self.fault = judge.fault(reply, room.asked, given, self.sizes)
        if not self.fault and not written:
            self.fault = "it has headings and nothing under them"
        if self.fault:
            return None
        return summary.fit(summary.update(notes, written), room.most, self.sizes)

    def _output(self, room: Room) -> int:
        return question.output_for(self.window, self.max_output, room.asked)
