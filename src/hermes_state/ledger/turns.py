"""A turn: one exchange, from the moment it is accepted to exactly one end.

accepted → running → answered | failed | interrupted      (running → running: one more attempt)
accepted → failed | interrupted                           (it never began)

Accepting stores what was delivered, the user's message and the turn together; only then may anybody be
told that we have it. Ending stores the answer, its pieces for the platform and the end together.
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
    titles,
    workers,
)
from hermes_state.ledger.records import decode, insert_message, message_from
from hermes_state.store import Tx, one_statement
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
    TurnSource,
)

MOST_ATTEMPTS = 3
_NO_KEY = (None, None, None)

_ONLY_WAITS = (
    "SELECT 1 FROM questions WHERE turn_id = ?1 AND state = 'pending' AND NOT EXISTS (SELECT 1 FROM"
    " effects WHERE effects.turn_id = ?1 AND effects.state = 'started'"
    " AND effects.tool_call_id <> questions.tool_call_id)"
)
"""A question that a turn has put and that nobody has answered, beside which nothing was being done."""

FOLDED = "said to the turn before it"
"""The reason of a turn that was over before it began, because the one before it answers it too."""

REPLACED = "replaced by its new version"


def accept(  # noqa: PLR0913 -- all that comes with a message
    tx: Tx,
    session_id: str,
    message: Mapping[str, Any],
    *,
    delivery: InboundMessage | None = None,
    idempotency_key: str | None = None,
    opening: NewSession | None = None,
    reopens: bool = False,
    over: Collection[str] = (),
    replaces: int | None = None,
    only_if_idle: bool = False,
    source: TurnSource = NO_SOURCE,
) -> Accepted:
    """Take a message in; a second delivery of the same one finds the first.

    A session that was compacted meanwhile takes it in where its conversation goes on, which is open
    again by it when the caller wishes. With an opening, the session is made together with its first
    message when it is not there. `replaces` is a user message that is taken back for it, with all after
    it. Raises AlreadySettledError when the delivery was dealt with before and has no turn (any more),
    ConversationOverError when the conversation has one of the ends named `over`, ConversationBusyError
    when a process runs it although something is to be taken back or `only_if_idle` is set.
    """
    known, tip, room, end = _seen(tx, session_id, delivery, idempotency_key)
    if known is not None:
        return known
    if room is not None and (only_if_idle or replaces is not None):
        _check_idle(tx, room, source.worker)
    makes_session = tip is None and opening is not None
    now = tx.now  # not after its session began, by which `opens` knows it
    if tip is not None:
        session_id = tip
        if end is not None and end in over:
            raise ConversationOverError(f"The conversation of {tip} is over.")
        if end is not None and reopens:
            sessions.reopen(tx, tip)
    elif opening is not None:
        begin(tx, session_id, opening)
    else:
        sessions.fetch(tx, session_id)  # says that there is none
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
    if delivery is not None:
        inbox.make_turn(tx, delivery, turn_id)
    room = room or session_id  # a session that was made here begins a conversation
    return Accepted(turn_id, session_id, room, message_id, is_new=True, makes_session=makes_session)


def _check_idle(tx: Tx, conversation_id: str, worker: str | None) -> None:
    """Raise ConversationBusyError when a process runs a conversation, or another is about to."""
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


def _seen(
    tx: Tx, session_id: str, delivery: InboundMessage | None, idempotency_key: str | None
) -> tuple[Accepted | None, str | None, str | None, str | None]:
    """The turn of a message that came before, where its conversation goes on, which that is, and how it
    has ended.

    One question for all of it, since every message asks it.
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
        *(delivery.key if delivery is not None else _NO_KEY),
        idempotency_key,
        session_id,
    )
    turn_id, its_session, message_id, its_room, outcome, tip, room, end = found
    if turn_id is not None:
        known = Accepted(turn_id, its_session, its_room, message_id, is_new=False)
        return known, None, None, None
    if outcome is not None and delivery is not None:
        raise AlreadySettledError(f"{delivery.platform} message {delivery.message_id} is settled.")
    return None, tip, room, end


