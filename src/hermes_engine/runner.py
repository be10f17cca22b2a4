"""Running a turn to its end: plan it, wake an agent, run it, retry while the store cannot be written."""

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from hermes_agent.agent import Agent
from hermes_agent.assembly import Assembly
from hermes_agent.turn import meter
from hermes_agent.turn.events import Event, TurnEnded
from hermes_agent.turn.values import Outcome
from hermes_core.errors import (
    ConversationBusyError,
    HermesError,
    Interrupted,
    StoreError,
    failure_text,
)
from hermes_core.paths import make_folder
from hermes_engine.agents import AwakeAgents
from hermes_engine.events import TurnDetached, TurnStarted, TurnSuspended, TurnWaiting
from hermes_engine.surface import (
    NotReadyError,
    QueuedTurn,
    Running,
    Surface,
    TurnGoneError,
    TurnPlan,
)
from hermes_engine.work import Work
from hermes_state.ledger import partials, sessions, turns
from hermes_state.store_retry import StoreRetry
from hermes_state.transitions import TurnState
from hermes_state.values import Accepted, OutboundPart

logger = logging.getLogger(__name__)

STOPPED = "stopped by the user"
_SHUTDOWN = "The process is shutting down."
_RETRY_S = 1.0
_NOT_READY_S = 3600.0
_BUSY_S = 1.0

T = TypeVar("T")
Publish = Callable[[str, str, Event], None]
"""Publishes an event of a conversation and a turn."""


