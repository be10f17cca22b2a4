"""Recovery of what is not a turn: commands that a crash cut off, and answers that others gave."""

import logging
from collections.abc import Callable, Collection

import msgspec

from gateway import reply_target
from gateway.chat_turns import SURFACE
from gateway.replies import Replies
from gateway.reply_target import ReplyTarget
from gateway.session import SessionStore
from hermes_core import clock
from hermes_state.engines.sqlite.row_repair import REPAIRED_AT
from hermes_state.ledger import inbox, meta, outbox, turns
from hermes_state.ledger import sessions as session_ledger
from hermes_state.store import Store
from hermes_state.values import InboundMessage, Row

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
        replies: Replies,
        platforms: Callable[[], Collection[str]],
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._replies = replies
        self._platforms = platforms

    def at_start(self) -> None:
        """Send what others ended, before what came after it is answered; tell of commands cut off."""
        self.send_what_others_ended()
        cut_off = self._store.read(inbox.unsettled)
        for row in cut_off:
            self._tell_cut_off(row)
        open_turns = self._store.read(lambda tx: turns.count_open(tx, SURFACE))
        logger.info("recovered", extra={"turns": open_turns, "commands": len(cut_off)})

    def send_what_others_ended(self) -> None:
        """Bring answers to their chats that a terminal gave while no gateway was there to do so.

        Of what ended before a repair it is not known which was sent: the notes of it may be lost.
        """
        repaired_at = float(self._store.read(meta.get, REPAIRED_AT) or 0)
        since = max(clock.now() - _STILL_WANTED_S, repaired_at)
        for row in self._store.read(turns.unsent, since, self._platforms()):
            self._replies.bring(row)

    def _tell_cut_off(self, row: Row) -> None:
        delivery = InboundMessage(
            row["platform"], row["chat_id"], row["message_id"], row["payload"]
        )
        try:
            target = reply_target.decode(row["payload"])
            command = target.text.split(maxsplit=1)[:1]
            text = _CUT_OFF.format(command=command[0] if command else "what you sent last")
            told = self._replies.answer(
                target, text, name=name_of(delivery), session_id=self._session_of(target)
            )
            self._store.write(outbox.put, told)
        except (msgspec.DecodeError, KeyError, ValueError):
            logger.warning("a delivery of %s cannot be read", row["platform"])
        self._store.write(inbox.settle, delivery, "command")

    def _session_of(self, target: ReplyTarget) -> str:
        """The session that a command was about; empty when there is none yet."""
        place, entry = target.source, self._sessions.peek(target.session_key)
        session_id = entry.session_id if entry is not None else place.session_id
        return (
            session_id if session_id and self._store.read(session_ledger.find, session_id) else ""
        )


def name_of(delivery: InboundMessage) -> str:
    """The name of what is said to a command."""
    return f"command:{':'.join(delivery.key)}"
