"""Answer questions of a turn: approvals and clarifications."""

from typing import Annotated, TypedDict

from hermes_core.errors import StoreError, UsageError
from hermes_protocol.errors import BUSY
from hermes_state.ledger import questions
from hermes_state.values import Row
from tui_gateway import view
from tui_gateway.params import OpenId, Params, says
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import SOURCE, Runtime

_YES = ("once", "session", "always")


class Approve(Params, frozen=True):
    """An answer to an approval."""

    session_id: OpenId
    choice: Annotated[
        str, says("once, session, always or deny; any other text denies and is sent to the model.")
    ] = "deny"
    all: Annotated[bool, says("Answer all open approvals, not only the oldest.")] = False
    request_id: Annotated[str, says("The question; the default is the oldest.")] = ""


class Resolved(TypedDict):
    """The number of answered questions."""

    resolved: int


def approve(rt: Runtime, params: Approve) -> Resolved:
    """Allow or deny a call that waits for approval."""
    session = rt.session(params.session_id)
    waiting = [row for row in view.questions_of(rt, session) if row["kind"] == "approval"]
    if params.request_id:
        waiting = [row for row in waiting if row["id"] == params.request_id]
    chosen = waiting if params.all else waiting[:1]
    answer = params.choice if params.choice in (*_YES, "deny") else f"deny: {params.choice}"
    return {"resolved": sum(_answered(rt, row, answer) for row in chosen)}


def _answered(rt: Runtime, row: Row, answer: str) -> bool:
    try:
        rt.engine().answer(row["id"], answer, by=SOURCE)
    except UsageError:  # somebody was faster, on this surface or another
        return False
    return True


class Clarify(Params, frozen=True):
    """The answer to a question of the model."""

    request_id: Annotated[str, says("Which question.")]
    answer: Annotated[str, says("The answer.")] = ""


class Settled(TypedDict):
    """ok, or expired if it was settled before."""

    status: str


def clarify(rt: Runtime, params: Clarify) -> Settled:
    """Answer a question of the model."""
    try:
        row = rt.db().read(questions.fetch, params.request_id)
    except StoreError as error:
        raise RpcError(BUSY, "There is no such question.") from error
    return {"status": "ok" if _answered(rt, row, params.answer) else "expired"}
