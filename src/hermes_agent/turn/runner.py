"""The runner of a conversation's turns: one at a time, in order, stopped and steered from other threads.

It holds the lease of the conversation while a turn runs, and completes the earlier turns that a process
left open first.
"""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from hermes_agent import lease
from hermes_agent.turn.attempt import Attempt, recorded_outcome
from hermes_agent.turn.context import TurnContext
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
from hermes_agent.turn.values import Outcome, Steer
from hermes_core.errors import (
    ConversationBusyError,
    EarlierTurnError,
    IllegalTransitionError,
    TurnMovedError,
)
from hermes_state.ledger import inbox, turns
from hermes_state.store import Store


class ConversationRunner:
    """Runs the turns of one conversation in this process."""

    def __init__(
        self,
        store: Store,
        conversation_id: str,
        follow: Callable[[str], None],
        on_answered: Callable[[str, str], None],
        *,
        is_restricted: bool,
    ) -> None:
        """`follow` gets the session of the conversation, which compaction changes.

        `on_answered` gets the session and the id of a turn that was answered. A restricted runner
        completes no messages of others: they may have other permissions.
        """
        self._store = store
        self._conversation_id = conversation_id
        self._follow = follow
        self._on_answered = on_answered
        self._is_restricted = is_restricted
        self._lock = threading.Lock()
        self._stop = Stop()
        self._steers: list[Steer] = []
        self._unstored = ""
        """The turn whose last attempt a store that was locked or full could not take."""
        self._is_idle = threading.Event()
        self._is_idle.set()

    # -- from other threads ---------------------------------------------------------------------

    @property
    def is_interrupted(self) -> bool:
        """Return whether the running turn was told to stop."""
        return self._stop.is_set

    def interrupt(self) -> None:
        """Stop the running turn, and everything it started."""
        self._stop.set()

    def clear_interrupt(self) -> None:
        """Forget an interrupt and the messages to the turn that was interrupted."""
        with self._lock:
            self._steers.clear()
            if self._stop.is_set:
                self._stop = Stop()

    def steer(self, steer: Steer) -> None:
        """Send a message to the running turn; the model gets it after its next tool call."""
        with self._lock:
            self._steers.append(steer)

    def take_steers(self) -> list[Steer]:
        """Remove and return the messages to the running turn."""
        with self._lock:
            steers, self._steers = self._steers, []
        return steers

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait for the running turn to reach its end; return whether it did."""
        return self._is_idle.wait(seconds)

    # -- a turn ---------------------------------------------------------------------------------

    @contextmanager
    def stoppable(self, stop: Stop | None) -> Generator[Stop]:
        """Yield the stop of one attempt, which also `interrupt` and the loss of the lease set.

        The caller's stays as it is then: the turn may be tried again.
        """
        with (stop or Stop()).linked() as own:
            with self._lock:
                self._stop = own
            yield own

    def run(
        self, turn_id: str, context: TurnContext, stop: Stop | None, report: Sink, notify: Sink
    ) -> Outcome:
        """Run an accepted turn to its end, and before it the open turns that come first.

        `report` gets the events of the turn, `notify` those of earlier ones that a person must see.
        Raises ConversationBusyError.
        """
        completed: dict[str, Outcome] = {}
        while True:
            try:
                return self._run_next(turn_id, context, stop, report)
            except EarlierTurnError as blocked:
                earlier = blocked.turn_id
                if earlier in completed:  # it is still open: suspended, or a full disk
                    return completed[earlier]
                self._check_may_complete(earlier)
                notify(
                    Notice(
                        "An earlier message of this conversation has no answer yet; it comes first."
                    )
                )
                completed[earlier] = self._run_next(earlier, context, stop, _without_reply(notify))

    def _check_may_complete(self, turn_id: str) -> None:
        if self._is_restricted and self._store.read(inbox.of_turn, turn_id) is not None:
            raise ConversationBusyError(
                f"An earlier message of the conversation {self._conversation_id} comes first.",
                fix="Wait for its answer.",
            )

    def _run_next(
        self, turn_id: str, context: TurnContext, stop: Stop | None, report: Sink
    ) -> Outcome:
        self._is_idle.clear()
        try:
            with self.stoppable(stop) as own:
                attempt, outcome = self._run_held(turn_id, context, own, report)
            if outcome.status != "suspended":
                _invoke_end_hook(context, attempt.session_id, turn_id, outcome)
            if outcome.status == "answered":
                self._on_answered(attempt.session_id, turn_id)
        except IllegalTransitionError:  # it has ended before, or by others just now
            return recorded_outcome(self._store, turn_id)
        except TurnMovedError as error:
            return Outcome("interrupted", "", str(error), is_recorded=True)
        finally:
            self._is_idle.set()
        return outcome

    def _run_held(
        self, turn_id: str, context: TurnContext, stop: Stop, report: Sink
    ) -> tuple[Attempt, Outcome]:
        is_same = turn_id == self._unstored
        with lease.running(
            self._store, self._conversation_id, turn_id, stop.set, is_same=is_same
        ) as claimed:
            attempt = Attempt(context, claimed, self._conversation_id, stop, report)
            self._follow(attempt.session_id)
            try:
                outcome = attempt.run()
            finally:
                self._follow(attempt.session_id)
            if attempt.is_unstored:
                self._unstored = turn_id
            if outcome.status == "suspended":
                self._store.write(turns.suspend, turn_id, claimed.lease)
            return attempt, outcome


def _invoke_end_hook(context: TurnContext, session_id: str, turn_id: str, outcome: Outcome) -> None:
    context.hooks.invoke_hook(
        "on_turn_end",
        session_id=session_id,
        turn_id=turn_id,
        status=outcome.status,
        response=outcome.text,
        error=outcome.reason if outcome.status == "failed" else "",
        model=context.model.facts.name,
        platform=context.platform,
    )


def _without_reply(sink: Sink) -> Sink:
    """Return a sink that passes on only what needs a person or moves the conversation."""

    def report(event: Event) -> None:
        kinds = Notice | Compacted | QuestionAsked | QuestionAnswered | QuestionWithdrawn
        if isinstance(event, kinds):
            sink(event)

    return report
