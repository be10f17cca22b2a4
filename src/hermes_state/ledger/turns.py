"""Store turns: one exchange each, from its acceptance to exactly one end.

accepted → running → answered | failed | interrupted      (running → running: one more attempt)
accepted → failed | interrupted                           (it never started)

Accepting stores the inbound message, the user's message and the turn in one transaction; only then may
the input be acknowledged. Ending stores the answer, its outbound parts and the end in one transaction.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from hermes_core.errors import (
    AlreadySettledError,
    ConversationBusyError,
    ConversationOverError,
    EarlierTurnError,
    IllegalTransitionError,
    StoreError,
    TurnMovedError,
)
from hermes_core.secrets import redact
from hermes_state.ledger import (
    budgets,
    effects,
    inbox,
    leases,
    lineage,
    messages,
    outbox,
    partials,
    questions,
    routes,
    sessions,
    taint,
    titles,
    workers,
)
from hermes_state.ledger.records import COPIED, decode, insert_message, message_from
from hermes_state.store import Tx, one_statement
from hermes_state.transitions import TurnState
from hermes_state.values import (
    NO_SOURCE,
    Accepted,
    Call,
    ClaimedTurn,
    End,
    InboundMessage,
    Lease,
    NewSession,
    OutboundPart,
    Receipt,
    Row,
    Settled,
    TaintSource,
    TurnSource,
)

MAX_ATTEMPTS = 3
_NO_KEY = (None, None, None)

_IS_WAITING = (
    "SELECT 1 FROM questions WHERE turn_id = ?1 AND state = 'pending' AND NOT EXISTS (SELECT 1 FROM"
    " effects WHERE effects.turn_id = ?1 AND effects.state = 'started'"
    " AND effects.tool_call_id <> questions.tool_call_id)"
)
"""SQL: a pending question of a turn in which no other tool call was running."""

MERGED = "said to the turn before it"
"""The reason of a queued turn that ended because the running turn answers its message too."""

REPLACED = "replaced by its new version"


def accept(  # noqa: PLR0913 -- all that comes with a message
    tx: Tx,
    session_id: str,
    message: Mapping[str, Any],
    *,
    inbound: InboundMessage | None = None,
    idempotency_key: str | None = None,
    new_session: NewSession | None = None,
    reopens: bool = False,
    over: Collection[str] = (),
    replaces: int | None = None,
    only_if_idle: bool = False,
    source: TurnSource = NO_SOURCE,
    brings: Sequence[TaintSource] = (),
) -> Accepted:
    """Store an input as a turn; the same inbound message or idempotency key returns the first turn.

    The message goes to the newest session of the conversation; with `reopens`, an ended one is reopened.
    With `new_session`, a missing session is created in the same transaction. `replaces` is a user
    message to rewind to first; `brings` is the taint that comes with the message.

    Raises AlreadySettledError when the inbound message was handled without a turn,
    ConversationOverError when the end reason of the conversation is in `over`, and ConversationBusyError
    when another process runs the conversation although `replaces` or `only_if_idle` is set.
    """
    earlier, tip, conversation_id, end = _locate(tx, session_id, inbound, idempotency_key)
    if earlier is not None:
        return earlier
    if conversation_id is not None and (only_if_idle or replaces is not None):
        _check_idle(tx, conversation_id, source.worker)
    makes_session = tip is None and new_session is not None
    now = tx.now  # not later than the start of its session: `opens` compares them
    if tip is not None:
        session_id = tip
        if end is not None and end in over:
            raise ConversationOverError(f"The conversation of {tip} is over.")
        if end is not None and reopens:
            sessions.reopen(tx, tip)
    elif new_session is not None:
        create_session(tx, session_id, new_session)
    else:
        sessions.fetch(tx, session_id)  # raises SessionNotFoundError
    if replaces is not None:
        messages.rewind(tx, session_id, replaces)
    message_id = insert_message(tx, session_id, message_from(message))
    turn_id = os.urandom(16).hex()
    tx.run(
        "INSERT INTO turns (id, session_id, idempotency_key, user_message_id, accepted_at, surface,"
        " worker, permissions) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        turn_id,
        session_id,
        idempotency_key,
        message_id,
        now,
        *source,
    )
    if source.worker is not None:
        workers.refresh(tx, source.worker)
    if inbound is not None:
        inbox.make_turn(tx, inbound, turn_id)
    taint.note(tx, session_id, brings, turn_id)
    conversation_id = conversation_id or session_id  # a new session starts a conversation
    return Accepted(
        turn_id, session_id, conversation_id, message_id, is_new=True, makes_session=makes_session
    )


def _check_idle(tx: Tx, conversation_id: str, worker: str | None) -> None:
    """Raise ConversationBusyError when another process runs a conversation or is about to."""
    has_others = tx.value(
        "SELECT EXISTS (SELECT 1 FROM turns JOIN sessions ON sessions.id = turns.session_id"
        " JOIN workers ON workers.name = turns.worker"
        " WHERE turns.state IN ('accepted', 'running') AND sessions.conversation_id = ?"
        " AND workers.name IS DISTINCT FROM ? AND workers.seen_at > ?)",
        conversation_id,
        worker,
        tx.now - workers.TTL_S,
    )
    if has_others or leases.holder_of(tx, conversation_id) is not None:
        raise ConversationBusyError(
            "Another process runs this conversation; your message was not stored.",
            fix="Send it again when that turn has ended, or stop it there.",
        )


def _locate(
    tx: Tx, session_id: str, inbound: InboundMessage | None, idempotency_key: str | None
) -> tuple[Accepted | None, str | None, str | None, str | None]:
    """Return the earlier turn of an input, else its newest session, conversation and end reason.

    This is a single query, since every input runs it.
    """
    (found,) = tx.tuples(
        "SELECT before.id, before.session_id, before.user_message_id,"
        " (SELECT conversation_id FROM sessions WHERE id = before.session_id),"
        " inbox.outcome, tip.id, tip.conversation_id,"
        " CASE WHEN tip.ended_at IS NOT NULL THEN coalesce(tip.end_reason, '') END FROM (SELECT 1)"
        " LEFT JOIN inbox ON inbox.platform = ?1 AND inbox.chat_id = ?2 AND inbox.message_id = ?3"
        " LEFT JOIN turns AS before ON before.id ="
        " coalesce((SELECT id FROM turns WHERE idempotency_key = ?4), inbox.turn_id)"
        " LEFT JOIN sessions AS tip ON tip.is_tip = 1 AND tip.conversation_id ="
        " (SELECT conversation_id FROM sessions WHERE id = ?5)",
        *(inbound.key if inbound is not None else _NO_KEY),
        idempotency_key,
        session_id,
    )
    turn_id, its_session, message_id, its_conversation, outcome, tip, conversation_id, end = found
    if turn_id is not None:
        earlier = Accepted(turn_id, its_session, its_conversation, message_id, is_new=False)
        return earlier, None, None, None
    if outcome is not None and inbound is not None:
        raise AlreadySettledError(f"{inbound.platform} message {inbound.message_id} is settled.")
    return None, tip, conversation_id, end


def create_session(tx: Tx, session_id: str, new_session: NewSession) -> None:
    """Create a session with its route and earlier messages; it begins with the taint of its parent."""
    sessions.create(
        tx,
        session_id,
        new_session.source,
        new_session.fields,
        parent_session_id=new_session.parent_session_id,
    )
    if new_session.parent_session_id is not None:
        taint.copy(tx, new_session.parent_session_id, session_id)
    for message in new_session.messages:
        insert_message(tx, session_id, message_from(message))
    if new_session.messages:
        taint.note_history(tx, session_id)
    if (route := new_session.route) is not None:
        routes.save(tx, route, session_id)


def create_session_once(tx: Tx, session_id: str, new_session: NewSession) -> bool:
    """Create a session unless it exists; return whether it was created."""
    makes_session = sessions.find(tx, session_id) is None
    if makes_session:
        create_session(tx, session_id, new_session)
    return makes_session


def set_title(tx: Tx, session_id: str, title: str, new_session: NewSession) -> bool:
    """Set the title of a conversation, creating it if needed; return whether it was created.

    Raises TitleError, and then nothing is created.
    """
    makes_session = create_session_once(tx, session_id, new_session)
    titles.set_title(tx, session_id, title)
    return makes_session


def start(tx: Tx, turn_id: str, lease: Lease | None = None, *, is_same: bool = False) -> int:
    """Start a turn, for the first time or again; return the number of this attempt.

    A crash while the turn only waited for a person does not count as an attempt. With `is_same`, the
    last attempt continues after a write that the store had refused.
    """
    leases.check(tx, lease)
    attempt = tx.value(
        "UPDATE turns SET state = 'running', attempts = max(1, attempts + (NOT ?3 AND NOT EXISTS"
        f" ({_IS_WAITING}))), started_at = coalesce(started_at, ?2) WHERE id = ?1 RETURNING attempts",
        turn_id,
        tx.now,
        is_same,
    )
    return attempt if attempt is not None else fetch(tx, turn_id)["attempts"]


def claim(
    tx: Tx,
    turn_id: str,
    conversation_id: str,
    holder: str,
    *,
    is_same: bool = False,
) -> ClaimedTurn | None:
    """Acquire the lease of a turn's conversation and start the turn; return None when it is held.

    Raises IllegalTransitionError when the turn has ended, TurnMovedError when its chat moved it to
    another conversation, which this lease does not protect, and EarlierTurnError when an earlier turn is
    open: that one comes first, as a model must never see a tool call without its result.
    """
    row = fetch(tx, turn_id)
    if row["ended_at"] is not None:
        raise IllegalTransitionError(f"Turn {turn_id} is {row['state']} already.")
    if lineage.root(tx, row["session_id"]) != conversation_id:
        raise TurnMovedError(f"Turn {turn_id} has moved to {row['session_id']}.")
    lease = leases.acquire(tx, conversation_id, holder)
    if lease is None:
        return None
    if (earlier := _first_open(tx, conversation_id, row["user_message_id"])) is not None:
        raise EarlierTurnError(f"Turn {earlier} comes before turn {turn_id}.", earlier)
    tx.run("UPDATE turns SET worker = ? WHERE id = ?", workers.of_holder(holder), turn_id)
    return ClaimedTurn(lease, start(tx, turn_id, is_same=is_same), row)


def _first_open(tx: Tx, conversation_id: str, before: int) -> str | None:
    """Return the first open turn whose user message precedes a message."""
    return tx.value(
        "SELECT turns.id FROM turns JOIN sessions ON sessions.id = turns.session_id"
        " WHERE turns.state IN ('accepted', 'running') AND sessions.conversation_id = ?"
        " AND turns.user_message_id < ? ORDER BY turns.user_message_id LIMIT 1",
        conversation_id,
        before,
    )


def suspend(tx: Tx, turn_id: str, lease: Lease | None = None) -> None:
    """Suspend a running turn; this attempt does not count, since nothing crashed."""
    leases.check(tx, lease)
    tx.run(
        "UPDATE turns SET attempts = max(0, attempts - 1) WHERE id = ? AND state = 'running'",
        turn_id,
    )


def step(
    tx: Tx,
    turn_id: str,
    message: Mapping[str, Any],
    calls: Sequence[Call] = (),
    lease: Lease | None = None,
    receipt: Receipt | None = None,
) -> int:
    """Store a model's message, its tool calls and its cost before any call starts."""
    leases.check(tx, lease)
    turn = _running(tx, turn_id)
    if receipt is not None:
        budgets.settle(tx, turn_id, turn["session_id"], receipt)
    partials.pop(tx, turn_id)
    message_id = _add_message(tx, turn, message)
    for call in calls:
        effects.intend(tx, turn_id, message_id, call)
    return message_id


