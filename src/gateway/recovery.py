"""Recovery: what an earlier process accepted and did not end, and what others ended for the gateway."""

import logging
from collections.abc import Callable, Collection

import msgspec

from gateway import jobs, origin
from gateway.lanes import Lanes, Waiting
from gateway.origin import Origin
from gateway.replies import Replies
from gateway.session import OVER, SessionStore
from gateway.source import SessionSource
from gateway.turns import STOPPED
from hermes_agent import lease, recovery
from hermes_agent.turn import Outcome
from hermes_core import clock
from hermes_state.inbox import Delivery
from hermes_state.mending import REPAIRED_AT
from hermes_state.protocol import Store
from hermes_state.records import Row

logger = logging.getLogger(__name__)

_CUT_OFF = (
    "⚠️ The process ended while {command} was being done. Look at /status, and send it again if it did"
    " not happen."
)
_STILL_WANTED_S = 7 * 86_400.0
"""How long after its end an answer that was given elsewhere is still brought to its chat."""


class Recovery:
    """Looks for what is left, at the start and now and then."""

    def __init__(
        self,
        store: Store,
        sessions: SessionStore,
        lanes: Lanes,
        replies: Replies,
        platforms: Callable[[], Collection[str]],
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._lanes = lanes
        self._replies = replies
        self._platforms = platforms

    def at_start(self) -> None:
        """Queue the turns that were accepted and not answered; tell of commands that were cut off."""
        lease.expire_dead_leases(self._store)
        turns = self.take_up()
        cut_off = self._store.inbox.unsettled()
        for row in cut_off:
            self._tell_cut_off(row)
        logger.info("recovered", extra={"turns": turns, "commands": len(cut_off)})

    def take_up(self) -> int:
        """Send what others ended, then queue the turns that wait in no lane.

        What a terminal runs, or what waits behind it, waits here too: who asked hears when it has ended.
        Returns how many turns these are.
        """
        self._send_what_others_ended()  # before what came after it is answered
        turns, held = self._store.turns, self._lanes.held
        free = {row["id"] for row in turns.unfinished()}
        due = [row for row in turns.still_open() if row["id"] not in held]
        queued = sum(self._take_up(row, is_free=row["id"] in free) for row in due)
        return queued + self.take_up_abandoned()

    def take_up_abandoned(self) -> int:
        """Queue the turns whose process has ended or hangs; returns how many."""
        held = self._lanes.held
        due = [row for row in recovery.abandoned(self._store) if row["id"] not in held]
        return sum(self._take_up(row, is_free=True, is_abandoned=True) for row in due)

    def _take_up(self, row: Row, *, is_free: bool, is_abandoned: bool = False) -> bool:
        session = self._store.get_session(row["session_id"])
        if session is None:
            return False
        came_from = origin.of_turn(self._store, row["id"])
        if came_from is None and is_abandoned:
            came_from = self._silent_origin(session)
        if came_from is None:
            return False  # a terminal's, which goes on when it is opened there
        if row["state"] == "running" and is_free and session["end_reason"] in OVER:
            self._stop(row)
            return False
        key = came_from.session_key or row["session_id"]
        entry = self._sessions.peek(key)
        model = came_from.model
        if entry is not None:
            model = model or (entry.model_override or {}).get("model", "")
        if entry is not None and entry.session_id == row["session_id"]:
            self._sessions.clear_resume_pending(key)
        waiting = Waiting(
            row["id"],
            row["session_id"],
            session["conversation_id"],
            came_from,
            row["user_message_id"],
            model_name=model,
        )
        waiting.makes_session = self._store.turns.opens(row["id"])
        waiting.has_asked = row["state"] == "running"  # it may have
        self._lanes.put(jobs.lane_of(session, key, entry), waiting)
        return True

    def _silent_origin(self, session: Row) -> Origin | None:
        """Return a chat that is in a conversation as the origin of a turn that came from no chat.

        The chat gives the turn its limits; the reply is only stored, and nobody is asked.
        """
        for key in sorted(self._store.routes.keys_of(session["id"])):
            entry = self._sessions.peek(key)
            if entry is not None and entry.origin is not None:
                source = entry.origin.to_dict()
                return Origin(source, key, can_be_asked=False, is_in_place=True)
        if session["session_key"] is None or not session["chat_id"]:
            return None
        source = {
            **session,
            "platform": session["source"],
            "chat_type": session["chat_type"] or "dm",
        }
        place = SessionSource.from_dict(source).to_dict()
        return Origin(place, session["session_key"], can_be_asked=False, is_in_place=True)

    def _stop(self, row: Row) -> None:
        """End a turn that was being stopped because its chat left the conversation, as with /new. What
        was shown of it already says so.
        """
        shown = [
            one["content"]
            for one in self._store.partials.of_session(row["session_id"])
            if one["answers"] == row["user_message_id"]
        ]
        outcome = Outcome("interrupted", shown[0].strip() if shown else "", STOPPED)
        pieces = self._replies.deliver(row["id"], outcome) if outcome.text else ()
        self._store.turns.finish(row["id"], "interrupted", reason=STOPPED, pieces=pieces)

    def _send_what_others_ended(self) -> None:
        """Bring answers to their chats that a terminal gave while no gateway was there to do so.

        Of what ended before a repair it is not known which was sent: the notes of it may be lost.
        """
        repaired_at = float(self._store.get_meta(REPAIRED_AT) or 0)
        since = max(clock.now() - _STILL_WANTED_S, repaired_at)
        for row in self._store.turns.unsent(since, self._platforms()):
            self._replies.bring(row)

    def _tell_cut_off(self, row: Row) -> None:
        delivery = Delivery(row["platform"], row["chat_id"], row["message_id"], row["payload"])
        try:
            came_from = origin.decode(row["payload"])
            command = came_from.text.split(maxsplit=1)[:1]
            text = _CUT_OFF.format(command=command[0] if command else "what you sent last")
            told = self._replies.answer(
                came_from, text, name=name_of(delivery), session_id=self._session_of(came_from)
            )
            self._store.outbox.put(told)
        except (msgspec.DecodeError, KeyError, ValueError):
            logger.warning("a delivery of %s cannot be read", row["platform"])
        self._store.inbox.settle(delivery, "command")

    def _session_of(self, came_from: Origin) -> str:
        """The session that a command was about; empty when there is none yet."""
        place, entry = came_from.place, self._sessions.peek(came_from.session_key)
        session_id = entry.session_id if entry is not None else place.session_id
        return session_id if session_id and self._store.get_session(session_id) else ""


def name_of(delivery: Delivery) -> str:
    """The name of what is said to a command."""
    return f"command:{':'.join(delivery.key)}"