class TurnRunner:
    """Runs the turns that the dispatcher has chosen. May be used from several threads."""

    def __init__(
        self,
        assembly: Assembly,
        surfaces: Callable[[], Mapping[str, Surface]],
        work: Work,
        agents: AwakeAgents,
        publish: Publish,
        closing: threading.Event,
    ) -> None:
        self._assembly = assembly
        self._store = assembly.store
        self._surfaces = surfaces
        self._work = work
        self._agents = agents
        self._publish = publish
        self._closing = closing
        self._accepted: dict[str, Accepted] = {}

    def accepted(self, accepted: Accepted) -> None:
        """Remember a turn that was accepted here until it begins."""
        self._accepted[accepted.turn_id] = accepted

    def forget_all_but(self, turn_ids: Collection[str]) -> None:
        """Forget the turns accepted here that are not open any more, as those that were cancelled."""
        for turn_id in self._accepted.keys() - turn_ids:
            self._accepted.pop(turn_id, None)

    def run(self, running: Running) -> float:
        """Run a turn until it has an end, is suspended, or turns out not to be ours to run.

        Returns for how many seconds its conversation is to be left alone.
        """
        try:
            outcome = self._until_ended(running)
        except NotReadyError:
            return _NOT_READY_S
        except ConversationBusyError:
            return _BUSY_S
        except TurnGoneError:
            outcome = None
            self._report(running, TurnDetached())
        if outcome is not None and outcome.status == "suspended":
            self._report(running, TurnSuspended(outcome.reason))
        else:
            running.is_over = True
        if (surface := self._surface(running.turn)) is not None:
            surface.turn_ended(running, outcome)
        return 0

    def _surface(self, turn: QueuedTurn) -> Surface | None:
        return self._surfaces().get(turn.surface)

    def _until_ended(self, running: Running) -> Outcome:
        """Try until the turn is over; a store that cannot be written now is waited for."""
        turn = running.turn
        retry = StoreRetry(f"Turn {turn.id}")
        while True:
            pause_s = _RETRY_S
            try:
                return self._attempt(running)
            except (ConversationBusyError, NotReadyError, TurnGoneError):
                raise
            except StoreError as error:
                self._check_open(turn)
                pause_s = retry.pause_after(error)
                self._report(running, TurnWaiting(str(error)))
            except HermesError as error:
                if (outcome := self._fail(running, str(error))) is not None:
                    return outcome
            except Exception as error:
                logger.exception("Turn %s failed", turn.id)
                if (outcome := self._fail(running, failure_text(error))) is not None:
                    return outcome
            if self._closing.wait(pause_s):
                return Outcome("suspended", "", _SHUTDOWN)

    def _attempt(self, running: Running) -> Outcome:
        try:
            plan, agent = self._unless_stopped(running, lambda: self._prepare(running))
            return self._run(running, plan, agent)
        except Interrupted:
            return self._end_unstarted(running)
        except NotReadyError:  # what stops a turn must not be lost
            if running.stop.is_interrupted:
                return self._end_unstarted(running)
            raise

    def _run(self, running: Running, plan: TurnPlan, agent: Agent) -> Outcome:
        turn = running.turn
        with plan.context():
            agent.clear_interrupt()
            running.agent = agent
            if plan.model_name:
                meter.check_choice(agent.model.facts, agent.permissions)
            agent.asker.can_ask = plan.can_ask
            if plan.instructions:
                self._store.write(sessions.instruct, turn.session_id, plan.instructions)
            is_resumed = turn.is_resumed or not turn.is_own
            self._report(running, TurnStarted(is_resumed=is_resumed))
            outcome = agent.run(turn.id, stop=running.stop)
        if outcome.is_recorded:  # ended by somebody else, or moved to another conversation
            raise TurnGoneError
        if outcome.status == "failed":
            self._check_failed(turn, outcome)
        return outcome

    def _prepare(self, running: Running) -> tuple[TurnPlan, Agent]:
        """Plan a turn, make its agent, and call the hook for a session that it has made."""
        turn = running.turn
        running.plan = plan = self._plan(running)
        if plan.is_stopped:
            running.stop.set()
            raise Interrupted
        with plan.context():
            agent = self.agent(turn.conversation_id, turn.session_id, plan)
            self._report_session_start(agent, turn)
        return plan, agent

    def _unless_stopped(self, running: Running, prepare: Callable[[], T]) -> T:
        """Prepare a turn; a stop does not wait for a model or a plugin that is slow.

        Without an agent that is awake, that is done in a thread of its own. Raises Interrupted when the
        turn is stopped first; what was begun is completed then, for the next turn.
        """
        turn = running.turn
        accepted = self._accepted.get(turn.id)
        makes_session = accepted is not None and accepted.makes_session
        if self._agents.peek(turn.conversation_id) is not None and not makes_session:
            return prepare()
        return running.stop.abandonable(prepare, "prepare")

    def _end_unstarted(self, running: Running) -> Outcome:
        """End a turn that was stopped before it had begun."""
        turn, plan = running.turn, running.plan
        if running.stop.is_suspended:
            return Outcome("suspended", "", _SHUTDOWN)
        self._check_open(turn)
        outcome = Outcome("interrupted", self._streamed(turn), STOPPED)
        parts = plan.deliver(turn.id, outcome) if plan is not None else ()
        self._store.write(turns.finish, turn.id, "interrupted", reason=STOPPED, parts=parts)
        self._report(running, TurnEnded("interrupted", outcome.text, STOPPED))
        return outcome

    def _streamed(self, turn: QueuedTurn) -> str:
        """Return what a turn had streamed in the process that began it."""
        if not turn.is_resumed:
            return ""
        replies = self._store.read(partials.of_session, turn.session_id)
        found = (row["content"] for row in replies if row["answers"] == turn.user_message_id)
        return next(found, "").strip()

    def _plan(self, running: Running) -> TurnPlan:
        turn = running.turn
        if (surface := self._surface(turn)) is not None:
            return surface.plan(running)
        session = self._store.read(sessions.find, turn.session_id) or {}
        return TurnPlan(
            source=str(session.get("source") or turn.surface),
            workspace=Path(session.get("cwd") or make_folder(self._assembly.home.workspace)),
            permissions=turn.permissions,
            model_name=sessions.chosen_model(session) if session else "",
            can_ask=False,
        )

    def agent(self, conversation_id: str, session_id: str, plan: TurnPlan) -> Agent:
        """Return the agent of a conversation, awake or made for it. Raises ModelError."""

        def make() -> Agent:
            return self._assembly.agent(
                session_id,
                source=plan.source,
                workspace=plan.workspace,
                sink=lambda event: self._take(conversation_id, event),
                model_name=plan.model_name,
                deliver=lambda turn_id, outcome: self._parts(conversation_id, turn_id, outcome),
                permissions=plan.permissions,
            )

        agent = self._agents.get(conversation_id, plan.permissions, make)
        if not self._agents.is_working(agent):  # what it has started goes on with its model
            agent.model = self._assembly.model(plan.model_name)
            if plan.is_workspace_fixed and agent.tool_context.workspace != plan.workspace:
                agent.tool_context.workspace = agent.tool_context.cwd = plan.workspace
        agent.tool_context.manner = plan.manner
        return agent

    def _take(self, conversation_id: str, event: Event) -> None:
        """Pass on what an agent reports; a title comes after its turn and belongs to none."""
        running = self._work.get(conversation_id)
        if running is None:
            self._publish(conversation_id, "", event)
        else:
            self._report(running, event)

    def _report(self, running: Running, event: Event) -> None:
        if (surface := self._surface(running.turn)) is not None:
            surface.report(running, event)
        self._publish(running.turn.conversation_id, running.turn.id, event)

    def _parts(
        self, conversation_id: str, turn_id: str, outcome: Outcome
    ) -> Sequence[OutboundPart]:
        """Return what has to be sent when a turn ends so."""
        running = self._work.get(conversation_id)
        if running is None or running.plan is None or running.turn.id != turn_id:
            return ()
        return running.plan.deliver(turn_id, outcome)

    def _report_session_start(self, agent: Agent, turn: QueuedTurn) -> None:
        """Tell plugins, once, of the session that a turn has made."""
        accepted = self._accepted.pop(turn.id, None)
        if accepted is not None and accepted.session_id == turn.session_id:
            is_new = accepted.makes_session
        else:  # accepted by another process, or moved to another conversation since
            is_new = self._store.read(turns.creates_session, turn.id)
        if not is_new:
            return
        agent.hooks.invoke_hook(
            "on_session_start",
            session_id=turn.session_id,
            model=agent.model.facts.name,
            platform=agent.platform,
        )

    def _fail(self, running: Running, reason: str) -> Outcome | None:
        """End a turn that no agent could run, with a notice; None when that cannot be stored now."""
        turn, plan = running.turn, running.plan
        outcome = Outcome("failed", "", reason, "engine")
        try:
            self._check_open(turn)
            parts = plan.deliver(turn.id, outcome) if plan is not None else ()
            self._store.write(turns.finish, turn.id, "failed", reason=reason, parts=parts)
        except StoreError:
            logger.exception("The end of turn %s could not be stored", turn.id)
            return None
        self._report(running, TurnEnded("failed", "", reason))
        return outcome

    def _check_open(self, turn: QueuedTurn) -> None:
        """Raise TurnGoneError when a turn has ended or is gone; a store that is locked cannot tell."""
        try:
            row = self._store.read(turns.find, turn.id)
        except StoreError:
            return
        if row is None or row["ended_at"] is not None:
            raise TurnGoneError

    def _check_failed(self, turn: QueuedTurn, outcome: Outcome) -> None:
        """Raise StoreError when the end could not be stored, TurnGoneError when another one is."""
        row = self._store.read(turns.find, turn.id)
        if row is None or row["state"] in (TurnState.ANSWERED, TurnState.INTERRUPTED):
            raise TurnGoneError
        if row["state"] != TurnState.FAILED:
            raise StoreError(outcome.reason)
