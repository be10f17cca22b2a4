"""Sub-agents: a task is done in a conversation of its own, and its report outlives a crash.

The sub-agent's turn is found again by the call that asked for it, so a parent that is resumed resumes
its sub-agent instead of sending a second one. It has its own steps; its money is the parent's.
"""

from typing import TYPE_CHECKING

from hermes_agent.tools.base import Delegate, Result
from hermes_agent.tools.execute import DelegateFor
from hermes_agent.turn.events import (
    Event,
    QuestionAnswered,
    QuestionAsked,
    QuestionWithdrawn,
    Sink,
    ToolProgress,
    ToolStarted,
)
from hermes_agent.turn.stop import Stop
from hermes_agent.turn.values import Turn
from hermes_core.errors import ToolError
from hermes_state.ledger import sessions, taint, turns
from hermes_state.ledger.scope import DELEGATE
from hermes_state.values import NewSession

if TYPE_CHECKING:
    from hermes_agent.agent import Agent

_DONE = "delegate_done"


class SubAgents(DelegateFor):
    """Sends sub-agents for one agent."""

    def __init__(self, parent: "Agent") -> None:
        self._parent = parent

    def of(self, turn: Turn, call_id: str, stop: Stop) -> Delegate:
        def delegate(task: str, context: str) -> Result:
            return self._send(turn, call_id, stop, f"{task}\n\n{context}".strip())

        return delegate

    def _send(self, turn: Turn, call_id: str, stop: Stop, task: str) -> Result:
        parent = self._parent
        accepted = parent.store.write(
            turns.accept,
            sessions.new_id(),
            {"role": "user", "content": task},
            idempotency_key=f"delegate:{turn.id}:{call_id}",
            new_session=NewSession(
                DELEGATE,
                {
                    "model": parent.model.facts.name,
                    "cwd": str(parent.tool_context.workspace),
                    "model_config": {"_delegate_from": turn.session_id},
                },
                turn.session_id,
            ),
        )
        child = parent.sub_agent(accepted.session_id, turn.id, _relay(turn, call_id))
        try:
            outcome = child.run_turn(accepted.turn_id, stop=stop)
        finally:
            child.tool_context.processes.close()
            parent.store.write(taint.copy, child.session_id, turn.session_id)
        self._end(child.session_id, accepted.turn_id)
        stop.check()
        if outcome["failed"]:
            raise ToolError(f"The sub-agent failed: {outcome['error']}")
        return Result(outcome["final_response"] or "The sub-agent had nothing to report.")

    def _end(self, session_id: str, turn_id: str) -> None:
        """A sub-agent has done its task, or never will; a suspended one resumes with its parent."""
        store = self._parent.store
        turn = store.read(turns.find, turn_id)
        if turn is not None and turn["ended_at"] is not None:
            store.write(sessions.end, session_id, _DONE)


def _relay(turn: Turn, call_id: str) -> Sink:
    """Translate a sub-agent's events for its parent's surface: tools, and questions as they are."""

    def relay_event(event: Event) -> None:
        if isinstance(event, ToolStarted):
            turn.report(ToolProgress(call_id, f"{event.name}\n"))
        elif isinstance(event, QuestionAsked | QuestionAnswered | QuestionWithdrawn):
            turn.report(event)

    return relay_event
