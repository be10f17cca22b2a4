"""Turns of chats: the surface that the engine knows as `gateway`.

All platforms share that name: a turn of a platform that is switched off is answered all the same, and
sent when the platform is back.
"""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from gateway import log_fields, reply_target, session_context
from gateway.access import Access, are_alike
from gateway.buttons import Buttons
from gateway.delivery import Delivery
from gateway.replies import Replies
from gateway.reply_attachments import SEND_FILE
from gateway.reply_target import ReplyTarget
from gateway.session import OVER, SessionStore
from gateway.source import SessionSource
from gateway.streams import Streams
from gateway.workspaces import Workspaces
from hermes_agent.agent import Agent
from hermes_agent.approval import taint
from hermes_agent.assembly import Assembly
from hermes_agent.permissions import Permissions
from hermes_agent.turn.events import (
    Compacted,
    Event,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    QuestionWithdrawn,
    TurnEnded,
)
from hermes_agent.turn.values import Outcome
from hermes_core.errors import StoreError, ToolDeniedError
from hermes_engine.engine import Engine
from hermes_engine.events import TurnStarted
from hermes_engine.inputs import Input
from hermes_engine.surface import (
    NotReadyError,
    QueuedTurn,
    Running,
    TurnPlan,
)
from hermes_state.ledger import lineage, routes, turns
from hermes_state.ledger import sessions as session_ledger
from hermes_state.transitions import TurnState
from hermes_state.values import Accepted, InboundMessage, NewSession, OutboundPart, Row

logger = logging.getLogger(__name__)

SURFACE = "gateway"
_STOPPED_ELSEWHERE = "⏹ Stopped from another chat of this conversation."
_DELETED = (
    "This conversation was deleted before I could answer. Your next message begins a new one;"
    " send this one again if you still want an answer."
)
_OTHER_RIGHTS = (
    "A person with other permissions started the running turn. Your message is answered next."
)
_ANSWERED_ELSEWHERE = (
    "The running turn belongs to another chat and is answered there."
    " It gets your message if it can; otherwise that is answered next."
)
_WAITS_FOR_ANOTHER = (
    "⏳ A message of another chat in this conversation is answered first, then yours."
)
_NOT_TEXT = "A running turn takes text only. Your picture is answered next."

Moved = Callable[[str, str, str], None]
"""Called when a turn moved a conversation: with the session key, the old and the new session."""


