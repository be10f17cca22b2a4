"""A turn: one exchange, from the moment it is accepted to exactly one end.

accepted → running → answered | failed | interrupted      (running → running: one more attempt)
accepted → failed | interrupted                           (it never began)

Accepting stores what was delivered, the user's message and the turn together; only then may anybody be
told that we have it. Ending stores the answer, its pieces for the platform and the end together.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import apsw

from hermes_core import clock
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
from hermes_state import (
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
from hermes_state.budgets import Receipt
from hermes_state.database import Database
from hermes_state.effects import Call, Settled
from hermes_state.inbox import Delivery
from hermes_state.leases import Lease
from hermes_state.outbox import Piece
from hermes_state.records import Row, encode, insert_message, message_from, rows
from hermes_state.routes import Route

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

End = Literal["answered", "failed", "interrupted"]


class Accepted(NamedTuple):
    """A turn that is on disk, and whether this call put it there."""

    turn_id: str
    session_id: str
    conversation_id: str
    message_id: int
    is_new: bool
    makes_session: bool = False
    """Whether the session was made with it."""


class TurnSource(NamedTuple):
    """The surface, worker and permissions of a turn."""

    surface: str = ""
    worker: str | None = None
    """The process that accepted it; None: any that has its conversation open."""
    permissions: str | None = None
    """What its person may do, as JSON; None: everything."""


NO_SOURCE = TurnSource()


class Taken(NamedTuple):
    """A turn that is about to run, and the lease it runs under."""

    lease: Lease
    attempt: int
    row: Row
    """The turn as it was before."""

    @property
    def is_resumed(self) -> bool:
        """Whether it was begun before, and cut off or put off."""
        return self.row["state"] == "running"


class Opening(NamedTuple):
    """The session that a first message makes, so that no empty one is ever there."""

    source: str
    fields: Mapping[str, Any] = {}
    parent_session_id: str | None = None
    messages: Sequence[Mapping[str, Any]] = ()
    """What was said before the first message, elsewhere."""
    route: Route | None = None
    """The chat that leads to it from now on."""


def accept(  # noqa: PLR0913 -- all that comes with a message
    conn: apsw.Connection,
    session_id: str,
    message: Mapping[str, Any],
    *,
    delivery: Delivery | None = None,
    idempotency_key: str | None = None,
    opening: Opening | None = None,
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
    known, tip, room, end = _seen(conn, session_id, delivery, idempotency_key)
    if known is not None:
        return known
    if room is not None and (only_if_idle or replaces is not None):
        _check_idle(conn, room)
    makes_session = tip is None and opening is not None
    now = clock.now()  # not after its session began, by which `opens` knows it
    if tip is not None:
        session_id = tip
        if end is not None and end in over:
            raise ConversationOverError(f"The conversation of {tip} is over.")
        if end is not None and reopens:
            sessions.reopen(conn, tip)
    elif opening is not None:
        begin(conn, session_id, opening)
    else:
        sessions.fetch(conn, session_id)  # says that there is none
    if replaces is not None:
        messages.rewind(conn, session_id, replaces)
    message_id = insert_message(conn, session_id, message_from(message))
    turn_id = os.urandom(16).hex()
    conn.execute(
        "INSERT INTO turns (id, session_id, idempotency_key, user_message_id, accepted_at, surface,"
        " worker, permissions) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (turn_id, session_id, idempotency_key, message_id, now, *source),
    )
    if source.worker is not None:
        workers.refresh(conn, source.worker)
    if delivery is not None:
        inbox.make_turn(conn, delivery, turn_id)
    room = room or session_id  # a session that was made here begins a conversation
    return Accepted(turn_id, session_id, room, message_id, is_new=True, makes_session=makes_session)


def _check_idle(conn: apsw.Connection, conversation_id: str) -> None:
    if leases.holder_of(conn, conversation_id) is not None:
        raise ConversationBusyError(
            "Another process runs this conversation; your message was not stored.",
            fix="Send it again when that turn has ended, or stop it there.",
        )


def _seen(
    conn: apsw.Connection, session_id: str, delivery: Delivery | None, idempotency_key: str | None
) -> tuple[Accepted | None, str | None, str | None, str | None]:
    """The turn of a message that came before, where its conversation goes on, which that is, and how it
    has ended.

    One question for all of it, since every message asks it.
    """
    found: Any = conn.execute(
        "SELECT before.id, before.session_id, before.user_message_id,"
        " (SELECT conversation_id FROM sessions WHERE id = before.session_id),"
        " inbox.outcome, tip.id, tip.conversation_id,"
        " CASE WHEN tip.ended_at IS NOT NULL THEN coalesce(tip.end_reason, '') END FROM (SELECT 1)"
        " LEFT JOIN inbox ON inbox.platform = ?1 AND inbox.chat_id = ?2 AND inbox.message_id = ?3"
        " LEFT JOIN turns AS before ON before.id ="
        " coalesce((SELECT id FROM turns WHERE idempotency_key = ?4), inbox.turn_id)"
        " LEFT JOIN sessions AS tip ON tip.is_tip = 1 AND tip.conversation_id ="
        " (SELECT conversation_id FROM sessions WHERE id = ?5)",
        (*(delivery.key if delivery is not None else _NO_KEY), idempotency_key, session_id),
    ).get
    turn_id, its_session, message_id, its_room, outcome, tip, room, end = found
    if turn_id is not None:
        known = Accepted(turn_id, its_session, its_room, message_id, is_new=False)
        return known, None, None, None
    if outcome is not None and delivery is not None:
        raise AlreadySettledError(f"{delivery.platform} message {delivery.message_id} is settled.")
    return None, tip, room, end


def begin(conn: apsw.Connection, session_id: str, opening: Opening) -> None:
    """Make a session, with what was said before."""
    sessions.create(
        conn,
        session_id,
        opening.source,
        opening.fields,
        parent_session_id=opening.parent_session_id,
    )
    for message in opening.messages:
        insert_message(conn, session_id, message_from(message))
    if (route := opening.route) is not None:
        routes.save(conn, route.session_key, session_id, route.entry, scope=route.scope)


def begin_once(conn: apsw.Connection, session_id: str, opening: Opening) -> bool:
    """Make a session unless it is there; tells whether it was made."""
    makes_session = sessions.find(conn, session_id) is None
    if makes_session:
        begin(conn, session_id, opening)
    return makes_session


def name(conn: apsw.Connection, session_id: str, title: str, opening: Opening) -> bool:
    """Give a conversation its title, also one in which nothing was said yet; tells whether it makes one.

    Raises TitleError, and then there is none.
    """
    makes_session = begin_once(conn, session_id, opening)
    titles.set_title(conn, session_id, title)
    return makes_session


def start(
    conn: apsw.Connection, turn_id: str, lease: Lease | None = None, *, is_same: bool = False
) -> int:
    """Begin to run a turn, for the first time or again; returns which attempt this is.

    One that only waited for a person when it was cut off has not lost an attempt by it. `is_same` tells
    that nothing was cut off: the last attempt goes on, of which the store could not take something.
    """
    leases.check(conn, lease)
    attempt = conn.execute(
        "UPDATE turns SET state = 'running', attempts = max(1, attempts + (NOT ?3 AND NOT EXISTS"
        f" ({_ONLY_WAITS}))), started_at = coalesce(started_at, ?2) WHERE id = ?1 RETURNING attempts",
        (turn_id, clock.now(), is_same),
    ).get
    return attempt if attempt is not None else fetch(conn, turn_id)["attempts"]


def take(
    conn: apsw.Connection,
    turn_id: str,
    conversation_id: str,
    holder: str,
    *,
    is_same: bool = False,
) -> Taken | None:
    """Take the lease of a turn's conversation and begin to run it; None when somebody else has it.

    Raises IllegalTransitionError when the turn has ended, TurnMovedError when its chat has taken it
    along into another conversation: under the lease of this one, two could run it. Raises
    EarlierTurnError when an earlier turn of the conversation has no end: that one comes first, as a
    model must not be shown a tool call without its result.
    """
    row = fetch(conn, turn_id)
    if row["ended_at"] is not None:
        raise IllegalTransitionError(f"Turn {turn_id} is {row['state']} already.")
    if lineage.root(conn, row["session_id"]) != conversation_id:
        raise TurnMovedError(f"Turn {turn_id} is answered in {row['session_id']}.")
    lease = leases.acquire(conn, conversation_id, holder)
    if lease is None:
        return None
    if (earlier := _first_open(conn, conversation_id, row["user_message_id"])) is not None:
        raise EarlierTurnError(f"Turn {earlier} comes before turn {turn_id}.", earlier)
    conn.execute("UPDATE turns SET worker = ? WHERE id = ?", (workers.of_holder(holder), turn_id))
    return Taken(lease, start(conn, turn_id, is_same=is_same), row)


def _first_open(conn: apsw.Connection, conversation_id: str, before: int) -> str | None:
    """Return the first turn without an end that a message before this one began."""
    return conn.execute(
        "SELECT turns.id FROM turns JOIN sessions ON sessions.id = turns.session_id"
        " WHERE turns.state IN ('accepted', 'running') AND sessions.conversation_id = ?"
        " AND turns.user_message_id < ? ORDER BY turns.user_message_id LIMIT 1",
        (conversation_id, before),
    ).get


def put_off(conn: apsw.Connection, turn_id: str, lease: Lease | None = None) -> None:
    """Leave a running turn to a later start; only what is cut off counts as an attempt."""
    leases.check(conn, lease)
    conn.execute(
        "UPDATE turns SET attempts = max(0, attempts - 1) WHERE id = ? AND state = 'running'",
        (turn_id,),
    )


def step(
    conn: apsw.Connection,
    turn_id: str,
    message: Mapping[str, Any],
    calls: Sequence[Call] = (),
    lease: Lease | None = None,
    receipt: Receipt | None = None,
) -> int:
    """Store what the model said, what it wants done and what it cost, before any of it is done."""
    leases.check(conn, lease)
    turn = _running(conn, turn_id)
    if receipt is not None:
        budgets.settle(conn, turn_id, turn["session_id"], receipt)
    partials.take(conn, turn_id)
    message_id = _say(conn, turn, message)
    for call in calls:
        effects.intend(conn, turn_id, message_id, call)
    return message_id


def finish(  # noqa: PLR0913 -- all that ends together
    conn: apsw.Connection,
    turn_id: str,
    end: End,
    *,
    message: Mapping[str, Any] | None = None,
    reason: str | None = None,
    pieces: Sequence[Piece] = (),
    settled: Sequence[Settled] = (),
    lease: Lease | None = None,
    receipt: Receipt | None = None,
) -> int | None:
    """End a turn with its last message and what must be sent; returns that message's id.

    Calls that were never made are cancelled with it; those nobody saw the end of are unknown; what it
    asked is asked no more. `settled` tells the model about calls, so that none stays without a result.
    Without a last message, what was streamed of it stays. The conversation is given back.
    """
    leases.give_back(conn, lease)
    turn = fetch(conn, turn_id)
    if receipt is not None:
        budgets.settle(conn, turn_id, turn["session_id"], receipt)
    for one in settled:
        effects.settle(conn, one.effect_id, one.state, one.result)
    effects.close_open(conn, turn_id)
    questions.withdraw_of_turn(conn, turn_id)
    message_id, streamed = None, partials.take(conn, turn_id).strip()
    if message is None and streamed:
        message = {"role": "assistant", "content": streamed, "kind": "partial"}
    if message is not None:
        message_id = _say(conn, turn, message)
    conn.execute(
        "UPDATE turns SET state = ?, final_message_id = ?, reason = ?, ended_at = ? WHERE id = ?",
        (end, message_id, redact(reason) if reason else reason, clock.now(), turn_id),
    )
    outbox.put(conn, pieces, turn_id=turn_id)
    return message_id


def withdraw(conn: apsw.Connection, turn_id: str, reason: str) -> None:
    """End a turn that never began and take its message out of the conversation; the store keeps it.

    Raises IllegalTransitionError when it has begun, or is over.
    """
    turn = fetch(conn, turn_id)
    if turn["state"] != "accepted":
        raise IllegalTransitionError(
            f"Turn {turn_id} is {turn['state']}: too late to take it back."
        )
    silence(conn, turn)
    finish(conn, turn_id, "interrupted", reason=reason)


def replace(
    conn: apsw.Connection, turn_id: str, message: Mapping[str, Any], delivery: Delivery
) -> Accepted | None:
    """Have a new version of a message answered in the place of one that waits; None: it waits no more.

    What waits behind it is said again, so that it stays behind.
    """
    turn = fetch(conn, turn_id)
    if turn["state"] != "accepted":
        return None
    behind = rows(
        conn.execute(
            "SELECT * FROM turns WHERE session_id = ? AND state = 'accepted'"
            " AND user_message_id > ? ORDER BY user_message_id",
            (turn["session_id"], turn["user_message_id"]),
        )
    )
    withdraw(conn, turn_id, REPLACED)
    source = TurnSource(turn["surface"], turn["worker"], turn["permissions"])
    made = accept(conn, turn["session_id"], message, delivery=delivery, source=source)
    conn.execute(
        "UPDATE turns SET accepted_at = ? WHERE id = ?", (turn["accepted_at"], made.turn_id)
    )
    for one in behind:
        say_again(conn, one, turn["session_id"])
    return made


def say_again(conn: apsw.Connection, turn: Row, session_id: str) -> int:
    """Have the message of a turn that waits said in a session, after what was said there; it does not
    count any more where it was. Returns the new one.
    """
    columns = "role, content, parts, timestamp, token_count, platform_message_id, extra, observed"
    conn.execute(
        f"INSERT INTO messages (session_id, {columns}) SELECT ?, {columns} FROM messages WHERE id = ?",
        (session_id, turn["user_message_id"]),
    )
    message_id = conn.last_insert_rowid()
    silence(conn, turn)
    conn.execute(
        "UPDATE turns SET session_id = ?, user_message_id = ? WHERE id = ?",
        (session_id, message_id, turn["id"]),
    )
    return message_id


def silence(conn: apsw.Connection, turn: Row) -> None:
    """Have the message of a turn count no more where it was said; the store keeps it."""
    conn.execute(
        "UPDATE messages SET active = 0 WHERE id = ?1 OR session_id = ?2 AND origin_id = ?1",
        (turn["user_message_id"], turn["session_id"]),
    )
    sessions.recount(conn, turn["session_id"])


def fold(conn: apsw.Connection, turn_id: str, into: str) -> int | None:
    """Say the message of a turn that waits to the one that runs; None when it waits no longer, or its
    chat has gone on in another conversation.
    """
    turn, runs = fetch(conn, turn_id), _running(conn, into)
    is_here = lineage.root(conn, turn["session_id"]) == lineage.root(conn, runs["session_id"])
    if turn["state"] != "accepted" or not is_here:
        return None
    text = user_text(conn, turn_id)
    withdraw(conn, turn_id, FOLDED)
    return _say(conn, runs, {"role": "user", "content": text})


def _say(conn: apsw.Connection, turn: Row, message: Mapping[str, Any]) -> int:
    """Store a message as part of a turn."""
    said = message_from(message)._replace(answers=turn["user_message_id"])
    return insert_message(conn, turn["session_id"], said)


def find(conn: apsw.Connection, turn_id: str) -> Row | None:
    """All columns of a turn, or None."""
    found = rows(conn.execute("SELECT * FROM turns WHERE id = ?", (turn_id,)))
    return found[0] if found else None


def user_text(conn: apsw.Connection, turn_id: str) -> str:
    """What the turn is to answer, as text."""
    found: Any = conn.execute(
        "SELECT coalesce(content, (SELECT group_concat(value ->> '$.text', char(10))"
        " FROM json_each(parts) WHERE value ->> '$.type' = 'text'), '') FROM messages WHERE id ="
        " (SELECT user_message_id FROM turns WHERE id = ?)",
        (turn_id,),
    ).get
    return found or ""


def fetch(conn: apsw.Connection, turn_id: str) -> Row:
    """All columns of a turn; raises StoreError."""
    turn = find(conn, turn_id)
    if turn is None:
        raise StoreError(f"There is no turn {turn_id}.")
    return turn


def _running(conn: apsw.Connection, turn_id: str) -> Row:
    turn = fetch(conn, turn_id)
    if turn["state"] != "running":
        raise StoreError(f"Turn {turn_id} is {turn['state']}, not running.")
    return turn


def unfinished(conn: apsw.Connection) -> list[Row]:
    """Turns without an end whose conversation nobody holds: what recovery has to look at."""
    return rows(
        conn.execute(
            "SELECT turns.*, sessions.conversation_id FROM turns"
            " JOIN sessions ON sessions.id = turns.session_id"
            " LEFT JOIN leases ON leases.conversation_id = sessions.conversation_id"
            " AND leases.expires_at > ?"
            " WHERE turns.state IN ('accepted', 'running') AND leases.conversation_id IS NULL"
            " ORDER BY turns.user_message_id",
            (clock.now(),),
        )
    )


def open_in(conn: apsw.Connection, conversation_id: str) -> list[Row]:
    """The open turns of a conversation, in their order."""
    return rows(
        conn.execute(
            "SELECT turns.* FROM turns JOIN sessions ON sessions.id = turns.session_id"
            " WHERE turns.state IN ('accepted', 'running') AND sessions.conversation_id = ?"
            " ORDER BY turns.user_message_id",
            (conversation_id,),
        )
    )


def open_from_chat(conn: apsw.Connection, session_key: str) -> list[Row]:
    """The open turns that came from a chat, in their order."""
    return rows(
        conn.execute(
            "SELECT turns.*, sessions.conversation_id FROM turns"
            " JOIN sessions ON sessions.id = turns.session_id JOIN inbox ON inbox.turn_id = turns.id"
            " WHERE turns.state IN ('accepted', 'running') AND inbox.payload ->> '$.session_key' = ?"
            " ORDER BY turns.user_message_id",
            (session_key,),
        )
    )


def count_open(conn: apsw.Connection, surface: str) -> int:
    """Count the open turns that came from a surface."""
    found = conn.execute(
        "SELECT count(*) FROM turns WHERE state IN ('accepted', 'running') AND surface = ?",
        (surface,),
    )
    return int(found.get or 0)


def open_of(conn: apsw.Connection, surfaces: Collection[str]) -> list[Row]:
    """The open turns that came from these surfaces: their ids and surfaces."""
    return rows(
        conn.execute(
            "SELECT id, surface FROM turns WHERE state IN ('accepted', 'running')"
            " AND surface IN (SELECT value FROM json_each(?))",
            (encode(list(surfaces)),),
        )
    )


def has_open(conn: apsw.Connection, worker: str) -> bool:
    """Return whether a worker has open turns."""
    found = conn.execute(
        "SELECT EXISTS (SELECT 1 FROM turns WHERE state IN ('accepted', 'running') AND worker = ?)",
        (worker,),
    )
    return bool(found.get)


def runnable(
    conn: apsw.Connection, worker: str, surfaces: Collection[str], conversations: Collection[str]
) -> list[Row]:
    """The open turns that this worker may run now: the first one of each conversation at most.

    A worker runs what it accepted; and where a worker is gone, what came from a surface that it serves
    or is in a conversation that it has open. What stands before such a turn it runs first, unless that
    belongs to another worker. A sub-agent's turn is left to its parent.

    Other turns that a worker which is gone had begun are found as well, with `is_due` 0: a surface may
    adopt them.
    """
    now = clock.now()
    return rows(
        conn.execute(
            "WITH open AS (SELECT turns.*, sessions.conversation_id,"
            " coalesce(turns.worker = ?1, 0) AS is_own,"
            " NOT EXISTS (SELECT 1 FROM workers WHERE workers.name = turns.worker"
            " AND workers.name <> ?1 AND workers.seen_at > ?2) AS is_free"
            " FROM turns JOIN sessions ON sessions.id = turns.session_id"
            " WHERE turns.state IN ('accepted', 'running')"
            " AND sessions.relation IS DISTINCT FROM 'delegate')"
            " SELECT * FROM (SELECT first.*, EXISTS (SELECT 1 FROM open AS due"
            " WHERE due.session_id = first.session_id"
            " AND (due.is_own OR due.is_free AND (due.surface IN (SELECT value FROM json_each(?3))"
            " OR due.conversation_id IN (SELECT value FROM json_each(?4))))) AS is_due"
            " FROM open AS first WHERE first.is_free"
            " AND NOT EXISTS (SELECT 1 FROM turns AS before WHERE before.session_id = first.session_id"
            " AND before.state IN ('accepted', 'running')"
            " AND before.user_message_id < first.user_message_id)"
            " AND NOT EXISTS (SELECT 1 FROM leases WHERE leases.expires_at > ?5"
            " AND leases.conversation_id = first.conversation_id))"
            " WHERE is_due OR state = 'running' ORDER BY user_message_id",
            (
                worker,
                now - workers.TTL_S,
                encode(list(surfaces)),
                encode(list(conversations)),
                now,
            ),
        )
    )


def unsent(conn: apsw.Connection, since: float, platforms: Collection[str]) -> list[Row]:
    """Turns that came from these platforms and ended since then, with nothing put down to be sent."""
    return rows(
        conn.execute(
            "SELECT turns.* FROM turns JOIN inbox ON inbox.turn_id = turns.id"
            " WHERE turns.ended_at >= ? AND turns.state IN ('answered', 'failed')"
            " AND inbox.platform IN (SELECT value FROM json_each(?))"
            " AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.turn_id = turns.id)"
            " ORDER BY turns.ended_at",
            (since, encode(list(platforms))),
        )
    )


def still_open(conn: apsw.Connection) -> list[Row]:
    """Turns without an end, also those that somebody runs now, in the order of their words."""
    return rows(
        conn.execute(
            "SELECT * FROM turns WHERE state IN ('accepted', 'running') ORDER BY user_message_id"
        )
    )


def of_session(conn: apsw.Connection, session_id: str) -> list[Row]:
    """The turns of a session, in the order they were accepted."""
    return rows(
        conn.execute(
            "SELECT * FROM turns WHERE session_id = ? ORDER BY accepted_at, rowid", (session_id,)
        )
    )


def known(conn: apsw.Connection, idempotency_key: str) -> str | None:
    """The turn that was accepted under a key."""
    return conn.execute("SELECT id FROM turns WHERE idempotency_key = ?", (idempotency_key,)).get


def opens(conn: apsw.Connection, turn_id: str) -> bool:
    """Whether a session was made with this turn, which has not begun: nobody has been told of either."""
    return bool(
        conn.execute(
            "SELECT count(*) FROM turns JOIN sessions ON sessions.id = turns.session_id"
            " WHERE turns.id = ? AND turns.state = 'accepted'"
            " AND sessions.relation IS NOT 'continuation'"
            " AND turns.accepted_at <= sessions.started_at AND NOT EXISTS (SELECT 1 FROM messages"
            " WHERE messages.session_id = sessions.id AND messages.id < turns.user_message_id)",
            (turn_id,),
        ).get
    )


def cut_short(conn: apsw.Connection, user_message_ids: Collection[int]) -> list[Row]:
    """The turns that failed or were stopped, of those that answer these messages."""
    return rows(
        conn.execute(
            "WITH asked AS (SELECT value AS id FROM json_each(?))"
            " SELECT * FROM turns WHERE state IN ('failed', 'interrupted')"
            " AND user_message_id IN (SELECT id FROM asked)"
            # What a turn answers may have been said before a compaction that came in its middle.
            # The plus keeps it off the index of sessions, which would read every turn of a long one.
            " AND +session_id IN (SELECT id FROM sessions WHERE conversation_id IN"
            " (SELECT conversation_id FROM sessions WHERE id IN"
            " (SELECT session_id FROM messages WHERE id IN (SELECT id FROM asked))))",
            (encode(list(user_message_ids)),),
        )
    )


class Turns:
    """The store's turns, one transaction a call."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def accept(  # noqa: PLR0913 -- all that comes with a message
        self,
        session_id: str,
        message: Mapping[str, Any],
        *,
        delivery: Delivery | None = None,
        idempotency_key: str | None = None,
        opening: Opening | None = None,
        reopens: bool = False,
        over: Collection[str] = (),
        replaces: int | None = None,
        only_if_idle: bool = False,
        source: TurnSource = NO_SOURCE,
    ) -> Accepted:
        return self._db.write(
            lambda c: accept(
                c,
                session_id,
                message,
                delivery=delivery,
                idempotency_key=idempotency_key,
                opening=opening,
                reopens=reopens,
                over=over,
                replaces=replaces,
                only_if_idle=only_if_idle,
                source=source,
            )
        )

    def start(self, turn_id: str, lease: Lease | None = None) -> int:
        return self._db.write(lambda c: start(c, turn_id, lease))

    def take(
        self, turn_id: str, conversation_id: str, holder: str, *, is_same: bool = False
    ) -> Taken | None:
        return self._db.write(lambda c: take(c, turn_id, conversation_id, holder, is_same=is_same))

    def put_off(self, turn_id: str, lease: Lease | None = None) -> None:
        self._db.write(lambda c: put_off(c, turn_id, lease))

    def step(
        self,
        turn_id: str,
        message: Mapping[str, Any],
        calls: Sequence[Call] = (),
        lease: Lease | None = None,
        receipt: Receipt | None = None,
    ) -> int:
        return self._db.write(lambda c: step(c, turn_id, message, calls, lease, receipt))

    def finish(
        self,
        turn_id: str,
        end: End,
        *,
        message: Mapping[str, Any] | None = None,
        reason: str | None = None,
        pieces: Sequence[Piece] = (),
        settled: Sequence[Settled] = (),
        lease: Lease | None = None,
        receipt: Receipt | None = None,
    ) -> int | None:
        return self._db.write(
            lambda c: finish(
                c,
                turn_id,
                end,
                message=message,
                reason=reason,
                pieces=pieces,
                settled=settled,
                lease=lease,
                receipt=receipt,
            )
        )

    def withdraw(self, turn_id: str, reason: str) -> None:
        self._db.write(lambda c: withdraw(c, turn_id, reason))

    def replace(
        self, turn_id: str, message: Mapping[str, Any], delivery: Delivery
    ) -> Accepted | None:
        return self._db.write(lambda c: replace(c, turn_id, message, delivery))

    def fold(self, turn_id: str, into: str) -> int | None:
        return self._db.write(lambda c: fold(c, turn_id, into))

    def get(self, turn_id: str) -> Row | None:
        return self._db.ask(lambda c: find(c, turn_id))

    def user_text(self, turn_id: str) -> str:
        return self._db.ask(lambda c: user_text(c, turn_id))

    def unfinished(self) -> list[Row]:
        return self._db.read(unfinished)

    def unsent(self, since: float, platforms: Collection[str]) -> list[Row]:
        return self._db.read(lambda c: unsent(c, since, platforms))

    def still_open(self) -> list[Row]:
        return self._db.read(still_open)

    def of_session(self, session_id: str) -> list[Row]:
        return self._db.read(lambda c: of_session(c, session_id))

    def known(self, idempotency_key: str) -> str | None:
        return self._db.ask(lambda c: known(c, idempotency_key))

    def opens(self, turn_id: str) -> bool:
        return self._db.ask(lambda c: opens(c, turn_id))

    def cut_short(self, user_message_ids: Collection[int]) -> list[Row]:
        return self._db.read(lambda c: cut_short(c, user_message_ids))
