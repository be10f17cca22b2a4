"""Move a chat to another conversation, together with its queued turns, in one transaction.

Before and after a crash, an accepted message is in the conversation of its chat, and no queued turn is
in a conversation that has ended.
"""

from collections.abc import Sequence

from hermes_state.ledger import routes, sessions, turns
from hermes_state.store import Tx
from hermes_state.values import NewSession, Route, Row

NEW_OWNER = "its chat was passed on to somebody else"


def move_chat(
    tx: Tx,
    route: Route,
    session_id: str,
    *,
    former: str,
    reason: str,
    new_session: NewSession,
    has_new_owner: bool = False,
) -> dict[str, int]:
    """Move a chat to another session; return the new message ids of the moved turns.

    The former conversation ends for `reason`, unless other chats are in it. The session is created if
    there are turns to move; otherwise its first message creates it. With `has_new_owner`, the queued
    turns are cancelled, since the person who sent them has left.
    """
    if not routes.keys_of(tx, former, route.scope) - {route.session_key}:
        sessions.end_for_reset(tx, former, reason)
    queued = _queued(tx, former, route.session_key)
    if has_new_owner:
        for turn in queued:
            turns.cancel(tx, turn["id"], NEW_OWNER)
        queued = list[Row]()
    if queued and sessions.find(tx, session_id) is None:
        turns.create_session(tx, session_id, new_session)
    moved = {turn["id"]: turns.requeue(tx, turn, session_id) for turn in queued}
    routes.save(tx, route, session_id)
    return moved


def _queued(tx: Tx, session_id: str, session_key: str) -> Sequence[Row]:
    """Return the queued turns of a conversation that came from a chat, in order."""
    return tx.rows(
        "SELECT turns.* FROM turns JOIN inbox ON inbox.turn_id = turns.id"
        " WHERE turns.state = 'accepted' AND inbox.session_key = ?"
        " AND turns.session_id IN (SELECT id FROM sessions WHERE conversation_id ="
        " (SELECT conversation_id FROM sessions WHERE id = ?))"
        " ORDER BY turns.user_message_id",
        session_key,
        session_id,
    )
