"""The engine of a process: inputs become turns, turns run, and subscribers get their events.

The store is the queue (docs/adr/0019-the-engine.md). One dispatcher thread asks it which turns this
worker may run and hands them to a pool; it looks when something was accepted or has ended, and every
second for what other processes left.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from hermes_agent import lease
from hermes_agent.agent import Agent
from hermes_agent.approval import rights
from hermes_agent.assembly import Assembly
from hermes_agent.permissions import Permissions
from hermes_agent.turn.events import Event, TurnEnded
from hermes_agent.turn.stop import Stop
from hermes_core import threads
from hermes_core.errors import IllegalTransitionError, StoreError, TurnNotFoundError
from hermes_engine import closing
from hermes_engine.agents import AwakeAgents
from hermes_engine.events import (
    EventLog,
    Gap,
    Subscriber,
    TurnCancelled,
    TurnDetached,
    TurnQueued,
)
from hermes_engine.inputs import Input
from hermes_engine.runner import TurnRunner
from hermes_engine.surface import QueuedTurn, Running, Surface, TurnPlan
from hermes_engine.work import Work
from hermes_state.ledger import leases, lineage, sessions, turns, workers
from hermes_state.ledger.turns import TurnSource
from hermes_state.transitions import TurnState
from hermes_state.values import Accepted, InboundMessage, Row

logger = logging.getLogger(__name__)

_LOOK_INTERVAL_S = 1.0
_REFRESH_INTERVAL_S = workers.TTL_S / 4
_SUSPEND_TIMEOUT_S = 5.0
_LEAVE_TIMEOUT_S = 3.0
MAX_LOGS = 64


class Engine:
    """Everything that is at work in one process."""

    def __init__(
        self,
        assembly: Assembly,
        surfaces: Sequence[Surface],
        *,
        max_turns: int = 8,
        adopts_abandoned: bool = True,
    ) -> None:
        """`adopts_abandoned`: turns of these surfaces whose worker is gone run here.

        Otherwise only those in conversations that are open here do.
        """
        self.assembly = assembly
        self.store = assembly.store
        self.worker = lease.process_name()
        self.work = Work()
        self.agents = AwakeAgents(self.work.uses)
        self._surfaces: dict[str, Surface] = {}
        self._adopts_abandoned = adopts_abandoned
        for surface in surfaces:
            self.serve(surface)
        self._max_turns = max_turns
        self._lock = threading.Lock()
        self._logs: OrderedDict[str, EventLog] = OrderedDict()
        self._opened: dict[str, int] = {}
        """Conversations that surfaces have open, and how often."""
        self._not_before: dict[str, float] = {}
        """Conversations to leave alone until a moment of the monotonic clock."""
        self._wake_count = 0
        self._news = threading.Event()
        self._closing = threading.Event()
        self._runner = TurnRunner(
            assembly, lambda: self._surfaces, self.work, self.agents, self.publish, self._closing
        )
        self._dispatcher: threading.Thread | None = None
        self._refresh_due = 0.0
        self._open_turns: dict[str, tuple[str, str]] = {}
        """The turns of our surfaces that were open at the last poll or came since, each with its
        surface and its conversation."""
        self._ended_here: set[str] = set()
        """Turns that ended here since then."""

    # -- its life ---------------------------------------------------------------------------------

    def serve(self, surface: Surface) -> None:
        """Run the turns of a further surface from now on, also those that a dead process has left."""
        self._surfaces = {**self._surfaces, **dict.fromkeys(surface.names, surface)}

    def start(self) -> None:
        """Begin to run turns, also those that a process which is gone has left. Raises StoreError."""
        self._maintain(is_poll=True)
        self._dispatcher = threading.Thread(target=self._dispatch, name="dispatcher", daemon=True)
        self._dispatcher.start()

    def drain(
        self, timeout_s: float, before_suspend: Callable[[Running], object] = lambda _running: None
    ) -> list[Running]:
        """Begin no more turns, wait for those that run, and suspend what has not ended by then.

        Returns what was suspended; `before_suspend` is called for each first.
        """
        self._closing.set()
        self._news.set()
        self.work.shut_down()
        if self.work.wait_until_all_idle(timeout_s):
            return []
        cut_off = list(self.work)
        for running in cut_off:
            before_suspend(running)
        for running in cut_off:
            running.stop.suspend()
        self.work.wait_until_all_idle(_SUSPEND_TIMEOUT_S)
        return cut_off

    def close(self) -> None:
        """Stop at once and release everything; open turns stay on disk."""
        self.drain(0)
        if self._dispatcher is not None:
            self._dispatcher.join(_SUSPEND_TIMEOUT_S)
        self.agents.close()
        try:
            self.store.write(lambda tx: workers.forget(tx, [self.worker]))
        except StoreError:
            logger.warning("Could not remove worker %s; it expires", self.worker, exc_info=True)

    # -- inputs -----------------------------------------------------------------------------------

    def accept(self, item: Input) -> Accepted:
        """Store an input as a turn; when this returns, it is on disk and will be answered.

        A second delivery finds the first turn. Raises AlreadySettledError, ConversationOverError,
        ConversationBusyError and StoreError; then nothing was stored. Raises LookupError for a surface
        that is not served here: nobody could say how its turn is to run.
        """
        if item.surface not in self._surfaces:
            raise LookupError(f"The surface {item.surface!r} is not served here.")
        permissions = msgspec.json.encode(item.permissions).decode() if item.permissions else None
        source = TurnSource(item.surface, self.worker, permissions)
        accepted = self.store.write(
            lambda tx: turns.accept(
                tx,
                item.session_id,
                item.message,
                inbound=item.inbound,
                idempotency_key=item.idempotency_key,
                new_session=item.opening,
                reopens=item.reopens,
                over=item.closed_by,
                replaces=item.replaces,
                only_if_idle=item.only_if_idle,
                source=source,
                brings=item.taint,
            )
        )
        if accepted.is_new:
            if item.is_followed:
                self.log(accepted.conversation_id)
            self._queued(accepted, item.surface)
        return accepted

    def replace(
        self, turn_id: str, message: Mapping[str, Any], inbound: InboundMessage
    ) -> Accepted | None:
        """Queue a new version of a message in the place of its turn; None when that is not queued."""
        row = self.store.read(turns.find, turn_id)
        accepted = self.store.write(turns.replace, turn_id, message, inbound) if row else None
        if row is None or accepted is None:
            return None
        self._cancelled(turn_id, accepted.conversation_id, turns.REPLACED)
        self._queued(accepted, row["surface"])
        return accepted

    def _queued(self, accepted: Accepted, surface: str) -> None:
        """Note a new turn, tell those who follow its conversation, and look for turns."""
        self._runner.accepted(accepted)
        with self._lock:
            self._open_turns[accepted.turn_id] = (surface, accepted.conversation_id)
        self.publish(accepted.conversation_id, accepted.turn_id, TurnQueued())
        self._news.set()

    def _cancelled(self, turn_id: str, conversation_id: str, reason: str) -> None:
        """Note that a queued turn was ended, and tell those who follow its conversation."""
        with self._lock:
            self._ended_here.add(turn_id)
        self.publish(conversation_id, turn_id, TurnCancelled(reason))
        self._news.set()

    def steer(self, turn_id: str, conversation_id: str, text: str) -> Running | None:
        """Offer an accepted turn to the one that runs in its conversation, which may answer it too.

        What the running turn does not hear runs afterwards as a turn of its own. Returns the running
        turn, or None when none runs here that could hear it.
        """
        running = self.work.get(conversation_id)
        if running is None or running.agent is None or running.turn.id == turn_id:
            return None
        running.agent.steer(text, turn_id)
        return running

    def cancel(self, turn_id: str, reason: str) -> bool:
        """End a turn that has not begun; return False when it has, is over or is gone."""
        row = self.store.read(turns.find, turn_id)
        if row is None:
            return False
        conversation_id = self.store.read(lineage.root, row["session_id"])
        with self.work.paused(conversation_id):
            if self.work.find(turn_id) is not None:
                return False
            try:
                self.store.write(turns.cancel, turn_id, reason)
            except (IllegalTransitionError, TurnNotFoundError):
                return False
        self._cancelled(turn_id, conversation_id, reason)
        return True

    def interrupt(self, conversation_id: str, by: str = "") -> bool:
        """Stop what runs in a conversation, at once; return whether something did."""
        return self.work.interrupt(conversation_id, by)

    def interrupt_unstarted(self, turn_id: str, conversation_id: str, reason: str) -> bool:
        """End a turn that does not run here yet, also one that a dead process had begun.

        Its message stays in the conversation. Returns False when it runs, or has ended.
        """
        with self.work.paused(conversation_id):
            row = self.store.read(turns.find, turn_id)
            if row is None or row["ended_at"] is not None or self.work.find(turn_id) is not None:
                return False
            if row["state"] == TurnState.RUNNING and self.store.read(
                leases.holder_of, conversation_id
            ):
                return False
            self.store.write(turns.finish, turn_id, "interrupted", reason=reason)
            with self._lock:
                self._ended_here.add(turn_id)
        self.publish(conversation_id, turn_id, TurnEnded("interrupted", "", reason))
        return True

    @contextmanager
    def compacting(self, agent: Agent) -> Generator[Stop]:
        """Compact the conversation of an agent inside the block; its turns wait meanwhile.

        Yields the Stop that `interrupt` sets. Raises UsageError when something runs in it.
        """
        try:
            with self.work.compacting(agent) as stop:
                yield stop
        finally:
            self._news.set()

    def wake(self, conversation_id: str | None = None) -> None:
        """Look for turns now, also where they were not ready before: in one conversation or in all."""
        with self._lock:
            self._wake_count += 1
            if conversation_id is None:
                self._not_before.clear()
            else:
                self._not_before.pop(conversation_id, None)
        self._news.set()

    def open_turns(self, conversation_id: str) -> list[Row]:
        """Return the open turns of a conversation that this worker runs or may run, in order."""
        others = set(self.store.read(workers.names)) - {self.worker}
        found = self.store.read(turns.open_in, conversation_id)
        return [row for row in found if row["worker"] not in others]

    def is_busy(self, conversation_id: str) -> bool:
        """Return whether something runs or is queued here in a conversation.

        A turn whose end is on disk is waited for: it still calls plugins.
        """
        self.wait_for_ended_turn(conversation_id)
        return self.work.is_at_work(conversation_id) or bool(self.open_turns(conversation_id))

    def wait_for_ended_turn(self, conversation_id: str) -> None:
        """Wait a moment for a turn that has its end on disk and still calls plugins."""
        running = self.work.get(conversation_id)
        if running is not None and self.is_over(running.turn.id):
            self.work.wait_until_idle(conversation_id, _LEAVE_TIMEOUT_S)

    def is_over(self, turn_id: str) -> bool:
        """Return whether a turn has an end on disk, or is gone with its conversation."""
        row = self.store.read(turns.find, turn_id)
        return row is None or row["ended_at"] is not None

    def answer(
        self,
        question_id: str,
        text: str,
        *,
        conversations: Collection[str] | None = None,
        permissions: Permissions | None = None,
        by: str = "",
    ) -> Row:
        """Answer what a turn asks a person, here or in another process (see rights.answer).

        Raises UsageError when the question is not open or this person may not answer it so.
        """
        return rights.answer(
            self.store,
            question_id,
            text,
            conversations=conversations,
            permissions=permissions,
            by=by,
        )

    def is_unfinished(self, conversation_id: str) -> bool:
        """Return whether a turn of a conversation runs here, or would if it were open (see `open`)."""
        if self.work.is_at_work(conversation_id):
            return True
        found = self._runnable([conversation_id])
        return any(row["is_due"] and row["conversation_id"] == conversation_id for row in found)

    def recover(self, conversation_id: str, stop: Stop) -> None:
        """Complete what processes that are gone left in a conversation; a stop interrupts that."""
        with self.open(conversation_id), stop.callback(self.work.notify):
            while not stop.is_set and self.is_unfinished(conversation_id):
                self.work.wait_until_begun(conversation_id, _LOOK_INTERVAL_S, stop)
                self.work.wait_until_idle(conversation_id, stop=stop)
        if stop.is_set:
            self.interrupt(conversation_id)
            self.work.wait_until_idle(conversation_id)

    # -- conversations ----------------------------------------------------------------------------

    def close_conversation(
        self, session_id: str, end_reason: str, *, completed: bool = False, interrupted: bool = True
    ) -> None:
        """Close a conversation, whether its agent is awake or not (see hermes_engine.closing).

        What runs is interrupted. Of a conversation that is not stored yet nothing is left behind; one
        that another process runs stays open, and one that was closed before stays as it is.
        """
        conversation_id = self.store.read(lineage.root, session_id)
        with self.paused(conversation_id, interrupt=True, timeout_s=closing.STOP_TIMEOUT_S):
            agent = self.agents.drop(conversation_id)
            row = self.store.read(sessions.find, self.store.read(lineage.tip, session_id))
            is_closed = row is not None and row["ended_at"] is not None and agent is None
            if row is None or is_closed or lease.is_held_elsewhere(self.store, conversation_id):
                if agent is not None:
                    agent.close()
                return
            conversation = closing.stored_conversation(self.assembly, row)
            conversation.session_id = lambda: self.store.read(lineage.tip, session_id)
            conversation.record = lambda id_: closing.record_end(self.store, id_, end_reason)
            if agent is not None:
                conversation.agent, conversation.platform = agent, agent.platform
            closing.close(conversation, completed=completed, interrupted=interrupted)

    @contextmanager
    def open(self, conversation_id: str) -> Generator[None]:
        """Keep a conversation open inside the block: open turns of dead processes resume here."""
        with self._lock:
            self._opened[conversation_id] = self._opened.get(conversation_id, 0) + 1
        self._news.set()
        try:
            yield
        finally:
            with self._lock:
                self._opened[conversation_id] -= 1
                if not self._opened[conversation_id]:
                    del self._opened[conversation_id]

    @contextmanager
    def paused(
        self, *conversation_ids: str, interrupt: bool = False, timeout_s: float = 3.0
    ) -> Generator[bool]:
        """Begin nothing in these conversations inside the block; queued turns continue afterwards.

        Running turns are interrupted if requested, and waited for. Yields whether all of them are idle.
        """
        try:
            with self.work.paused(*conversation_ids):
                if interrupt:
                    for conversation_id in conversation_ids:
                        self.interrupt(conversation_id)
                idle = [self.work.wait_until_idle(key, timeout_s) for key in conversation_ids]
                yield all(idle)
        finally:
            self._news.set()

    # -- events -----------------------------------------------------------------------------------

    def log(self, conversation_id: str) -> EventLog:
        """Return the event log of a conversation; its events are kept from now on."""
        with self._lock:
            log = self._logs.setdefault(conversation_id, EventLog())
            self._logs.move_to_end(conversation_id)
            for old_id, old in list(self._logs.items())[:-MAX_LOGS]:
                if not self._is_followed(old_id, old):
                    del self._logs[old_id]
            return log

    def subscribe(
        self,
        conversation_id: str,
        subscriber: Subscriber,
        *,
        after: int | None = None,
        log_id: str | None = None,
    ) -> Gap | None:
        """Follow a conversation, from the event after number `after` (see EventLog.subscribe)."""
        while True:
            log = self.log(conversation_id)
            gap = log.subscribe(subscriber, after=after, log_id=log_id)
            with self._lock:
                if self._logs.get(conversation_id) is log:
                    return gap
            log.unsubscribe(subscriber)  # nobody followed it, so it was dropped just now

    def unsubscribe(self, conversation_id: str, subscriber: Subscriber) -> None:
        """Stop following a conversation."""
        with self._lock:
            log = self._logs.get(conversation_id)
        if log is not None:
            log.unsubscribe(subscriber)

    def publish(self, conversation_id: str, turn_id: str, event: Event) -> None:
        """Tell those who follow a conversation what happened in it."""
        with self._lock:
            log = self._logs.get(conversation_id)
        if log is not None:
            log.publish(turn_id, event)

    def _is_followed(self, conversation_id: str, log: EventLog) -> bool:
        """Return whether a log is still needed; the lock is held."""
        is_working = self.work.get(conversation_id) is not None
        return log.has_subscribers or is_working or conversation_id in self._opened

    # -- agents -----------------------------------------------------------------------------------

    def agent(self, session_id: str, plan: TurnPlan) -> Agent:
        """Return the agent of a conversation, awake or made for it. Raises ModelError."""
        conversation_id = self.store.read(lineage.root, session_id)
        return self._runner.agent(conversation_id, session_id, plan)

    # -- dispatching ------------------------------------------------------------------------------

    def _postpone(self, conversation_id: str, seconds: float, wake_count: int) -> None:
        """Begin nothing in a conversation for a while, or until `wake`.

        Does nothing when `wake` was called since the count was taken: what the turn waited for may have
        come between its surface's answer and now.
        """
        with self._lock:
            if self._wake_count == wake_count:
                self._not_before[conversation_id] = time.monotonic() + seconds

    def _dispatch(self) -> None:
        poll_due = 0.0
        while not self._closing.is_set():
            self._news.wait(_LOOK_INTERVAL_S)
            self._news.clear()
            if self._closing.is_set():
                return
            if is_poll := time.monotonic() >= poll_due:  # also while there are news all the time
                poll_due = time.monotonic() + _LOOK_INTERVAL_S
            try:
                self._maintain(is_poll=is_poll)
                self._look()
            except StoreError as error:
                logger.warning("Could not look for turns: %s", error)
                self._closing.wait(_LOOK_INTERVAL_S)
            except Exception:
                logger.exception("Looking for turns failed")
                self._closing.wait(_LOOK_INTERVAL_S)

    def _maintain(self, *, is_poll: bool) -> None:
        """Free what dead processes held, and refresh our own row while we have open turns."""
        if is_poll:
            lease.expire_dead_leases(self.store)
            self._find_turns_ended_elsewhere()
            if dead := [name for name in self.store.read(workers.names) if _is_dead(name)]:
                self.store.write(lambda tx: workers.forget(tx, dead))
        now = time.monotonic()
        if now >= self._refresh_due:
            self._refresh_due = now + _REFRESH_INTERVAL_S
            if self.store.read(lambda tx: turns.has_open(tx, self.worker)):
                self.store.write(lambda tx: workers.refresh(tx, self.worker))

    def _find_turns_ended_elsewhere(self) -> None:
        """Tell surfaces which of their turns are over that another process ran, or deleted."""
        surfaces = list(self._surfaces)
        with self._lock:
            before, self._open_turns = self._open_turns, {}
        found = self.store.read(lambda tx: turns.open_of(tx, surfaces))
        with self._lock:
            self._open_turns |= {
                row["id"]: (row["surface"], row["conversation_id"]) for row in found
            }
            missing = before.keys() - self._open_turns.keys() - self._ended_here
            self._ended_here &= self._open_turns.keys()
        self._runner.forget_all_but(self._open_turns)
        for turn_id in missing:
            # A turn is noted in _ended_here before it leaves the work.
            if self.work.find(turn_id) is None and turn_id not in self._ended_here:
                surface, conversation_id = before[turn_id]
                self._surfaces[surface].turn_ended_elsewhere(turn_id)
                self.publish(conversation_id, turn_id, TurnDetached())

    def _look(self) -> None:
        """Start every turn that may run now."""
        self.work.mark()
        with self._lock:
            opened = list(self._opened)
        for row in self._runnable(opened):
            if self._closing.is_set():
                return
            turn = _queued_turn(row)
            if self._is_postponed(turn.conversation_id):
                continue
            if not row["is_due"] and not self._is_adopted(turn):
                continue
            running = Running(turn)
            if self.work.begin(running, self._max_turns):
                self._start(running)

    def _start(self, running: Running) -> None:
        """Run a turn in a thread of its own, which does not keep the process from ending."""
        thread = threading.Thread(target=self._run, args=(running,), name="turn", daemon=True)
        try:
            threads.start(thread)
        except RuntimeError as error:  # no memory for a thread
            logger.warning("Turn %s could not be started: %s", running.turn.id, error)
            self._postpone(running.turn.conversation_id, _LOOK_INTERVAL_S, self._wake_count)
            self.work.end(running)

    def _runnable(self, opened: Collection[str]) -> list[Row]:
        surfaces = list(self._surfaces) if self._adopts_abandoned else []
        return self.store.read(lambda tx: turns.runnable(tx, self.worker, surfaces, opened))

    def _is_adopted(self, turn: QueuedTurn) -> bool:
        """Return whether a surface adopts a turn that a worker which is gone had begun."""
        return any(surface.adopts(turn) for surface in set(self._surfaces.values()))

    def _is_postponed(self, conversation_id: str) -> bool:
        with self._lock:
            until = self._not_before.get(conversation_id)
            if until is None:
                return False
            if time.monotonic() < until:
                return True
            del self._not_before[conversation_id]
            return False

    def _run(self, running: Running) -> None:
        pause_s = _LOOK_INTERVAL_S
        wake_count = self._wake_count
        try:
            pause_s = self._runner.run(running)
        except Exception:  # the last boundary of a turn: the next one must run
            logger.exception("Turn %s could not be run", running.turn.id)
        finally:
            if running.is_over:
                with self._lock:
                    self._ended_here.add(running.turn.id)
            if pause_s:
                self._postpone(running.turn.conversation_id, pause_s, wake_count)
            self.work.end(running)
            if running.agent is not None and not self.agents.holds(running.agent):
                running.agent.close()
            self._news.set()


def _queued_turn(row: Row) -> QueuedTurn:
    stored = row["permissions"]
    return QueuedTurn(
        id=row["id"],
        session_id=row["session_id"],
        conversation_id=row["conversation_id"],
        user_message_id=row["user_message_id"],
        surface=row["surface"],
        permissions=msgspec.json.decode(stored, type=Permissions) if stored else None,
        is_resumed=row["state"] == TurnState.RUNNING,
        is_own=bool(row["is_own"]),
    )


def _is_dead(worker: str) -> bool:
    """Return whether a worker's process has ended; of another machine's we cannot know."""
    return lease.is_gone(f"{worker}:0")