def finish(  # noqa: PLR0913 -- all that ends together
    tx: Tx,
    turn_id: str,
    end: End,
    *,
    message: Mapping[str, Any] | None = None,
    reason: str | None = None,
    parts: Sequence[OutboundPart] = (),
    settled: Sequence[Settled] = (),
    lease: Lease | None = None,
    receipt: Receipt | None = None,
) -> int | None:
    """End a turn with its last message and outbound parts, and release the lease; return the message id.

    Open calls are cancelled if they have not started and marked as unknown otherwise; open questions are
    cancelled. `settled` gives calls their results, so that none stays without one. Without a last
    message, the partial reply becomes the last message.
    """
    leases.give_back(tx, lease)
    turn = fetch(tx, turn_id)
    if receipt is not None:
        budgets.settle(tx, turn_id, turn["session_id"], receipt)
    for call in settled:
        effects.settle(tx, call.effect_id, call.state, call.result)
    effects.close_open(tx, turn_id)
    questions.cancel_of_turn(tx, turn_id)
    message_id, streamed = None, partials.pop(tx, turn_id).strip()
    if message is None and streamed:
        message = {"role": "assistant", "content": streamed, "kind": "partial"}
    if message is not None:
        message_id = _add_message(tx, turn, message)
    tx.run(
        "UPDATE turns SET state = ?, final_message_id = ?, reason = ?, ended_at = ? WHERE id = ?",
        end,
        message_id,
        redact(reason) if reason else reason,
        tx.now,
        turn_id,
    )
    outbox.add(tx, parts, turn_id=turn_id)
    return message_id


