"""Succession: a chat leaves a conversation for another one, and what waits there unanswered goes along.

All of it is one change. Whoever looks, before or after a crash, finds a message that was accepted in the
conversation that its chat is in, and nothing that would still begin in one that is over.
"""

from collections.abc import Sequence

from hermes_state.ledger import routes, sessions, turns
from hermes_state.store import Tx
from hermes_state.values import NewSession, Route, Row

PASSED_ON = "its chat was passed on to somebody else"


def succeed(
    tx: Tx,
    route: Route,
    session_id: str,
    *,
    former: str,
    reason: str,
    opening: NewSession,
    is_passed_on: bool = False,
) -> dict[str, int]:
    """Have a chat go on in another session; returns the turns that went along, each with its message
    there.

    The former conversation ends for this reason, unless other chats are in it. The session is made when
    something goes along and it is not there yet; else its first message makes it. Of a chat that is
    passed on to somebody else nothing goes along: what waits there is for nobody any more.
    """
    if not routes.keys_of(tx, former, route.scope) - {route.session_key}:
        sessions.end_for_reset(tx, former, reason)
    waiting = _waiting(tx, former, route.session_key)
    if is_passed_on:
        for turn in waiting:
            turns.withdraw(tx, turn["id"], PASSED_ON)
        waiting = list[Row]()
    if waiting and sessions.find(tx, session_id) is None:
        turns.begin(tx, session_id, opening)
    moved = {turn["id"]: turns.say_again(tx, turn, session_id) for turn in waiting}
    routes.save(tx, route, session_id)
    return moved


def _waiting(tx: Tx, session_id: str, session_key: str) -> Sequence[Row]:
    """The turns of a conversation that came from a chat and have not begun, in their order."""
    return tx.rows(
        "SELECT turns.* FROM turns JOIN inbox ON inbox.turn_id = turns.id"
        " WHERE turns.state = 'accepted' AND inbox.session_key = ?"
        " AND turns.session_id IN (SELECT id FROM sessions WHERE conversation_id ="
        " (SELECT conversation_id FROM sessions WHERE id = ?))"
        " ORDER BY turns.user_message_id",
        session_key,
        session_id,
    )
