"""Answers to what the agent asks: which questions wait in conversations, and who may answer them how.

A question is answered where its conversation is, or at the machine. An owner may allow anything; a
member may allow a call in a conversation that is theirs alone, and not for all times; a guest may allow
nothing. Whoever may speak in a conversation may say no; who may answer what the agent wants to know, the
surface decides, which knows for whom the turn works.
"""

import time
from collections.abc import Collection

from hermes_agent.permissions import Permissions, is_owner
from hermes_core.errors import IllegalTransitionError, UsageError
from hermes_state.ledger import questions, sessions
from hermes_state.ledger.scope import DELEGATE
from hermes_state.store import Store
from hermes_state.values import Kind, Row

_LOOK_AGAIN_S = 0.05
_DELIVERY_LOOKS = 40
"""A chat shows a part a moment before it is recorded as sent."""
_YES = ("once", "session", "always")


def waiting(
    store: Store, conversations: Collection[str] | None, kind: Kind | None = None
) -> list[Row]:
    """Return the open questions of conversations, or all, the oldest first; sub-agents' included."""
    return [
        question
        for question in store.read(questions.pending)
        if kind in (None, question["kind"])
        and (
            conversations is None
            or _origin(store, question["session_id"])["conversation_id"] in conversations
        )
    ]


def answer(
    store: Store,
    question_id: str,
    text: str,
    *,
    conversations: Collection[str] | None = None,
    permissions: Permissions | None = None,
    by: str = "",
) -> Row:
    """Answer an open question of these conversations, or of any, and return it.

    Approvals take once, session, always or deny, with a remark after a colon. `permissions` are those of
    the person who answers; `by` names them where there are none. Raises UsageError when the question is
    not open, belongs to another conversation, or this person may not answer it like this.
    """
    found = [row for row in waiting(store, conversations) if row["id"] == question_id]
    if not found:
        raise UsageError("There is no open question with that id here.")
    question = found[0]
    if question["kind"] == "approval":
        _check(store, question, text, permissions)
    try:
        who = permissions.person if permissions else by
        store.write(questions.answer, question_id, text, by=who)
    except IllegalTransitionError:
        raise UsageError("This question has already been answered.") from None
    return question


def check_delivered(store: Store, question_id: str) -> None:
    """Raise UsageError unless all of a question has arrived in its chat; waits a moment for that."""
    for _ in range(_DELIVERY_LOOKS):
        if store.read(questions.is_delivered, question_id):
            return
        time.sleep(_LOOK_AGAIN_S)
    raise UsageError(
        "A part of this question has not been delivered yet.", fix="Read all of it, then answer."
    )


def _check(store: Store, question: Row, text: str, permissions: Permissions | None) -> None:
    if permissions is None or is_owner(permissions) or _choice(text) not in _YES:
        return
    session = _origin(store, question["session_id"])
    is_theirs = (session["source"], session["user_id"]) == (
        permissions.scope.source,
        permissions.scope.user_id,
    )
    if permissions.role == "guest" or permissions.scope.user_id is None or not is_theirs:
        raise UsageError("Only an owner may allow this.", fix="Use /deny to refuse it.")
    if _choice(text) == "always":
        raise UsageError(
            "Only an owner may always allow a command.",
            fix="Use /approve or /approve session.",
        )


def _choice(text: str) -> str:
    """Return what an answer comes to: a remark may follow it, as the gate reads it."""
    return text.partition(":")[0]


def _origin(store: Store, session_id: str) -> Row:
    """The session that a person sees of one that asks: a sub-agent's is its parent's."""
    session = store.read(sessions.find, session_id)
    while session is not None and session["source"] == DELEGATE:
        above = session["parent_session_id"]
        session = store.read(sessions.find, above) if above else None
    return session or {"conversation_id": session_id, "source": "", "user_id": None}