def cancel(tx: Tx, turn_id: str, reason: str) -> None:
    """Cancel a queued turn and deactivate its message, which stays in the store.

    Raises IllegalTransitionError when the turn has started or ended.
    """
    turn = fetch(tx, turn_id)
    if turn["state"] != TurnState.ACCEPTED:
        raise IllegalTransitionError(f"Turn {turn_id} is {turn['state']}: too late to cancel it.")
    deactivate_message(tx, turn)
    finish(tx, turn_id, "interrupted", reason=reason)


def replace(
    tx: Tx, turn_id: str, message: Mapping[str, Any], inbound: InboundMessage
) -> Accepted | None:
    """Replace a queued turn by a new version of its message; return None when it is no longer queued.

    Turns that are queued after it get new messages, so that they keep their place.
    """
    turn = fetch(tx, turn_id)
    if turn["state"] != TurnState.ACCEPTED:
        return None
    behind = tx.rows(
        "SELECT * FROM turns WHERE session_id = ? AND state = 'accepted'"
        " AND user_message_id > ? ORDER BY user_message_id",
        turn["session_id"],
        turn["user_message_id"],
    )
    cancel(tx, turn_id, REPLACED)
    source = TurnSource(turn["surface"], turn["worker"], turn["permissions"])
    replacement = accept(tx, turn["session_id"], message, inbound=inbound, source=source)
    tx.run(
        "UPDATE turns SET accepted_at = ? WHERE id = ?", turn["accepted_at"], replacement.turn_id
    )
    for queued in behind:
        requeue(tx, queued, turn["session_id"])
    return replacement