def begin(tx: Tx, session_id: str, opening: NewSession) -> None:
    """Make a session, with what was said before."""
    sessions.create(
        tx,
        session_id,
        opening.source,
        opening.fields,
        parent_session_id=opening.parent_session_id,
    )
    for message in opening.messages:
        insert_message(tx, session_id, message_from(message))
    if (route := opening.route) is not None:
        routes.save(tx, route, session_id)


def begin_once(tx: Tx, session_id: str, opening: NewSession) -> bool:
    """Make a session unless it is there; tells whether it was made."""
    makes_session = sessions.find(tx, session_id) is None
    if makes_session:
        begin(tx, session_id, opening)
    return makes_session


def name(tx: Tx, session_id: str, title: str, opening: NewSession) -> bool:
    """Give a conversation its title, also one in which nothing was said yet; tells whether it makes one.

    Raises TitleError, and then there is none.
    """
    makes_session = begin_once(tx, session_id, opening)
    titles.set_title(tx, session_id, title)
    return makes_session


def start(tx: Tx, turn_id: str, lease: Lease | None = None, *, is_same: bool = False) -> int:
    """Begin to run a turn, for the first time or again; returns which attempt this is.

    One that only waited for a person when it was cut off has not lost an attempt by it. `is_same` tells
    that nothing was cut off: the last attempt goes on, of which the store could not take something.
    """
    leases.check(tx, lease)
    attempt = tx.value(
        "UPDATE turns SET state = 'running', attempts = max(1, attempts + (NOT ?3 AND NOT EXISTS"
        f" ({_ONLY_WAITS}))), started_at = coalesce(started_at, ?2) WHERE id = ?1 RETURNING attempts",
        turn_id,
        tx.now,
        is_same,
    )
    return attempt if attempt is not None else fetch(tx, turn_id)["attempts"]


def take(
    tx: Tx,
    turn_id: str,
    conversation_id: str,
    holder: str,
    *,
    is_same: bool = False,
) -> ClaimedTurn | None:
    """Take the lease of a turn's conversation and begin to run it; None when somebody else has it.

    Raises IllegalTransitionError when the turn has ended, TurnMovedError when its chat has taken it
    along into another conversation: under the lease of this one, two could run it. Raises
    EarlierTurnError when an earlier turn of the conversation has no end: that one comes first, as a
    model must not be shown a tool call without its result.
    """
    row = fetch(tx, turn_id)
    if row["ended_at"] is not None:
        raise IllegalTransitionError(f"Turn {turn_id} is {row['state']} already.")
    if lineage.root(tx, row["session_id"]) != conversation_id:
        raise TurnMovedError(f"Turn {turn_id} is answered in {row['session_id']}.")
    lease = leases.acquire(tx, conversation_id, holder)
    if lease is None:
        return None
    if (earlier := _first_open(tx, conversation_id, row["user_message_id"])) is not None:
        raise EarlierTurnError(f"Turn {earlier} comes before turn {turn_id}.", earlier)
    tx.run("UPDATE turns SET worker = ? WHERE id = ?", workers.of_holder(holder), turn_id)
    return ClaimedTurn(lease, start(tx, turn_id, is_same=is_same), row)


def _first_open(tx: Tx, conversation_id: str, before: int) -> str | None:
    """Return the first turn without an end that a message before this one began."""
    return tx.value(
        "SELECT turns.id FROM turns JOIN sessions ON sessions.id = turns.session_id"
        " WHERE turns.state IN ('accepted', 'running') AND sessions.conversation_id = ?"
        " AND turns.user_message_id < ? ORDER BY turns.user_message_id LIMIT 1",
        conversation_id,
        before,
    )


