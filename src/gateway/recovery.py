"""Recovery of what the engine does not recover: interrupted commands, and answers of other processes."""

import logging
from collections.abc import Callable, Collection

import msgspec

from gateway import reply_target
from gateway.chat_turns import SURFACE
from gateway.command_runner import reply_name
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
    "⚠️ The process ended while {command} was running. Look at /status, and send it again if it did"
    " not happen."
)
_MAX_ANSWER_AGE_S = 7 * 86_400.0
"""How long after its end an answer of another process is still sent to its chat."""


class Recovery:
    """Finds what other processes left, at the start and from time to time."""

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
        """Send what other processes answered, and report commands that a crash cut off."""
        self.send_foreign_answers()
        commands = self._store.read(inbox.unsettled)
        for row in commands:
            self._report_cut_off(row)
        open_turns = self._store.read(lambda tx: turns.count_open(tx, SURFACE))
        logger.info("recovered", extra={"turns": open_turns, "commands": len(commands)})

    def send_foreign_answers(self) -> None:
        """Send answers that a terminal gave while no gateway ran.

        A repair of the store may have lost the notes of what was sent, so nothing older is.
        """
        repaired_at = float(self._store.read(meta.get, REPAIRED_AT) or 0)
        since = max(clock.now() - _MAX_ANSWER_AGE_S, repaired_at)
        for row in self._store.read(turns.unsent, since, self._platforms()):
            self._replies.store_foreign_answer(row)

    def _report_cut_off(self, row: Row) -> None:
        message = InboundMessage(row["platform"], row["chat_id"], row["message_id"], row["payload"])
        try:
            target = reply_target.decode(row["payload"])
            command = target.text.split(maxsplit=1)[:1]
            text = _CUT_OFF.format(command=command[0] if command else "your last message")
            session_id = self._session_of(target)
            parts = self._replies.answer(
                target, text, name=reply_name(message), session_id=session_id
            )
            self._store.write(outbox.add, parts)
        except (msgspec.DecodeError, KeyError, ValueError):
            logger.warning("Message %s of %s cannot be read", row["message_id"], row["platform"])
        self._store.write(inbox.settle, message, "command")

    def _session_of(self, target: ReplyTarget) -> str:
        """Return the session that a command was about; empty when there is none yet."""
        entry = self._sessions.peek(target.session_key)
        session_id = entry.session_id if entry is not None else target.source.session_id
        exists = bool(session_id) and self._store.read(session_ledger.find, session_id) is not None
        return session_id if exists else ""