def requeue(tx: Tx, turn: Row, session_id: str) -> int:
    """Append the message of a queued turn to a session and deactivate the old one; return the new id."""
    message_id: int = tx.value(
        f"INSERT INTO messages (session_id, {COPIED}) SELECT CAST(? AS TEXT), {COPIED}"
        " FROM messages WHERE id = ? RETURNING id",
        session_id,
        turn["user_message_id"],
    )
    deactivate_message(tx, turn)
    tx.run(
        "UPDATE turns SET session_id = ?, user_message_id = ? WHERE id = ?",
        session_id,
        message_id,
        turn["id"],
    )
    taint.follow(tx, turn["id"], session_id)
    return message_id


def deactivate_message(tx: Tx, turn: Row) -> None:
    """Deactivate the message of a turn; it stays in the store."""
    tx.run(
        "UPDATE messages SET active = 0 WHERE id = ?1 OR session_id = ?2 AND origin_id = ?1",
        turn["user_message_id"],
        turn["session_id"],
    )
    sessions.recount(tx, turn["session_id"])


def merge(tx: Tx, turn_id: str, into: str) -> int | None:
    """Add the message of a queued turn to the running turn; return its id.

    Returns None when the turn is no longer queued or has moved to another conversation.
    """
    turn, runs = fetch(tx, turn_id), _running(tx, into)
    is_here = lineage.root(tx, turn["session_id"]) == lineage.root(tx, runs["session_id"])
    if turn["state"] != TurnState.ACCEPTED or not is_here:
        return None
    text = user_text(tx, turn_id)
    cancel(tx, turn_id, MERGED)
    return _add_message(tx, runs, {"role": "user", "content": text})


def _add_message(tx: Tx, turn: Row, message: Mapping[str, Any]) -> int:
    """Store a message as part of a turn."""
    stored = message_from(message)._replace(answers=turn["user_message_id"])
    return insert_message(tx, turn["session_id"], stored)


@one_statement
def find(tx: Tx, turn_id: str) -> Row | None:
    """Return a turn, or None."""
    return tx.row("SELECT * FROM turns WHERE id = ?", turn_id)


