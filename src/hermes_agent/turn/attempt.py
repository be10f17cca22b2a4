"""One attempt at a turn, made by the holder of its lease: run its loop, and end it whatever happens."""

import logging

from hermes_agent import prompt
from hermes_agent.approval import taint
from hermes_agent.turn import meter
from hermes_agent.turn.context import TurnContext
from hermes_agent.turn.events import Notice, Sink, TurnEnded
from hermes_agent.turn.loop import Loop, open_calls, report_unseen
from hermes_agent.turn.meter import Meter
from hermes_agent.turn.stop import Stop
from hermes_agent.turn.values import Outcome, Turn
from hermes_core.errors import (
    LeaseLostError,
    StoreError,
    failure_text,
)
from hermes_state.ledger import messages, turns
from hermes_state.ledger.turns import MAX_ATTEMPTS
from hermes_state.store import Store
from hermes_state.values import ClaimedTurn

logger = logging.getLogger(__name__)


class Attempt:
    """One attempt at a claimed turn."""

    def __init__(
        self,
        context: TurnContext,
        claimed: ClaimedTurn,
        conversation_id: str,
        stop: Stop,
        report: Sink,
    ) -> None:
        row = claimed.row
        self._context = context
        self._claimed = claimed
        self._turn = Turn(
            id=row["id"],
            conversation_id=conversation_id,
            session_id=row["session_id"],
            user_message_id=row["user_message_id"],
            lease=claimed.lease,
            stop=stop,
            report=report,
            is_resumed=claimed.is_resumed,
            attempts_lost=claimed.attempt - 1,
        )
        self.is_unstored = False
        """Whether the store was locked or full, so that the turn may be tried again."""

    @property
    def session_id(self) -> str:
        """Return the session of the conversation, which compaction changes during the turn."""
        return self._turn.session_id

    def run(self) -> Outcome:
        """Run the turn. Raises LeaseLostError; any other fault ends the turn with a notice."""
        try:
            return self._run()
        finally:
            self._context.end_checkpoint(self._turn)

    def _run(self) -> Outcome:
        try:
            if self._claimed.attempt > MAX_ATTEMPTS:
                return self._give_up()
            return self._run_loop()
        except LeaseLostError:
            raise
        except StoreError as error:  # the turn stays open on disk and is recovered later
            self.is_unstored = error.is_temporary
            return Outcome("failed", "", str(error), error.code)
        except Exception as error:
            logger.exception("turn %s failed", self._turn.id)
            return self._fail(Outcome("failed", "", failure_text(error), "internal"))

    def _run_loop(self) -> Outcome:
        self._invoke_start_hook()
        self._warn_about_prices()
        context, turn = self._context, self._turn
        account = Meter(
            context.store,
            turn.id,
            context.limits,
            context.paid_by,
            is_resumed=turn.is_resumed,
            attempts_lost=turn.attempts_lost,
        )
        prefix = context.prefix(turn.session_id)
        if prompt.has_notes_in(prefix.system):
            taint.note_once(context.store, turn.session_id, taint.NOTES, turn.id)
        return Loop(context, turn, account, prefix).run()

    def _give_up(self) -> Outcome:
        reason = (
            f"This message was tried {MAX_ATTEMPTS} times and the process ended each time."
            " It was given up; send it again to try once more."
        )
        return self._fail(Outcome("failed", "", reason, "attempts"))

    def _fail(self, outcome: Outcome) -> Outcome:
        """End the turn as failed when the loop could not end it."""
        context, turn = self._context, self._turn
        calls = open_calls(context.store, turn.id)
        context.store.write(
            turns.finish,
            turn.id,
            "failed",
            reason=outcome.reason,
            parts=context.deliver(turn.id, outcome),
            settled=[call.settled for call in calls],
            lease=turn.lease,
        )
        for call in calls:
            report_unseen(context.hooks, turn.session_id, call.effect, call.text)
        turn.report(TurnEnded("failed", "", outcome.reason))
        return outcome

    def _invoke_start_hook(self) -> None:
        context, turn = self._context, self._turn
        if not context.hooks.has_hook("on_turn_start"):
            return  # saves reading the message
        context.hooks.invoke_hook(
            "on_turn_start",
            session_id=turn.session_id,
            turn_id=turn.id,
            user_message=context.store.read(turns.user_text, turn.id),
            model=context.model.facts.name,
            platform=context.platform,
        )

    def _warn_about_prices(self) -> None:
        facts = self._context.model.facts
        is_limited = any(limit.unit == "usd" for limit in self._context.limits.all)
        if is_limited and meter.is_unpriced(facts):
            self._turn.report(
                Notice(
                    f"{facts.name} has no known price, so limits on money cannot be enforced for it."
                )
            )


def recorded_outcome(store: Store, turn_id: str) -> Outcome:
    """Return the outcome of a turn that has ended, from what is on disk."""
    row = store.read(turns.find, turn_id)
    assert row is not None, "a turn that has ended is stored"
    if row["final_message_id"] is None:
        return Outcome(row["state"], "", row["reason"] or "", is_recorded=True)
    around = store.read(messages.around, row["session_id"], row["final_message_id"], 0)
    message = around["window"][0]
    return Outcome(
        row["state"],
        str(message["content"] or ""),
        row["reason"] or "",
        reasoning=message.get("reasoning") or "",
        is_recorded=True,
    )
