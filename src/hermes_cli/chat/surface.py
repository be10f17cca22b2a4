"""The surface of `hermes chat`, with an engine of its own: accepts messages, waits for their turns.

The engine runs what is accepted here, and what stands before it in the same conversation. Turns of
other conversations are left to other processes.
"""

import threading
from collections.abc import Collection
from typing import Any

from hermes_agent.agent import Agent
from hermes_agent.turn.attempt import recorded_outcome
from hermes_agent.turn.events import (
    Compacted,
    Event,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    QuestionWithdrawn,
    Sink,
)
from hermes_agent.turn.stop import Stop
from hermes_agent.turn.values import Outcome
from hermes_cli.chat.resources import SOURCE, ChatResources
from hermes_core.errors import StoreError
from hermes_engine.engine import Engine
from hermes_engine.events import LogEntry, TurnQueued, TurnStarted, TurnWaiting
from hermes_engine.inputs import Input
from hermes_engine.surface import QueuedTurn, Running, TurnPlan
from hermes_state.ledger import lineage, sessions

END_REASON = "cli_close"
EXIT_FAILED = 1
EXIT_NO_MODEL = 3
_CANCELLED = Outcome("interrupted", "", "stopped by the user")
_ALWAYS_SHOWN = Notice | Compacted | QuestionAsked | QuestionAnswered | QuestionWithdrawn


class ChatSurface:
    """The conversation that is open in a chat, and the turns in it."""

    def __init__(
        self, resources: ChatResources, session_id: str | None, show: Sink, *, can_ask: bool
    ) -> None:
        """`show` is called with the events of turns, in the threads that run them."""
        self._resources = resources
        self._show = show
        self._can_ask = can_ask
        self._changed = threading.Condition()
        self._own: set[str] = set()
        """The turns whose reply is shown."""
        self._shows_all = False
        self._outcomes: dict[str, Outcome | None] = {}
        """Outcomes of turns of this surface; None: ended in another process."""
        self._problem: StoreError | None = None
        """Why a turn waits for the store."""
        self.engine = Engine(resources.assembly, [self], adopts_abandoned=False)
        self.session_id = ""
        self.conversation_id = ""
        self.open(session_id)
        self.engine.start()

    def open(self, session_id: str | None) -> None:
        """Open a conversation in this chat; None: a new one."""
        self.engine.unsubscribe(self.conversation_id, self._receive)
        if session_id is not None:
            self._resources.reopen(session_id)
        self.session_id = session_id or sessions.new_id()
        self.conversation_id = self._resources.store.read(lineage.root, self.session_id)
        self.engine.subscribe(self.conversation_id, self._receive)

    @property
    def agent(self) -> Agent:
        """Return the agent of the conversation. Raises ModelError."""
        return self.engine.agent(self.session_id, self._plan())

    def answer(
        self,
        content: Any,  # noqa: ANN401 -- text or parts
        replaces: int | None = None,
        *,
        stop: Stop,
    ) -> dict[str, Any]:
        """Answer a message, in the place of another one; return the result for programs.

        Raises ConversationBusyError while another process runs the conversation; nothing is stored
        then, so that a script may send the message again.
        """
        agent = self.agent
        is_new = self._resources.store.read(sessions.find, agent.session_id) is None
        item = Input(
            SOURCE,
            agent.session_id,
            content,
            opening=agent.opening() if is_new else None,
            replaces=replaces,
            only_if_idle=True,
        )
        turn_id = self.engine.accept(item).turn_id
        return self.agent.result(turn_id, self._wait(turn_id, stop))

    def _wait(self, turn_id: str, stop: Stop) -> Outcome:
        """Wait until a turn has ended. Raises StoreError when that cannot be stored now."""
        with stop.callback(self._notify), self._changed:
            self._changed.wait_for(
                lambda: turn_id in self._outcomes or self._problem is not None or stop.is_set
            )
            if (problem := self._problem) is not None:
                self._problem = None
                self._own.discard(turn_id)
                raise problem
        if stop.is_set:
            is_queued = self.engine.work.find(turn_id) is None
            is_cancelled = is_queued and self.engine.cancel(turn_id, "stopped by the user")
            self.engine.interrupt(self.conversation_id)
            if is_cancelled:
                return _CANCELLED
            with self._changed:
                self._changed.wait_for(lambda: turn_id in self._outcomes)
        return self._outcomes[turn_id] or recorded_outcome(self._resources.store, turn_id)

    def is_unfinished(self) -> bool:
        """Return whether a turn runs here, or may: one that a process which is gone has left."""
        return self.engine.is_unfinished(self.conversation_id)

    def recover(self, stop: Stop) -> None:
        """Complete what other processes left unfinished in the conversation."""
        self._shows_all = True
        self.engine.recover(self.conversation_id, stop)
        self._shows_all = False

    def close_conversation(
        self, end_reason: str = END_REASON, *, completed: bool, interrupted: bool
    ) -> None:
        """Close the conversation as every surface does."""
        self.engine.close_conversation(
            self.session_id, end_reason, completed=completed, interrupted=interrupted
        )

    def kill_processes(self) -> None:
        """Kill the processes that the conversation has started."""
        if (agent := self.engine.agents.peek(self.conversation_id)) is not None:
            agent.tool_context.processes.close()

    def close(self) -> None:
        """Stop the engine and release models and store."""
        self.engine.close()
        self._resources.close()

    # -- what the engine asks of a surface -------------------------------------------------------

    @property
    def names(self) -> Collection[str]:
        return (SOURCE,)

    def adopts(self, turn: QueuedTurn) -> bool:
        del turn
        return False

    def plan(self, running: Running) -> TurnPlan:
        del running
        return self._plan()

    def report(self, running: Running, event: Event) -> None:
        del running, event  # the log of the conversation has it too

    def turn_ended(self, running: Running, outcome: Outcome | None) -> None:
        self._note_end(running.turn.id, outcome)

    def turn_ended_elsewhere(self, turn_id: str) -> None:
        self._note_end(turn_id, None)

    def _plan(self) -> TurnPlan:
        return TurnPlan(
            SOURCE,
            self._resources.workspace,
            model_name=self._resources.model_name,
            can_ask=self._can_ask,
        )

    def _note_end(self, turn_id: str, outcome: Outcome | None) -> None:
        with self._changed:
            self._outcomes[turn_id] = outcome
            self._changed.notify_all()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # -- events ----------------------------------------------------------------------------------

    def _receive(self, entry: LogEntry) -> None:
        """Show an event; of turns that were not accepted here only what needs a person."""
        event = entry.event
        if isinstance(event, TurnQueued):
            self._own.add(entry.turn_id)
        elif isinstance(event, TurnWaiting):
            if entry.turn_id in self._own:
                self._note_problem(event)
        elif self._shows_all or not entry.turn_id or entry.turn_id in self._own:
            self._show(event)
        elif isinstance(event, TurnStarted):
            self._show(
                Notice("An earlier message of this conversation has no answer yet; it comes first.")
            )
        elif isinstance(event, _ALWAYS_SHOWN):
            self._show(event)

    def _note_problem(self, event: TurnWaiting) -> None:
        with self._changed:
            self._problem = StoreError(
                event.reason,
                fix=f"Your message is stored; answer it with: hermes chat -r {self.session_id}",
            )
            self._changed.notify_all()


def status_of(result: dict[str, Any]) -> int:
    """Return the exit status that says how a turn ended."""
    if result["completed"]:
        return 0
    if result["interrupted"]:
        return 130
    return EXIT_NO_MODEL if result.get("failure_reason") == "model.missing" else EXIT_FAILED