@one_statement
def user_text(tx: Tx, turn_id: str) -> str:
    """Return the text of a turn's user message."""
    found = tx.row(
        "SELECT content, parts FROM messages WHERE id ="
        " (SELECT user_message_id FROM turns WHERE id = ?)",
        turn_id,
    )
    if found is None or found["parts"] is None:
        return (found or {}).get("content") or ""
    parts: Any = decode(found["parts"])
    if not isinstance(parts, list):
        return ""
    typed = cast("list[Row]", parts)
    return "\n".join(part["text"] for part in typed if part.get("type") == "text")


def fetch(tx: Tx, turn_id: str) -> Row:
    """Return a turn; raise StoreError when there is none."""
    turn = find(tx, turn_id)
    if turn is None:
        raise StoreError(f"There is no turn {turn_id}.")
    return turn


def _running(tx: Tx, turn_id: str) -> Row:
    turn = fetch(tx, turn_id)
    if turn["state"] != TurnState.RUNNING:
        raise StoreError(f"Turn {turn_id} is {turn['state']}, not running.")
    return turn


def unfinished(tx: Tx) -> list[Row]:
    """Return the open turns whose conversation has no lease, for recovery."""
    return tx.rows(
        "SELECT turns.*, sessions.conversation_id FROM turns"
        " JOIN sessions ON sessions.id = turns.session_id"
        " LEFT JOIN leases ON leases.conversation_id = sessions.conversation_id"
        " AND leases.expires_at > ?"
        " WHERE turns.state IN ('accepted', 'running') AND leases.conversation_id IS NULL"
        " ORDER BY turns.user_message_id",
        tx.now,
    )


def open_in(tx: Tx, conversation_id: str) -> list[Row]:
    """Return the open turns of a conversation, in order."""
    return tx.rows(
        "SELECT turns.* FROM turns JOIN sessions ON sessions.id = turns.session_id"
        " WHERE turns.state IN ('accepted', 'running') AND sessions.conversation_id = ?"
        " ORDER BY turns.user_message_id",
        conversation_id,
    )


def latest_in(tx: Tx, conversation_id: str) -> Row | None:
    """Return the turn of a conversation that was accepted last."""
    return tx.row(
        "SELECT turns.* FROM turns JOIN sessions ON sessions.id = turns.session_id"
        " WHERE sessions.conversation_id = ? ORDER BY turns.user_message_id DESC LIMIT 1",
        conversation_id,
    )


def open_from_chat(tx: Tx, session_key: str) -> list[Row]:
    """Return the open turns that came from a chat, in order."""
    return tx.rows(
        "SELECT turns.*, sessions.conversation_id FROM turns"
        " JOIN sessions ON sessions.id = turns.session_id JOIN inbox ON inbox.turn_id = turns.id"
        " WHERE turns.state IN ('accepted', 'running') AND inbox.session_key = ?"
        " ORDER BY turns.user_message_id",
        session_key,
    )


def count_open(tx: Tx, surface: str) -> int:
    """Count the open turns that came from a surface."""
    return tx.value(
        "SELECT count(*) FROM turns WHERE state IN ('accepted', 'running') AND surface = ?",
        surface,
    )


def open_of(tx: Tx, surfaces: Collection[str]) -> list[Row]:
    """Return the ids, surfaces and conversations of the open turns that came from some surfaces."""
    return tx.rows(
        "SELECT turns.id, surface, conversation_id FROM turns"
        " JOIN sessions ON sessions.id = turns.session_id"
        f" WHERE turns.state IN ('accepted', 'running') AND {tx.among('surface')}",
        tx.many(surfaces),
    )


def has_open(tx: Tx, worker: str) -> bool:
    """Return whether a worker has open turns."""
    return bool(
        tx.value(
            "SELECT EXISTS (SELECT 1 FROM turns"
            " WHERE state IN ('accepted', 'running') AND worker = ?)",
            worker,
        )
    )