def put_off(tx: Tx, turn_id: str, lease: Lease | None = None) -> None:
    """Leave a running turn to a later start; only what is cut off counts as an attempt."""
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
    """Store what the model said, what it wants done and what it cost, before any of it is done."""
    leases.check(tx, lease)
    turn = _running(tx, turn_id)
    if receipt is not None:
        budgets.settle(tx, turn_id, turn["session_id"], receipt)
    partials.take(tx, turn_id)
    message_id = _say(tx, turn, message)
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
    pieces: Sequence[OutboundPart] = (),
    settled: Sequence[Settled] = (),
    lease: Lease | None = None,
    receipt: Receipt | None = None,
) -> int | None:
    """End a turn with its last message and what must be sent; returns that message's id.

    Calls that were never made are cancelled with it; those nobody saw the end of are unknown; what it
    asked is asked no more. `settled` tells the model about calls, so that none stays without a result.
    Without a last message, what was streamed of it stays. The conversation is given back.
    """
    leases.give_back(tx, lease)
    turn = fetch(tx, turn_id)
    if receipt is not None:
        budgets.settle(tx, turn_id, turn["session_id"], receipt)
    for one in settled:
        effects.settle(tx, one.effect_id, one.state, one.result)
    effects.close_open(tx, turn_id)
    questions.withdraw_of_turn(tx, turn_id)
    message_id, streamed = None, partials.take(tx, turn_id).strip()
    if message is None and streamed:
        message = {"role": "assistant", "content": streamed, "kind": "partial"}
    if message is not None:
        message_id = _say(tx, turn, message)
    tx.run(
        "UPDATE turns SET state = ?, final_message_id = ?, reason = ?, ended_at = ? WHERE id = ?",
        end,
        message_id,
        redact(reason) if reason else reason,
        tx.now,
        turn_id,
    )
    outbox.put(tx, pieces, turn_id=turn_id)
    return message_id


def withdraw(tx: Tx, turn_id: str, reason: str) -> None:
    """End a turn that never began and take its message out of the conversation; the store keeps it.

    Raises IllegalTransitionError when it has begun, or is over.
    """
    turn = fetch(tx, turn_id)
    if turn["state"] != "accepted":
        raise IllegalTransitionError(
            f"Turn {turn_id} is {turn['state']}: too late to take it back."
        )
    silence(tx, turn)
    finish(tx, turn_id, "interrupted", reason=reason)


def replace(
    tx: Tx, turn_id: str, message: Mapping[str, Any], delivery: InboundMessage
) -> Accepted | None:
    """Have a new version of a message answered in the place of one that waits; None: it waits no more.

    What waits behind it is said again, so that it stays behind.
    """
    turn = fetch(tx, turn_id)
    if turn["state"] != "accepted":
        return None
    behind = tx.rows(
        "SELECT * FROM turns WHERE session_id = ? AND state = 'accepted'"
        " AND user_message_id > ? ORDER BY user_message_id",
        turn["session_id"],
        turn["user_message_id"],
    )
    withdraw(tx, turn_id, REPLACED)
    source = TurnSource(turn["surface"], turn["worker"], turn["permissions"])
    made = accept(tx, turn["session_id"], message, delivery=delivery, source=source)
    tx.run("UPDATE turns SET accepted_at = ? WHERE id = ?", turn["accepted_at"], made.turn_id)
    for one in behind:
        say_again(tx, one, turn["session_id"])
    return made


def say_again(tx: Tx, turn: Row, session_id: str) -> int:
    """Have the message of a turn that waits said in a session, after what was said there; it does not
    count any more where it was. Returns the new one.
    """
    columns = "role, content, parts, timestamp, token_count, platform_message_id, extra, observed"
    message_id: int = tx.value(
        f"INSERT INTO messages (session_id, {columns}) SELECT CAST(? AS TEXT), {columns}"
        " FROM messages WHERE id = ? RETURNING id",
        session_id,
        turn["user_message_id"],
    )
    silence(tx, turn)
    tx.run(
        "UPDATE turns SET session_id = ?, user_message_id = ? WHERE id = ?",
        session_id,
        message_id,
        turn["id"],
    )
    return message_id


def silence(tx: Tx, turn: Row) -> None:
    """Have the message of a turn count no more where it was said; the store keeps it."""
    tx.run(
        "UPDATE messages SET active = 0 WHERE id = ?1 OR session_id = ?2 AND origin_id = ?1",
        turn["user_message_id"],
        turn["session_id"],
    )
    sessions.recount(tx, turn["session_id"])


def fold(tx: Tx, turn_id: str, into: str) -> int | None:
    """Say the message of a turn that waits to the one that runs; None when it waits no longer, or its
    chat has gone on in another conversation.
    """
    turn, runs = fetch(tx, turn_id), _running(tx, into)
    is_here = lineage.root(tx, turn["session_id"]) == lineage.root(tx, runs["session_id"])
    if turn["state"] != "accepted" or not is_here:
        return None
    text = user_text(tx, turn_id)
    withdraw(tx, turn_id, FOLDED)
    return _say(tx, runs, {"role": "user", "content": text})


