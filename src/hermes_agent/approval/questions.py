"""Asking a person: the question is stored, shown by whatever surface listens, and waited for.

The answer is read from the store, because it may come from another process or have come before a
restart.
"""

from hermes_agent.approval import display
from hermes_agent.turn.events import QuestionAnswered, QuestionAsked, QuestionWithdrawn, Sink
from hermes_agent.turn.stop import Stop
from hermes_core import clock
from hermes_core.errors import Interrupted, ToolDeniedError, ToolError
from hermes_state.ledger import questions
from hermes_state.store import Store
from hermes_state.transitions import QuestionState
from hermes_state.values import Question, Row

_LOOK_AGAIN_S = 0.1


def _nobody_here(question: Question) -> ToolError:
    if question.kind == "clarify":
        return ToolError(
            "No one can answer questions here.", fix="Go on with your best guess, and say so."
        )
    reasons, _ = display.lasting_of(question.text)
    return ToolDeniedError(f"No one can allow this here: {reasons}")


class Asker:
    """Puts questions for one conversation and waits for their answers."""

    def __init__(self, store: Store, *, can_ask: bool, timeout_s: float) -> None:
        self._store = store
        self.can_ask = can_ask
        """Whether there is a person who could answer."""
        self._timeout_s = timeout_s

    def put(self, question: Question) -> Row:
        """Store a question, or find the one this call asked before a restart."""
        row = self._store.write(questions.ask, question)
        if row["state"] == QuestionState.PENDING and not self.can_ask:
            self._store.write(questions.cancel, row["id"])
            raise _nobody_here(question)
        return row

    def wait(self, row: Row, stop: Stop, report: Sink) -> tuple[str | None, str]:
        """The answer and who gave it; None when there is none in time."""
        if row["state"] == QuestionState.PENDING:
            report(
                QuestionAsked(
                    question_id=row["id"],
                    kind=row["kind"],
                    tool_name=row["tool_name"],
                    text=row["text"],
                    detail=row["detail"],
                    choices=row["choices"],
                )
            )
            row = self._settled(row, stop, report)
            report(QuestionAnswered(row["id"], row["answer"] or ""))
        return row["answer"], row["answered_by"] or ""

    def _settled(self, row: Row, stop: Stop, report: Sink) -> Row:
        try:
            while True:
                row = self._store.read(questions.fetch, row["id"])
                if row["state"] != QuestionState.PENDING:
                    return row
                if clock.now() > row["asked_at"] + self._timeout_s:
                    self._store.write(questions.cancel, row["id"])
                else:
                    stop.wait(_LOOK_AGAIN_S)
        except Interrupted:
            if not stop.is_suspended:  # else it is asked again, and may have been answered by then
                self._store.write(questions.cancel, row["id"])
                report(QuestionWithdrawn(row["id"]))
            raise
