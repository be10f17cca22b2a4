"""Running turns: from a lane to the agent, in a thread, and what follows from how it came out."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from gateway import journal, session_context
from gateway.agents import Agents
from gateway.lanes import Lane, Lanes, NotYet, Waiting
from gateway.replies import Replies
from gateway.shortening import Shortenings
from gateway.source import SessionSource
from gateway.streams import Streams
from gateway.watchers import Watchers
from hermes_agent import meter
from hermes_agent.agent import Agent
from hermes_agent.assembly import Assembly
from hermes_agent.events import (
    Compacted,
    Event,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    TurnEnded,
)
from hermes_agent.permissions import Permissions
from hermes_agent.turn import Outcome
from hermes_cli import plugins
from hermes_core.errors import ConversationBusyError, HermesError, StoreError
from hermes_state.outbox import Piece

logger = logging.getLogger(__name__)

_ASK_AGAIN_S = 1.0
_LONGEST_WAIT_S = 60.0
STOPPED = "stopped by the user"
_STOPPED_ELSEWHERE = "⏹ Stopped from another chat that is in this conversation."
_GONE = (
    "This conversation was deleted before I could answer. Your next message begins a new one;"
    " send this one again if you still want an answer."
)

Moved = Callable[[str, str, str], None]
"""Told when a turn moved a conversation: its key, the session it was in, the one it is in."""


class Turns:
    """Runs the turns of lanes. What it needs from the event loop it is given at the start."""

    def __init__(
        self,
        assembly: Assembly,
        replies: Replies,
        streams: Streams,
        watchers: Watchers,
        *,
        on_moved: Moved,
        wake_delivery: Callable[[], None],
        permissions_of: Callable[[SessionSource], Permissions],
        workspace: Path,
    ) -> None:
        self._assembly = assembly
        self._store = assembly.store
        self._replies = replies
        self._streams = streams
        self._watchers = watchers
        self._on_moved = on_moved
        self._wake_delivery = wake_delivery
        self._permissions_of = permissions_of
        self._workspace = workspace
        self.loop: asyncio.AbstractEventLoop | None = None
        self.on_change: Callable[[], None] = lambda: None
        """Told when a turn begins or ends."""
        self.on_over: Callable[[str], None] = lambda _key: None
        """Told when a turn of a key is over or put off, before it leaves its lane."""
        self.on_question_over: Callable[[], None] = lambda: None
        """Told when something that was asked may be over."""
        self.running: dict[str, Agent] = {}
        """The agents whose turns run now, by key."""
        self.shortenings = Shortenings()
        self.agents = Agents(is_running=self._is_at_work)
        self._current: dict[str, Waiting] = {}
        self._closing = threading.Event()
        self.answered_count = self.failed_count = 0

    def _is_at_work(self, agent: Agent) -> bool:
        return agent in self.running.values() or self.shortenings.is_worked_on_by(agent)

    def agent(self, key: str, session_id: str, place: SessionSource, model_name: str = "") -> Agent:
        """The agent of a conversation for somebody who speaks in it, woken when it sleeps.

        Raises ModelError.
        """
        permissions = self._permissions_of(place)

        def make() -> Agent:
            made = self._assembly.agent(
                session_id,
                source=place.platform.value,
                workspace=self._workspace,
                sink=lambda event: self._report(key, event),
                model_name=model_name,
                deliver=partial(self._deliver, key),
                permissions=permissions,
            )
            made.bench.manner = self._replies.manner(place.platform.value, permissions)
            return made

        root = self._store.get_conversation_root(session_id)
        agent = self.agents.get(key, (root, permissions), make)
        if not self._is_at_work(agent):  # what it has started goes on, whichever model answers
            agent.model = self._assembly.model(model_name)
        return agent

    def _deliver(self, key: str, turn_id: str, outcome: Outcome) -> Sequence[Piece]:
        waiting = self._current.get(key)
        if waiting is None or waiting.turn_id != turn_id:
            return self._replies.deliver(turn_id, outcome)
        is_empty = outcome.status == "interrupted" and not outcome.text.strip()
        if waiting.stop.is_interrupted and is_empty:
            return self._tell_stopped(waiting)
        return self._replies.deliver(turn_id, outcome, waiting.origin)

    def _tell_stopped(self, waiting: Waiting) -> Sequence[Piece]:
        """Who stopped a turn before its first word knows, and does not want it sent again; the chat
        that it was for must hear of it, if that was done in another one.
        """
        told = _STOPPED_ELSEWHERE if waiting.is_stopped_elsewhere else ""
        return self._replies.pieces(waiting.origin, told, name=f"turn:{waiting.turn_id}")

    def run(self, lane: Lane, waiting: Waiting) -> None:
        """The boundary of a turn: it has an end afterwards, or stays on disk for the next start.

        Raises NotYet when its conversation is run by another process.
        """
        platform = waiting.origin.place.platform.value
        if self._replies.abilities(platform).answers_in_place:
            self._watchers.expect(waiting.turn_id)
        has_begun = True
        try:
            self._until_over(lane, waiting)
        except NotYet:
            has_begun = False
            raise
        finally:
            if has_begun:
                self._leave(lane, waiting)

    def _leave(self, lane: Lane, waiting: Waiting) -> None:
        if waiting.stop.is_interrupted and self.loop is not None:
            platform = waiting.origin.place.platform.value
            self._streams.stopped(waiting.turn_id, platform, self.loop)
        self.forget(waiting.turn_id)
        self.on_over(lane.key)
        if waiting.has_asked:
            self.on_question_over()

    def forget(self, turn_id: str) -> None:
        """Nothing more comes of a turn here: it is over, put off or taken back."""
        if self.loop is not None:
            self._streams.end(turn_id, self.loop)
        self._watchers.over(turn_id)

    def _find(self, waiting: Waiting) -> bool:
        """Where a turn is to be answered: its chat may have gone on elsewhere while it waited. Tells
        whether it still is: a terminal may have done so, or deleted it.
        """
        row = self._store.turns.get(waiting.turn_id)
        if row is None or row["ended_at"] is not None:
            return not self._is_settled(waiting)
        if row["session_id"] != waiting.session_id:
            waiting.session_id = row["session_id"]
            waiting.makes_session = self._store.turns.opens(waiting.turn_id)
        return True

    def _until_over(self, lane: Lane, waiting: Waiting) -> None:
        """Try until the turn is over. A store that cannot be written now is waited for: those behind in
        the lane must not overtake.
        """
        wait_s = _ASK_AGAIN_S
        while not self._closing.is_set():
            try:
                if self._try(lane, waiting):
                    return
            except ConversationBusyError as error:
                raise NotYet from error
            except StoreError as error:
                if self._is_settled(waiting):
                    return
                logger.warning("turn is tried again: %s", error, extra=journal.of_turn(waiting))
            except HermesError as error:
                if self._give_up(waiting, str(error)):
                    return
            except Exception as error:
                logger.exception("turn broke off", extra=journal.of_turn(waiting))
                if self._give_up(waiting, f"Something went wrong inside Hermes: {error!r}"):
                    return
            finally:
                self._let_go(lane.key)
            self._closing.wait(wait_s)
            wait_s = min(_LONGEST_WAIT_S, wait_s * 2)

    def _let_go(self, key: str) -> None:
        """The agent runs no more; one that lost its place meanwhile is closed."""
        agent = self.running.pop(key, None)
        self._current.pop(key, None)
        self.on_change()
        if agent is not None and not self.agents.keeps(key, agent):
            agent.close()

    def _try(self, lane: Lane, waiting: Waiting) -> bool:
        """One attempt, where the turn is to be answered and in the context of its chat."""
        if not self._find(waiting):
            return True
        place = waiting.origin.place
        tokens = session_context.set_session_vars(
            platform=place.platform.value,
            chat_id=place.chat_id,
            chat_name=place.chat_name,
            thread_id=place.thread_id,
            user_id=place.user_id,
            user_name=place.user_name,
            session_key=lane.key,
            session_id=waiting.session_id,
            message_id=waiting.origin.message_id,
        )
        try:
            return self._run(lane, waiting)
        finally:
            session_context.clear_session_vars(tokens)

    def _run(self, lane: Lane, waiting: Waiting) -> bool:
        """Tells whether the turn is over or put off."""
        began = time.monotonic()
        place = waiting.origin.place
        agent = self.agent(lane.key, waiting.session_id, place, waiting.model_name)
        if waiting.model_name:  # the model of the house is its owner's choice
            meter.check_choice(agent.model.facts, agent.permissions)
        self._current[lane.key] = waiting
        self.running[lane.key] = agent
        self.on_change()
        agent.asker.can_ask = waiting.origin.can_be_asked
        agent.clear_interrupt()
        self._tell_start(agent, waiting)
        if self.loop is not None and not waiting.origin.is_in_place:
            self._streams.begin(waiting.turn_id, waiting.origin, self.loop)
        if wanted := waiting.origin.instructions:
            self._store.instruct_session(waiting.session_id, wanted)
        outcome = agent.run(waiting.turn_id, stop=waiting.stop)
        if outcome.is_recorded or (outcome.status == "failed" and not self._has_failed(waiting)):
            raise StoreError(outcome.reason)  # what is on disk of it counts
        self.answered_count += outcome.status == "answered"
        self.failed_count += outcome.status == "failed"
        seconds = round(time.monotonic() - began, 3)
        journal.ended(waiting, outcome.status, outcome.reason, seconds=seconds)
        self._on_moved(lane.key, waiting.session_id, agent.session_id)
        return True

    def session_of(self, key: str) -> str | None:
        """The session in which a lane's turn runs now."""
        agent = self.running.get(key)
        return agent.session_id if agent is not None else None

    def keys_of(self, conversation_id: str) -> set[str]:
        """The keys under which something works on a conversation now: several chats may be in it."""
        agents = list(self.running.items())
        running = {key for key, agent in agents if agent.conversation_id == conversation_id}
        return running | set(self.shortenings.keys_of(conversation_id))

    def is_over(self, turn_id: str) -> bool:
        """Whether a turn has an end, on disk, or is gone with its conversation."""
        row = self._store.turns.get(turn_id)
        return row is None or row["ended_at"] is not None

    def _has_failed(self, waiting: Waiting) -> bool:
        row = self._store.turns.get(waiting.turn_id)
        return row is not None and row["state"] == "failed"

    def _is_settled(self, waiting: Waiting) -> bool:
        """Whether somebody else ended a turn, as a terminal does, or deleted its conversation; its chat
        hears of it then. A store that is locked cannot tell.
        """
        try:
            row = self._store.turns.get(waiting.turn_id)
            if row is None:
                self._tell_gone(waiting)
                return True
            if row["ended_at"] is None:
                return False
            self._replies.bring(row)
        except StoreError:
            return False
        self._wake_delivery()
        journal.ended(waiting, row["state"], row["reason"] or "")
        return True

    def _tell_gone(self, waiting: Waiting) -> None:
        """Whoever wrote must hear that no answer comes; a turn that is gone cannot carry it."""
        self.failed_count += 1
        journal.ended(waiting, "failed", _GONE)
        name = f"gone:{waiting.turn_id}"
        try:
            if pieces := self._replies.pieces(waiting.origin, f"⚠️ {_GONE}", name=name):
                self._store.outbox.put(pieces)
                self._wake_delivery()
        except StoreError:
            logger.exception("an end could not be told", extra=journal.of_turn(waiting))

    def _tell_start(self, agent: Agent, waiting: Waiting) -> None:
        if not waiting.makes_session:
            return
        waiting.makes_session = False
        plugins.invoke_hook(
            "on_session_start",
            session_id=waiting.session_id,
            model=agent.model.facts.name,
            platform=agent.platform,
        )

    def _report(self, key: str, event: Event) -> None:
        if isinstance(event, Compacted):
            self._on_moved(key, event.old_session_id, event.new_session_id)
        waiting = self._current.get(key)
        if waiting is None:
            return  # a title, which comes after its turn, or a shortening without one
        if isinstance(event, QuestionAsked):
            waiting.has_asked = True
            is_beside = key != waiting.origin.session_key
            pieces = self._replies.question(waiting.origin, event, is_beside=is_beside)
            self._store.outbox.put(pieces)
            self._wake_delivery()
        if isinstance(event, QuestionAnswered):
            self.on_question_over()
        if isinstance(event, Notice):
            self._tell(waiting, event)
        if isinstance(event, TurnEnded):
            self._wake_delivery()
        self._streams.report(waiting.turn_id, event)
        self._watchers.report(waiting.turn_id, event)

    def _tell(self, waiting: Waiting, notice: Notice) -> None:
        """Show a notice in the chat, once a conversation; without one the turn goes on."""
        try:
            conversation_id = self._store.get_conversation_root(waiting.session_id)
            if pieces := self._replies.notice(waiting.origin, conversation_id, notice):
                self._store.outbox.put(pieces)
                self._wake_delivery()
        except StoreError as error:
            logger.warning("a notice is not told: %s", error, extra=journal.of_turn(waiting))

    def _give_up(self, waiting: Waiting, reason: str) -> bool:
        """End a turn that no agent could be found for, with a notice; tells whether it is over."""
        outcome = Outcome("failed", "", reason, "gateway")
        try:
            if not self.is_over(waiting.turn_id):
                self._store.turns.finish(
                    waiting.turn_id,
                    "failed",
                    reason=reason,
                    pieces=self._replies.deliver(waiting.turn_id, outcome),
                )
        except StoreError:
            logger.exception(
                "the end of a turn could not be stored", extra=journal.of_turn(waiting)
            )
            return False
        self.failed_count += 1
        journal.ended(waiting, "failed", reason)
        self._wake_delivery()
        return True

    def stop(self, lane: Lane, but: str | None = None, *, by: str | None = None) -> bool:
        """Stop the turn that runs in a lane, unless it is the one named; tells whether one does.

        `by` is the chat that wants it so; without one it is the turn's own.
        """
        waiting = lane.current
        if waiting is None or waiting.turn_id == but:
            return False
        waiting.is_stopped_elsewhere = by not in (None, waiting.origin.session_key)
        waiting.stop.set()
        return True

    def suspend(self, lanes: Lanes, seconds: float) -> None:
        """Suspend every turn that runs, and wait for them; the next start resumes them."""
        self._closing.set()
        for lane in lanes.running:
            if (waiting := lane.current) is not None:
                waiting.stop.suspend()
        lanes.wait_until_idle(seconds)