def _say(tx: Tx, turn: Row, message: Mapping[str, Any]) -> int:
    """Store a message as part of a turn."""
    said = message_from(message)._replace(answers=turn["user_message_id"])
    return insert_message(tx, turn["session_id"], said)


@one_statement
def find(tx: Tx, turn_id: str) -> Row | None:
    """All columns of a turn, or None."""
    return tx.row("SELECT * FROM turns WHERE id = ?", turn_id)


@one_statement
def user_text(tx: Tx, turn_id: str) -> str:
    """What the turn is to answer, as text."""
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
    """All columns of a turn; raises StoreError."""
    turn = find(tx, turn_id)
    if turn is None:
        raise StoreError(f"There is no turn {turn_id}.")
    return turn


def _running(tx: Tx, turn_id: str) -> Row:
    turn = fetch(tx, turn_id)
    if turn["state"] != "running":
        raise StoreError(f"Turn {turn_id} is {turn['state']}, not running.")
    return turn


def unfinished(tx: Tx) -> list[Row]:
    """Turns without an end whose conversation nobody holds: what recovery has to look at."""
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
    """The open turns of a conversation, in their order."""
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
    """The open turns that came from a chat, in their order."""
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
    """The open turns that came from these surfaces: their ids and surfaces."""
    return tx.rows(
        "SELECT id, surface FROM turns WHERE state IN ('accepted', 'running')"
        f" AND {tx.among('surface')}",
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
    """The open turns that this worker may run now: the first one of each conversation at most.

    A worker runs what it accepted; and where a worker is gone, what came from a surface that it serves
    or is in a conversation that it has open. What stands before such a turn it runs first, unless that
    belongs to another worker. A sub-agent's turn is left to its parent.

    Other turns that a worker which is gone had begun are found as well, with `is_due` 0: a surface may
    adopt them.
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
    """Turns that came from these platforms and ended since then, with nothing put down to be sent."""
    return tx.rows(
        "SELECT turns.* FROM turns JOIN inbox ON inbox.turn_id = turns.id"
        " WHERE turns.ended_at >= ? AND turns.state IN ('answered', 'failed')"
        f" AND {tx.among('inbox.platform')}"
        " AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.turn_id = turns.id)"
        " ORDER BY turns.ended_at",
        since,
        tx.many(platforms),
    )


def still_open(tx: Tx) -> list[Row]:
    """Turns without an end, also those that somebody runs now, in the order of their words."""
    return tx.rows(
        "SELECT * FROM turns WHERE state IN ('accepted', 'running') ORDER BY user_message_id"
    )


def of_session(tx: Tx, session_id: str) -> list[Row]:
    """The turns of a session, in the order they were accepted."""
    return tx.rows(
        "SELECT * FROM turns WHERE session_id = ? ORDER BY accepted_at, user_message_id", session_id
    )


@one_statement
def known(tx: Tx, idempotency_key: str) -> str | None:
    """The turn that was accepted under a key."""
    return tx.value("SELECT id FROM turns WHERE idempotency_key = ?", idempotency_key)


@one_statement
def opens(tx: Tx, turn_id: str) -> bool:
    """Whether a session was made with this turn, which has not begun: nobody has been told of either."""
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
    """The turns that failed or were stopped, of those that answer these messages."""
    return tx.rows(
        f"WITH asked AS (SELECT id, session_id FROM messages WHERE {tx.among('id')})"
        " SELECT * FROM turns WHERE state IN ('failed', 'interrupted')"
        " AND user_message_id IN (SELECT id FROM asked)"
        # What a turn answers may have been said before a compaction that came in its middle.
        # Written so, it stays off the index of sessions, which would read every turn of a long one.
        " AND session_id || '' IN (SELECT id FROM sessions WHERE conversation_id IN"
        " (SELECT conversation_id FROM sessions WHERE id IN (SELECT session_id FROM asked)))",
        tx.many(user_message_ids),
    )
