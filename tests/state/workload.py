"""The scripted life of conversations, and whether a store shows an exact prefix of it.

A script is a generator that makes one write a step and yields once the write is acknowledged. Run
without disturbance it says what a store must show after each step; a disturbed store must show, for
every writer, what was acknowledged, or that and the one write that was under way.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hermes_core.errors import StoreError, TitleError
from hermes_state import SessionDB
from hermes_state.ledger import (
    checkpoints,
    effects,
    leases,
    lineage,
    messages,
    outbox,
    people,
    questions,
    routes,
    sessions,
    taint,
    turns,
    usage,
)
from hermes_state.store import Tx
from hermes_state.values import (
    Accepted,
    Call,
    Grant,
    InboundMessage,
    Lease,
    OutboundPart,
    Question,
    Route,
    Spent,
    Stranger,
    TaintSource,
)
from tests.support import findings

View = dict[str, tuple[tuple[Any, ...], ...]]
"""What a store shows of one script: its rows by table, with names and numbers that depend on the run
taken out."""


def conversation(store: SessionDB, name: str) -> Iterator[None]:
    """One life with all that can happen to a conversation; every step is one write."""
    chat = f"{name}:a"
    store.create_session(chat, "cli", model="scripted", session_key=f"{name}:key")
    yield
    store.set_session_title(chat, f"{name}: a chat")
    yield
    store.write(routes.save, Route(f"{name}:key", '{"kept": 1}'), chat)
    yield
    message_ids: list[int] = []
    for number in range(4):
        role = "assistant" if number % 2 else "user"
        _fail(store)
        message_ids.append(store.append_message(chat, role, f"{name}: message {number}"))
        yield
    yield from _turn_over_a_rotation(store, name, message_ids)
    yield from _undo_and_branch(store, name)
    yield from _failed_turn_and_delete(store, name)
    yield from _let_in_and_out(store, name)


def _fail(store: SessionDB) -> None:
    """A write that is refused; those that share its commit are run again, each in its savepoint."""
    with suppress(TitleError):
        store.set_session_title("nobody", "x" * 1_000)


def _turn_over_a_rotation(
    store: SessionDB, name: str, message_ids: Sequence[int]
) -> Iterator[None]:
    """A turn with tool calls; the conversation is compacted while it runs."""
    chat, child = f"{name}:a", f"{name}:b"
    lease = store.write(leases.acquire, chat, "worker")
    assert lease is not None
    yield
    turn_id = _accept(store, name, chat, "first").turn_id
    yield
    store.write(turns.start, turn_id, lease)
    yield
    calls = [Call("call 1", "clock", "{}", True), Call("call 2", "mail", "{}", False)]
    step = {"role": "assistant", "content": f"{name}: let me see", "tool_calls": [{"id": "call 1"}]}
    step_id = store.write(turns.step, turn_id, step, calls, lease)
    yield
    checkpoint = store.write(checkpoints.begin, turn_id, f"{name}:files", "tree 1", (), lease)
    yield
    store.write(checkpoints.amend, checkpoint, "tree 2")
    yield
    store.write(checkpoints.note_effect, turn_id, "call 2", "mail", "host", "example.org")
    yield
    first, second = (effect["id"] for effect in store.read(effects.of_turn, turn_id))
    store.write(effects.start, first, lease, reads=[TaintSource("private", "a clock")])
    yield
    result = {"role": "tool", "content": f"{name}: it is noon", "tool_call_id": "call 1"}
    store.write(effects.done, first, result, lease)
    yield
    summary = {"role": "user", "content": f"{name}: summary"}
    store.write(
        lineage.rotate, chat, [summary, message_ids[-1], step_id], child_id=child, lease=lease
    )
    yield
    store.write(effects.start, second, lease)
    yield
    result = {"role": "tool", "content": f"{name}: sent, perhaps", "tool_call_id": "call 2"}
    store.write(effects.unknown, second, result, lease)
    yield
    store.write(checkpoints.end, checkpoint, "tree 3", ["big.bin is too large"])
    yield
    store.write(checkpoints.mark_restored, [checkpoint])
    yield
    store.write(usage.record, child, Spent("scripted", input_tokens=100), turn_id=turn_id)
    yield
    yield from _answer_and_deliver(store, name, turn_id, lease)


def _ask(store: SessionDB, name: str, turn_id: str) -> Iterator[None]:
    """Three questions: one is answered, one is cancelled, one cannot be shown; a yes is revoked."""
    ids: list[str] = []
    for number in range(3):
        question = Question(turn_id, "call 2", "approval", "mail", f"{name}: send {number}?")
        ids.append(store.write(questions.ask, question)["id"])
        yield
    store.write(questions.answer, ids[0], "always", by="tester")
    yield
    store.write(questions.grant, Grant(f"{name}:mail", "mail", "a friend"), f"{name}:a")
    yield
    store.write(questions.cancel, ids[1])
    yield
    key = questions.part_name(ids[2])
    parts = [
        OutboundPart("chat", f"{name}:asked", f"{name}: part {n}", key=f"{key}:{n}")
        for n in range(2)
    ]
    store.write(outbox.add, parts)
    yield
    store.write(questions.fail, ids[2], "the chat is closed")
    yield
    store.write(questions.revoke, f"{name}:mail", f"{name}:a")
    yield


def _answer_and_deliver(store: SessionDB, name: str, turn_id: str, lease: Lease) -> Iterator[None]:
    yield from _ask(store, name, turn_id)
    pieces = [OutboundPart("chat", f"{name}:room", f"{name}: piece {n}") for n in range(2)]
    answer = {"role": "assistant", "content": f"{name}: answer"}
    store.write(turns.finish, turn_id, "answered", message=answer, parts=pieces, lease=lease)
    yield
    first_id, second_id = (piece["id"] for piece in store.read(outbox.of_turn, turn_id))
    store.write(outbox.begin, first_id)
    yield
    store.write(outbox.sent, first_id, "sent 1")
    yield
    store.write(outbox.begin, second_id)
    yield
    store.write(outbox.retry, second_id, "try again", 0.0)
    yield


def _undo_and_branch(store: SessionDB, name: str) -> Iterator[None]:
    """The compaction is undone and made again; a branch comes and goes."""
    chat, child, branch = f"{name}:a", f"{name}:c", f"{name}:d"
    store.write(lineage.undo_rotation, chat)
    yield
    store.append_message(chat, "user", f"{name}: after the undo")
    yield
    store.write(
        lineage.rotate,
        chat,
        [{"role": "user", "content": f"{name}: second summary"}],
        child_id=child,
    )
    yield
    last = store.append_message(child, "user", f"{name}: take this back")
    yield
    store.write(messages.rewind, child, last)
    yield
    store.write(messages.restore, child, last)
    yield
    store.write(taint.note, child, [TaintSource("outside", "a host")])
    yield
    store.write(lineage.branch, child, child_id=branch)
    yield
    store.append_message(branch, "user", f"{name}: in the branch")
    yield
    store.end_session(branch, "done")
    yield
    store.write(sessions.set_archived, branch, True)
    yield
    store.write(sessions.delete, [branch])
    yield
    store.append_messages(
        child, [{"role": "user", "content": f"{name}: batch {number}"} for number in range(3)]
    )
    yield


def _failed_turn_and_delete(store: SessionDB, name: str) -> Iterator[None]:
    """A second conversation whose turn fails, and which is then deleted with all that it had."""
    chat = f"{name}:e"
    store.create_session(chat, "cli")
    yield
    turn_id = _accept(store, name, chat, "second").turn_id
    yield
    store.write(turns.finish, turn_id, "failed", reason="no model")
    yield
    store.write(sessions.delete, [chat])
    yield
    store.end_session(f"{name}:c", "done")
    yield
    store.write(sessions.reopen, f"{name}:c")
    yield


def _let_in_and_out(store: SessionDB, name: str) -> Iterator[None]:
    """Two strangers, a wrong code and a right one; who was let in is put out again."""
    platform = f"{name}:chat"
    for user_id in ("1", "2"):
        store.write(people.add_stranger, Stranger(platform, user_id, "room"), f"CODE {user_id}")
        yield
    store.write(people.redeem, "WRONG", "terminal", platform=platform)
    yield
    store.write(people.redeem, "CODE 1", "terminal", platform=platform, role="guest")
    yield
    store.write(people.remove, platform, "1")
    yield


def _accept(store: SessionDB, name: str, chat: str, which: str) -> Accepted:
    return store.write(
        turns.accept,
        chat,
        {"role": "user", "content": f"{name}: {which} question"},
        inbound=InboundMessage("chat", f"{name}:room", which),
        idempotency_key=f"{name}:{which}",
        brings=[TaintSource("outside", f"the {which} message")],
    )


# -- what a store shows ------------------------------------------------------------------------

_QUERIES = {
    "sessions": "SELECT id, parent_session_id, relation, conversation_id, depth, is_tip, title,"
    " preview, end_reason, archived, message_count, tool_call_count, rewind_count, api_call_count,"
    " input_tokens FROM sessions ORDER BY id",
    "messages": "SELECT m.session_id, m.role, m.content, m.kind, m.active, m.tool_call_id, o.content"
    " FROM messages AS m LEFT JOIN messages AS o ON o.id = m.origin_id ORDER BY m.id",
    "turns": "SELECT t.session_id, t.idempotency_key, t.state, t.attempts, t.reason, u.content,"
    " f.content FROM turns AS t LEFT JOIN messages AS u ON u.id = t.user_message_id"
    " LEFT JOIN messages AS f ON f.id = t.final_message_id ORDER BY t.idempotency_key",
    "effects": "SELECT t.session_id, e.tool_call_id, e.state, r.content FROM effects AS e"
    " JOIN turns AS t ON t.id = e.turn_id LEFT JOIN messages AS r ON r.id = e.result_message_id"
    " ORDER BY e.id",
    "checkpoints": "SELECT workspace, before, after, notes, restored_at IS NULL FROM checkpoints"
    " ORDER BY id",
    "lasting_effects": "SELECT t.session_id, e.tool_call_id, e.kind, e.detail FROM lasting_effects"
    " AS e JOIN turns AS t ON t.id = e.turn_id ORDER BY 1, 2",
    "questions": "SELECT t.session_id, q.text, q.state, q.answer FROM questions AS q"
    " JOIN turns AS t ON t.id = q.turn_id ORDER BY 1, 2",
    "grants": "SELECT key, scope, subject FROM grants ORDER BY 1",
    "inbox": "SELECT chat_id, message_id, outcome, turn_id IS NOT NULL FROM inbox ORDER BY 1, 2",
    "outbox": "SELECT chat_id, content, piece, state, attempts, platform_message_id, error"
    " FROM outbox ORDER BY id",
    "routes": "SELECT session_key, session_id, entry FROM routes ORDER BY session_key",
    "leases": "SELECT conversation_id, holder, token, expires_at = 0 FROM leases ORDER BY 1",
    "usage": "SELECT session_id, model, input_tokens FROM usage ORDER BY id",
    "taint": "SELECT session_id, kind, source, turn_id IS NOT NULL FROM taint ORDER BY 1, 2, 3",
    "people": "SELECT platform, user_id, role FROM people ORDER BY 1, 2",
    "pairings": "SELECT platform, user_id FROM pairings ORDER BY 1, 2",
    "pairing_failures": "SELECT platform, failures FROM pairing_failures ORDER BY 1",
}


def views(store: SessionDB) -> dict[str, View]:
    """What the store shows, one view a script, from one snapshot."""
    return store.read(_views)


def _views(conn: Tx) -> dict[str, View]:
    grouped: dict[str, dict[str, list[tuple[Any, ...]]]] = defaultdict(lambda: defaultdict(list))
    for table, sql in _QUERIES.items():
        for row in conn.tuples(sql):
            name = row[0].split(":", 1)[0]
            grouped[name][table].append(_anonymous(row, f"{name}:"))
    return {
        name: {table: tuple(found) for table, found in tables.items()}
        for name, tables in grouped.items()
    }


def _anonymous(row: tuple[Any, ...], prefix: str) -> tuple[Any, ...]:
    return tuple(value.replace(prefix, "") if isinstance(value, str) else value for value in row)


def undisturbed() -> list[View]:
    """What a store shows after each step of a script that nothing disturbs; first, before any."""
    with SessionDB.in_memory() as store:
        return [{}, *(views(store)["script"] for _ in conversation(store, "script"))]


# -- the verdict -------------------------------------------------------------------------------


@dataclass
class Findings(findings.Findings):
    """What was acknowledged, and what is wrong with a store after it was disturbed."""

    harmless = frozenset({"acknowledged"})
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    disordered: int = 0
    integrity: int = 0
    half_rotations: int = 0
    illegal: int = 0
    errors: int = 0


class Expectation(NamedTuple):
    """The views a script goes through."""

    views: list[View]

    @property
    def length(self) -> int:
        """The steps of one script."""
        return len(self.views) - 1

    def after(self, steps: int, cycle: int) -> View:
        """What must be seen of the script number `cycle` of a thread that has made so many steps."""
        return self.views[min(max(steps - cycle * self.length, 0), self.length)]


def inspect(path: Path, acknowledged: Mapping[str, int], expected: Expectation) -> Findings:
    """Open a store as the next process would, and compare it with what its writers were told."""
    try:
        with SessionDB(path) as store:
            found = verify(store, acknowledged, expected)
        SessionDB(path).close()  # opened once, it must open again
    except StoreError as error:
        found = Findings(acknowledged=sum(acknowledged.values()), integrity=1, notes=[str(error)])
    return found


def search_finds_all(path: Path) -> Findings:
    """Whether the index, however it was left, leads to every message that is stored."""
    with SessionDB(path) as store:
        stored = store.read(
            lambda c: c.value(
                "SELECT count(*) FROM messages WHERE kind = 'message'"
                " AND content LIKE '%: message 0'"
            )
        )
        hits = len(store.search_messages('"message 0"', limit=stored + 10))
    if hits == stored:
        return Findings()
    return Findings(errors=1, notes=[f"search finds {hits} of {stored} messages"])


def verify(
    store: SessionDB, acknowledged: Mapping[str, int], expected: Expectation, *, spare: int = 1
) -> Findings:
    """Compare a store with what its writers were told: `thread` to steps acknowledged.

    Scripts of a thread are named `<thread>c<number>`. `spare` writes that were under way may be there.
    """
    found = Findings(acknowledged=sum(acknowledged.values()))
    for problem in store.check():
        found.integrity += 1
        found.notes.append(problem)
    by_thread: dict[str, dict[int, View]] = defaultdict(dict)
    for name, view in views(store).items():
        thread, _, cycle = name.rpartition("c")
        by_thread[thread][int(cycle)] = view
    for thread in by_thread.keys() | acknowledged.keys():
        _compare(thread, by_thread[thread], acknowledged.get(thread, 0), expected, spare, found)
    return found


def _compare(
    thread: str,
    seen: Mapping[int, View],
    acknowledged: int,
    expected: Expectation,
    spare: int,
    found: Findings,
) -> None:
    cycles = range(max([acknowledged // expected.length + 1, *seen]) + 1)
    for steps in range(acknowledged, acknowledged + spare + 1):
        if all(seen.get(cycle, {}) == expected.after(steps, cycle) for cycle in cycles):
            return
    for cycle in cycles:
        must, may = expected.after(acknowledged, cycle), expected.after(acknowledged + spare, cycle)
        actual = seen.get(cycle, {})
        if actual not in (must, may):
            if actual in expected.views:
                found.lost += max(expected.views.index(must) - expected.views.index(actual), 0)
                found.illegal += expected.views.index(actual) > expected.views.index(may)
            else:
                _diagnose(actual, must, may, found)
            found.notes.append(
                f"{thread}c{cycle}, {acknowledged} acknowledged: {_difference(actual, must)}"
            )


def _diagnose(actual: View, must: View, may: View, found: Findings) -> None:
    here, there, further = (Counter(view.get("messages", ())) for view in (actual, must, may))
    missing = sum((there & further).values()) - sum((here & there & further).values())
    surplus = sum((here - (there | further)).values())
    found.lost += missing
    found.doubled += surplus
    if not missing and not surplus:
        if actual.get("messages", ()) not in (must.get("messages", ()), may.get("messages", ())):
            found.disordered += 1
        elif any(
            actual.get(t, ()) not in (must.get(t, ()), may.get(t, ()))
            for t in ("sessions", "routes")
        ):
            found.half_rotations += 1
        else:
            found.illegal += 1


def _difference(actual: View, must: View) -> str:
    texts: list[str] = []
    for table in _QUERIES:
        here, there = Counter(actual.get(table, ())), Counter(must.get(table, ()))
        if here != there:
            texts.append(f"{table}: missing {list(there - here)}, surplus {list(here - there)}")
    return "; ".join(texts) or "the order of rows"