class ChatTurns:
    """The turns that came from chats. May be used from several threads."""

    names: Sequence[str] = (SURFACE,)

    def __init__(  # noqa: PLR0913 -- the parts of the gateway that a turn touches
        self,
        assembly: Assembly,
        sessions: SessionStore,
        replies: Replies,
        streams: Streams,
        *,
        delivery: Delivery,
        buttons: Buttons,
        access: Access,
        loop: asyncio.AbstractEventLoop,
        on_moved: Moved,
        on_change: Callable[[], None],
        workspaces: Workspaces,
    ) -> None:
        self._store = assembly.store
        self._sessions = sessions
        self._replies = replies
        self._streams = streams
        self._on_moved = on_moved
        self._on_change = on_change
        self._delivery = delivery
        self._buttons = buttons
        self._access = access
        self._loop = loop
        self._workspaces = workspaces
        self.engine = Engine(assembly, [self], max_turns=assembly.settings.gateway.turns_at_once)
        self._lock = threading.Lock()
        self._targets: dict[str, ReplyTarget] = {}
        """Where the replies of open turns go, as far as it was needed."""
        self._turns_with_questions: set[str] = set()
        """The running turns that have asked a question, which may be answered by now."""
        self._blocked: Counter[str] = Counter()
        """Chats for which nothing may begin, whichever conversation they are in by then."""
        self._followers: dict[str, list[Callable[[], object]]] = {}
        """Callbacks of those who wait for the end of a turn, by turn."""
        self.answered_count = self.failed_count = 0

    # -- accepting --------------------------------------------------------------------------------

    def accept(
        self,
        session_id: str,
        content: object,
        target: ReplyTarget,
        delivery: InboundMessage,
        *,
        opening: NewSession | None = None,
        reopens: bool = False,
        closed_by: frozenset[str] = frozenset(),
        replaces: int | None = None,
    ) -> Accepted:
        """Store a message of a chat as a turn. Raises what Engine.accept raises."""
        accepted = self.engine.accept(
            Input(
                SURFACE,
                session_id,
                content,
                permissions=self._access.permissions_of(target.source),
                inbound=delivery,
                opening=opening,
                platform_message_id=target.message_id,
                reopens=reopens,
                closed_by=closed_by,
                replaces=replaces,
                is_followed=target.is_in_place,
                brings=self._access.taint_of(target.source, quotes_others=target.quotes_others),
            )
        )
        if accepted.is_new:
            with self._lock:
                self._targets.setdefault(accepted.turn_id, target)
        return accepted

    def replace(
        self, turn_id: str, content: object, target: ReplyTarget, delivery: InboundMessage
    ) -> Accepted | None:
        """Put an edited message in the place of a queued one; None when that is not queued any more."""
        message = {
            "role": "user",
            "content": content,
            "platform_message_id": target.message_id,
        }
        accepted = self.engine.replace(turn_id, message, delivery)
        if accepted is not None:
            self._forget(turn_id)
        return accepted

    def cancel(self, turn_id: str, reason: str) -> bool:
        """End a turn that has not begun; return False when it has, or is over."""
        is_cancelled = self.engine.cancel(turn_id, reason)
        if is_cancelled:
            self._forget(turn_id)
        return is_cancelled

    def target_of(self, turn_id: str) -> ReplyTarget | None:
        """Return where the reply of a turn goes; None when it came from no chat."""
        with self._lock:
            target = self._targets.get(turn_id)
        if target is None and (target := reply_target.of_turn(self._store, turn_id)) is not None:
            with self._lock:
                self._targets[turn_id] = target
        return target

    @contextmanager
    def blocked(self, session_key: str) -> Generator[None]:
        """Begin no turn for a chat inside the block, also in the conversation that it moves to."""
        with self._lock:
            self._blocked[session_key] += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocked[session_key] -= 1
                self._blocked += Counter()  # drops those at zero
            self.engine.wake()

    # -- what a chat has --------------------------------------------------------------------------

    def conversation_of(self, session_key: str) -> str:
        """Return the conversation that a chat is in; empty when it has none yet."""
        entry = self._sessions.peek(session_key)
        return self._store.read(lineage.root, entry.session_id) if entry is not None else ""

    def running_for(self, session_key: str) -> list[Running]:
        """Return the running turns that a chat asked for, in its conversation or in the background."""
        return [
            running
            for running in self.engine.work
            if (target := self.target_of(running.turn.id)) is not None
            and target.session_key == session_key
        ]

    def running(self) -> list[Running]:
        """Return the turns that run now."""
        return list(self.engine.work)

    def open_turns(self, session_key: str) -> list[Row]:
        """Return the open turns that came from a chat, the first one first."""
        return self._store.read(lambda tx: turns.open_from_chat(tx, session_key))

    def queued(self, session_key: str) -> list[Row]:
        """Return what a chat has queued in its conversation."""
        here = self.conversation_of(session_key)
        return [row for row in self._queued(session_key) if row["conversation_id"] == here]

    def background(self, session_key: str) -> dict[str, list[Row]]:
        """Return the open turns of a chat's background jobs, by conversation."""
        here, jobs = self.conversation_of(session_key), dict[str, list[Row]]()
        for row in self.open_turns(session_key):
            if row["conversation_id"] != here:
                jobs.setdefault(row["conversation_id"], []).append(row)
        return jobs

    def _queued(self, session_key: str) -> list[Row]:
        running = {running.turn.id for running in self.engine.work}
        return [
            row
            for row in self.open_turns(session_key)
            if row["id"] not in running and row["state"] == TurnState.ACCEPTED
        ]

    def is_busy(self, session_key: str) -> bool:
        """Return whether something runs or is queued for a chat in its conversation.

        A turn that has its end, so that its reply may have been read, is waited for.
        """
        here = self.conversation_of(session_key)
        if not here:
            return False
        self.engine.wait_for_ended_turn(here)
        if self.engine.work.is_compacting(here):
            return True
        return any(row["conversation_id"] == here for row in self.open_turns(session_key))

    def is_for(self, running: Running, session_key: str) -> bool:
        """Return whether a turn runs for a chat."""
        target = self.target_of(running.turn.id)
        return target is not None and target.session_key == session_key

    def agent(self, session_id: str, target: ReplyTarget) -> Agent:
        """Return the agent of a conversation for the person of a message. Raises ModelError."""
        place = target.source
        permissions = self._access.permissions_of(place)
        platform = place.platform.value
        plan = TurnPlan(
            source=platform,
            workspace=self._workspace_of(session_id, place, permissions),
            is_workspace_fixed=True,
            permissions=permissions,
            model_name=self.model_of(target),
            manner=self._replies.manner(platform, permissions),
        )
        return self.engine.agent(session_id, plan)

    def has_question(self, running: Running) -> bool:
        """Return whether a running turn has an open question."""
        return running.turn.id in self._turns_with_questions

    def is_background(self, running: Running) -> bool:
        """Return whether a turn is a background job of its chat."""
        target = self.target_of(running.turn.id)
        if target is None:
            return False
        return self.conversation_of(target.session_key) != running.turn.conversation_id

    def running_agents(self) -> dict[str, Agent]:
        """Return the agents that work for chats, by session key."""
        agents: dict[str, Agent] = {}
        for running in self.engine.work:
            target = self.target_of(running.turn.id)
            if target is not None and running.agent is not None:
                agents[target.session_key or running.turn.session_id] = running.agent
        return agents

    def model_of(self, target: ReplyTarget) -> str:
        """Return the model that a chat or a request has chosen; empty: the one of the settings."""
        entry = self._sessions.peek(target.session_key)
        override = (entry.model_override or {}) if entry is not None else {}
        return target.model or str(override.get("model") or "")

    # -- the surface ------------------------------------------------------------------------------

    def adopts(self, turn: QueuedTurn) -> bool:
        """Adopt what a terminal left unfinished in a conversation that a chat or the API is in."""
        if self._store.read(routes.keys_of, turn.session_id):
            return True
        session = self._store.read(session_ledger.find, turn.session_id)
        return session is not None and session["session_key"] is not None

    def plan(self, running: Running) -> TurnPlan:
        """Say how a turn of a chat runs."""
        turn = running.turn
        target = self.target_of(turn.id)
        if target is None:
            raise StoreError(f"The message of turn {turn.id} is gone.")
        if target.session_key in self._blocked:
            raise NotReadyError
        place = target.source
        platform, permissions = place.platform.value, self._access.permissions_of(place)
        if target.is_in_place:  # its client comes back for what it missed
            self.engine.log(turn.conversation_id)
        return TurnPlan(
            source=platform,
            workspace=self._workspace_of(turn.session_id, place, permissions),
            is_workspace_fixed=True,
            permissions=permissions,
            model_name=self.model_of(target),
            can_ask=target.can_be_asked,
            deliver=partial(self._deliver, running, target),
            manner=self._replies.manner(platform, permissions),
            instructions=target.instructions,
            context=partial(_session_context, turn),
            is_stopped=turn.is_resumed and not self._resume(running),
        )

    def _workspace_of(
        self, session_id: str, source: SessionSource, permissions: Permissions
    ) -> Path:
        session = self._store.read(session_ledger.find, session_id)
        return self._workspaces.of(source, permissions.role, session["cwd"] if session else None)

    def _resume(self, running: Running) -> bool:
        """Note that a turn resumes; return False when its chat was leaving the conversation.

        It was being stopped when the process ended, as /new does.
        """
        turn = running.turn
        self._turns_with_questions.add(turn.id)
        session = self._store.read(session_ledger.find, turn.session_id)
        return session is None or session["end_reason"] not in OVER

    def _deliver(
        self, running: Running, target: ReplyTarget, turn_id: str, outcome: Outcome
    ) -> Sequence[OutboundPart]:
        is_cut_short = outcome.status == "interrupted" and not outcome.text.strip()
        if running.stop.is_interrupted and is_cut_short:
            # The chat that stopped it knows; the chat that it ran for must be told.
            is_own = running.stopped_by in ("", target.session_key)
            text = "" if is_own else _STOPPED_ELSEWHERE
            return self._replies.pieces(target, text, name=f"turn:{turn_id}")
        # A turn that was cut short does not wait for an answer.
        asks = outcome.status == "answered"
        allow = partial(self._allow_file, running, target, asks)
        return self._replies.deliver(turn_id, outcome, target, allow)

    def _allow_file(
        self, running: Running, target: ReplyTarget, asks: bool, path: str, is_own: bool
    ) -> bool:
        """Return whether a file may be sent to a chat, after asking if need be; raises Interrupted."""
        if running.agent is None or not asks:
            return is_own and not taint.of(self._store, running.turn.session_id).is_mixed
        source = target.source
        chat_id = f"{source.platform.value}:{source.chat_id}"
        args = {
            "path": path,
            "chat_id": chat_id,
            "chat_name": source.description,
            "is_own": is_own,
        }
        try:
            running.agent.admit(SEND_FILE, args, running.turn.id, running.stop)
        except ToolDeniedError as error:
            logger.info("File %s not sent in turn %s: %s", path, running.turn.id, error)
            return False
        return True

    def report(self, running: Running, event: Event) -> None:
        """Show what happens in a turn in its chat."""
        turn = running.turn
        target = self.target_of(turn.id)
        if target is None:
            return
        if isinstance(event, TurnStarted):
            self._on_change()
            self._streams.begin(turn.id, target, self._loop, is_resumed=event.is_resumed)
        elif isinstance(event, Compacted):
            self._on_moved(target.session_key, event.old_session_id, event.new_session_id)
        elif isinstance(event, QuestionAsked):
            self._ask(running, target, event)
        elif isinstance(event, QuestionAnswered | QuestionWithdrawn):
            self._replies.close_question(event.question_id)
            if isinstance(event, QuestionAnswered):
                self._buttons.check()
        elif isinstance(event, Notice):
            self._notify(turn, target, event)
        elif isinstance(event, TurnEnded):
            self._delivery.wake()
            self._notify_followers(turn.id)
        self._streams.report(turn.id, event)

    def _ask(self, running: Running, target: ReplyTarget, event: QuestionAsked) -> None:
        self._turns_with_questions.add(running.turn.id)
        is_background = self.is_background(running)
        self._delivery.enqueue(self._replies.question(target, event, is_beside=is_background))

    def _notify(self, turn: QueuedTurn, target: ReplyTarget, notice: Notice) -> None:
        """Show a notice in the chat, once per conversation; if that fails, the turn continues."""
        try:
            self._delivery.enqueue(self._replies.notice(target, turn.conversation_id, notice))
        except StoreError as error:
            fields = log_fields.of_turn(turn.id, turn.session_id, target)
            logger.warning("Could not store notice: %s", error, extra=fields)

    def turn_ended(self, running: Running, outcome: Outcome | None) -> None:
        """Follow up on a turn: its draft, its route, its buttons and the log."""
        turn = running.turn
        target = self.target_of(turn.id)
        if target is None:
            return
        is_suspended = outcome is not None and outcome.status == "suspended"
        if running.stop.is_interrupted:
            self._streams.stopped(turn.id, target.source.platform.value, self._loop)
        self._streams.end(turn.id, self._loop)
        if outcome is None:
            self._deliver_foreign_answer(turn.id, target)
        elif not is_suspended:
            self.answered_count += outcome.status == "answered"
            self.failed_count += outcome.status == "failed"
            seconds = round(time.monotonic() - running.began, 3)
            place = (turn.id, turn.session_id)
            log_fields.log_end(*place, target, outcome.status, outcome.reason, seconds=seconds)
            if running.agent is not None:
                session_id = running.agent.session_id
                self._on_moved(target.session_key, turn.session_id, session_id)
        self._sessions.used(target.session_key)
        if turn.id in self._turns_with_questions:
            self._buttons.check()
        self._forget(turn.id)
        self._delivery.wake()
        self._on_change()

    def turn_ended_elsewhere(self, turn_id: str) -> None:
        """Deliver the answer that a terminal gave."""
        if (target := self.target_of(turn_id)) is not None:
            self._deliver_foreign_answer(turn_id, target)
            self._delivery.wake()
        self._forget(turn_id)

    def _deliver_foreign_answer(self, turn_id: str, target: ReplyTarget) -> None:
        """Deliver the answer that another process gave, or say that the conversation was deleted."""
        row = self._store.read(turns.find, turn_id)
        if row is None:
            self.failed_count += 1
            log_fields.log_end(turn_id, "", target, "failed", _DELETED)
            parts = self._replies.pieces(target, f"⚠️ {_DELETED}", name=f"gone:{turn_id}")
            self._delivery.enqueue(parts)
        elif row["ended_at"] is not None:
            self._replies.store_foreign_answer(row)
            log_fields.log_end(
                turn_id, row["session_id"], target, row["state"], row["reason"] or ""
            )

    def _forget(self, turn_id: str) -> None:
        self._turns_with_questions.discard(turn_id)
        with self._lock:
            self._targets.pop(turn_id, None)
        self._notify_followers(turn_id)

    # -- waiting for the end of a turn ------------------------------------------------------------

    @contextmanager
    def on_end(self, turn_id: str, callback: Callable[[], object]) -> Generator[None]:
        """Call `callback` inside the block when a turn ended or was suspended, here or elsewhere."""
        with self._lock:
            self._followers.setdefault(turn_id, []).append(callback)
        try:
            yield
        finally:
            with self._lock:
                callbacks = self._followers[turn_id]
                callbacks.remove(callback)
                if not callbacks:
                    del self._followers[turn_id]

    def _notify_followers(self, turn_id: str) -> None:
        with self._lock:
            callbacks = list(self._followers.get(turn_id, ()))
        for callback in callbacks:
            callback()

    # -- new turns in a conversation at work --------------------------------------------------------

    def steer(self, accepted: Accepted, target: ReplyTarget, text: str) -> str:
        """Offer a queued turn to the turn that runs in its conversation, whichever chat that is for.

        Returns why it has to wait nevertheless, or that it is answered in another chat. A turn does what
        its own person may: other people get a turn of their own.
        """
        running = self.engine.work.get(accepted.conversation_id)
        agent = running.agent if running is not None else None
        if running is None or agent is None or running.turn.id == accepted.turn_id:
            return ""
        permissions = self._access.permissions_of(target.source)
        if agent.permissions is not None and not are_alike(agent.permissions, permissions):
            return _OTHER_RIGHTS
        if not text:
            return _NOT_TEXT
        self.engine.steer(accepted.turn_id, accepted.conversation_id, text)
        return "" if self.is_for(running, target.session_key) else _ANSWERED_ELSEWHERE

    def queue_notice(self, accepted: Accepted, target: ReplyTarget) -> str:
        """Return why a queued turn waits, when that does not show in its chat; once per queue."""
        running = self.engine.work.get(accepted.conversation_id)
        if running is None or self.is_for(running, target.session_key):
            return ""
        queued = self.queued(target.session_key)
        return _WAITS_FOR_ANOTHER if [row["id"] for row in queued] == [accepted.turn_id] else ""

    def interrupt_for(self, accepted: Accepted, target: ReplyTarget) -> None:
        """Stop the running turn for a queued one; a compaction is finished, as both need it."""
        running = self.engine.work.get(accepted.conversation_id)
        if running is not None and running.turn.id != accepted.turn_id:
            self.engine.interrupt(accepted.conversation_id, target.session_key)


@contextmanager
def _session_context(turn: QueuedTurn) -> Generator[None]:
    """Set the session id that plugins can read while a turn runs."""
    session_context.set_current_session_id(turn.session_id)
    try:
        yield
    finally:
        session_context.set_current_session_id("")
