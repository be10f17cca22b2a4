"""One order per conversation: a random history of inputs, ends, cancels, stops and pauses."""

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hermes_agent.models.base import Request
from hermes_agent.testing.scripted import Quiet, ScriptedModel, Step, silence
from hermes_core.paths import Home
from hermes_engine.engine import Engine
from hermes_engine.inputs import Input
from hermes_state import SessionDB
from hermes_state.values import NewSession
from tests.agent.test_assembly import Host
from tests.engine.conftest import FakeSchedule, make_assembly
from tests.support.examples import examples
from tests.support.faults import eventually

_CONVERSATIONS = ("X", "Y", "Z")


@dataclass
class Turn:
    """What the model of the test knows of a turn."""

    id: str
    conversation: str
    may_end: Quiet = field(default_factory=Quiet)
    runs: bool = False


class EngineMachine(RuleBasedStateMachine):
    """An engine, and a plain account of what runs and what waits."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        store = self.stack.enter_context(SessionDB(folder / "state.db"))
        model = ScriptedModel(self._step)
        assembly = make_assembly(Home(folder / "home"), store, Host(model))
        self.surface = FakeSchedule(folder)
        self.engine = Engine(assembly, [self.surface], max_turns=8)
        self.engine.start()
        self.number = 0
        self.turns: dict[str, Turn] = {}
        """By their text, in the order in which they came."""
        self.paused: dict[str, Any] = {}

    def _step(self, request: Request) -> Step:
        return silence(self.turns[str(request.messages[-1]["content"])].may_end, then="done")

    def _open(self, conversation: str) -> list[Turn]:
        return [turn for turn in self.turns.values() if turn.conversation == conversation]

    def _running(self) -> dict[str, Turn]:
        """What must run now: the first turn of each conversation, unless it was held back."""
        first = {name: self._open(name)[0] for name in _CONVERSATIONS if self._open(name)}
        return {name: turn for name, turn in first.items() if turn.runs or name not in self.paused}

    @rule(conversation=st.sampled_from(_CONVERSATIONS))
    def accept(self, conversation: str) -> None:
        self.number += 1
        text = f"input {self.number}"
        turn = self.turns[text] = Turn("", conversation)
        opening = NewSession("schedule")
        item = Input("schedule", conversation, text, opening=opening, idempotency_key=text)
        turn.id = self.engine.accept(item).turn_id
        assert not self.engine.accept(item).is_new

    @precondition(lambda self: bool(self._running()))
    @rule(data=st.data(), interrupts=st.booleans())
    def end(self, data: st.DataObject, interrupts: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self._running())))
        turn = self._running()[name]
        if interrupts:
            assert self.engine.interrupt(name)
        turn.may_end.release()
        expected = "interrupted" if interrupts else "answered"
        assert self.surface.wait_for(turn.id) == [expected]
        self._remove(turn)

    @precondition(lambda self: any(len(self._open(name)) > 1 for name in _CONVERSATIONS))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        queued = [turn for name in _CONVERSATIONS for turn in self._open(name)[1:]]
        turn = data.draw(st.sampled_from(queued))
        assert self.engine.cancel(turn.id, "not wanted")
        self._remove(turn)

    @rule(conversation=st.sampled_from(_CONVERSATIONS))
    def pause(self, conversation: str) -> None:
        if conversation not in self.paused:
            paused = self.engine.paused(conversation, timeout_s=0)
            paused.__enter__()
            self.paused[conversation] = paused

    @precondition(lambda self: bool(self.paused))
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.paused)))
        self.paused.pop(name).__exit__(None, None, None)

    @invariant()
    def the_first_turn_of_each_conversation_runs_and_no_other(self) -> None:
        for turn in self._running().values():
            turn.runs = True
            assert turn.may_end.started.wait(20)
        expected = {turn.id for turn in self._running().values()}
        eventually(
            lambda: {running.turn.id for running in self.engine.work} == expected,
            f"{expected} to run",
        )

    def _remove(self, turn: Turn) -> None:
        self.turns = {text: other for text, other in self.turns.items() if other is not turn}

    def teardown(self) -> None:
        for paused in self.paused.values():
            paused.__exit__(None, None, None)
        for turn in self.turns.values():
            turn.may_end.release()
        self.engine.close()
        self.stack.close()


EngineMachine.TestCase.settings = settings(
    max_examples=examples(40), stateful_step_count=20, deadline=None
)
TestEngineMachine = EngineMachine.TestCase