def runnable(
    tx: Tx, worker: str, surfaces: Collection[str], conversations: Collection[str]
) -> list[Row]:
    """Return the open turns that a worker may run now, at most the first one per conversation.

    A worker runs the turns that it accepted, and those of dead workers if they came from a surface that
    it serves or are in a conversation that it has open. An earlier turn in the same conversation runs
    first, unless it belongs to another worker. The turn of a sub-agent is left to its parent.

    Other turns that a dead worker had started are returned with `is_due` 0: a surface may adopt them.
    """
    return tx.rows(
        "WITH open AS (SELECT turns.*, sessions.conversation_id,"
        " coalesce(turns.worker = ?1, 0) AS is_own,"
        " NOT EXISTS (SELECT 1 FROM workers WHERE workers.name = turns.worker"
        " AND workers.name <> ?1 AND workers.seen_at > ?2) AS is_free"
        " FROM turns JOIN sessions ON sessions.id = turns.session_id"
        " WHERE turns.state IN ('accepted', 'running')"
        " AND sessions.relation IS DISTINCT FROM 'delegate')"
        " SELECT * FROM (SELECT first.*, EXISTS (SELECT 1 FROM open AS due"
        " WHERE due.session_id = first.session_id"
        f" AND (due.is_own OR due.is_free AND ({tx.among('due.surface', '?3')}"
        f" OR {tx.among('due.conversation_id', '?4')}))) AS is_due"
        " FROM open AS first WHERE first.is_free"
        " AND NOT EXISTS (SELECT 1 FROM turns AS before WHERE before.session_id = first.session_id"
        " AND before.state IN ('accepted', 'running')"
        " AND before.user_message_id < first.user_message_id)"
        " AND NOT EXISTS (SELECT 1 FROM leases WHERE leases.expires_at > ?5"
        " AND leases.conversation_id = first.conversation_id))"
        " WHERE is_due OR state = 'running' ORDER BY user_message_id",
        worker,
        tx.now - workers.TTL_S,
        tx.many(surfaces),
        tx.many(conversations),
        tx.now,
    )


def unsent(tx: Tx, since: float, platforms: Collection[str]) -> list[Row]:
    """Return the turns that came from some platforms and ended since a time without outbound parts."""
    return tx.rows(
        "SELECT turns.* FROM turns JOIN inbox ON inbox.turn_id = turns.id"
        " WHERE turns.ended_at >= ? AND turns.state IN ('answered', 'failed')"
        f" AND {tx.among('inbox.platform')}"
        " AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.turn_id = turns.id)"
        " ORDER BY turns.ended_at",
        since,
        tx.many(platforms),
    )


def all_open(tx: Tx) -> list[Row]:
    """Return all open turns in the order of their user messages."""
    return tx.rows(
        "SELECT * FROM turns WHERE state IN ('accepted', 'running') ORDER BY user_message_id"
    )


def of_session(tx: Tx, session_id: str) -> list[Row]:
    """Return the turns of a session, in the order in which they were accepted."""
    return tx.rows(
        "SELECT * FROM turns WHERE session_id = ? ORDER BY accepted_at, user_message_id", session_id
    )


@one_statement
def find_by_key(tx: Tx, idempotency_key: str) -> str | None:
    """Return the id of the turn with an idempotency key, or None."""
    return tx.value("SELECT id FROM turns WHERE idempotency_key = ?", idempotency_key)


@one_statement
def creates_session(tx: Tx, turn_id: str) -> bool:
    """Return whether a turn created its session and has not started."""
    return bool(
        tx.value(
            "SELECT count(*) FROM turns JOIN sessions ON sessions.id = turns.session_id"
            " WHERE turns.id = ? AND turns.state = 'accepted'"
            " AND sessions.relation IS DISTINCT FROM 'continuation'"
            " AND turns.accepted_at <= sessions.started_at AND NOT EXISTS (SELECT 1 FROM messages"
            " WHERE messages.session_id = sessions.id AND messages.id < turns.user_message_id)",
            turn_id,
        )
    )


def cut_short(tx: Tx, user_message_ids: Collection[int]) -> list[Row]:
    """Return the failed and interrupted turns among those that answer some messages."""
    return tx.rows(
        f"WITH asked AS (SELECT id, session_id FROM messages WHERE {tx.among('id')})"
        " SELECT * FROM turns WHERE state IN ('failed', 'interrupted')"
        " AND user_message_id IN (SELECT id FROM asked)"
        # The user message may be in an earlier session than the turn, after a compaction within it.
        # `session_id || ''` keeps SQLite from the index of sessions, which would read every turn.
        " AND session_id || '' IN (SELECT id FROM sessions WHERE conversation_id IN"
        " (SELECT conversation_id FROM sessions WHERE id IN (SELECT session_id FROM asked)))",
        tx.many(user_message_ids),
    )
