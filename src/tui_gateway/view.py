"""A conversation as a client finds it: what was said, what runs, what waits, what is asked."""

from contextlib import AbstractContextManager
from threading import Lock
from typing import Any, TypedDict
from weakref import WeakValueDictionary

from hermes_core.loading import loading
from hermes_protocol.errors import NOT_STORED
from hermes_state.ledger import lineage, questions, sessions, titles, turns
from hermes_state.ledger import messages as message_ledger
from hermes_state.store import Store
from hermes_state.values import Row
from tui_gateway import info, line
from tui_gateway.projection import TURN_END, context_of, projected
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import Live, LiveSession, Runtime

PAGE = 50
_SHOWN = 200
_deciding: WeakValueDictionary[str, Lock] = WeakValueDictionary()
_choosing = Lock()


def deciding(store: Store, key: str) -> AbstractContextManager[bool]:
    """Held while it is found out whether a conversation is open and what follows from that is done, so
    that it is opened once, and not deleted while it is being opened. Others do not wait for it.
    """
    with _choosing:
        return _deciding.setdefault(store.read(lineage.root, key), Lock())


class Snapshot(TypedDict):
    """An open session at this moment. What the running turn has done is in `inflight`."""

    session_id: str
    session_key: str
    stored_session_id: str
    resumed: str
    message_count: int
    messages: list[dict[str, Any]]
    info: dict[str, Any]
    inflight: dict[str, Any] | None
    queued: list[line.Prompt]
    running: bool
    started_at: float
    status: str


def snapshot(rt: Runtime, sid: str, limit: int | None) -> Snapshot:
    """What a client needs that comes in the middle; it watches the session from now on."""
    session, store = rt.session(sid), rt.db()
    live, key = rt.live(session), info.key_of(session)
    rt.watch(session)
    row = store.read(sessions.find, store.read(lineage.tip, key))
    tools = _running_tools(session, live)  # before the transcript: one that ends now is in both
    said = transcript(store, key, limit) or live.seed
    live.shown = max((message.get("id") or 0 for message in said), default=0)
    live.rewinds = info.rewinds_of(store, key)
    messages, inflight = _parted(store, live, said, tools)
    described = info.describe(rt, session)
    if row is not None:  # known before there is an agent
        described |= {"title": row["title"] or "", "usage": info.usage(rt, session)}
    rt.afterwards(lambda: _ask_again(rt, sid, session))
    return {
        "session_id": sid,
        "session_key": key,
        "stored_session_id": key,
        "resumed": key,
        "message_count": row["message_count"] if row else len(live.seed),
        "messages": projected(messages),
        "info": described,
        "inflight": inflight,
        "queued": line.queued(live),
        "running": bool(session.get("running")),
        "started_at": row["started_at"] if row else live.created_at,
        "status": status_of(rt, session),
    }


def tell_growth(rt: Runtime, sid: str, session: LiveSession) -> bool:
    """Tell the clients of a session that nothing runs in when another process has answered in its
    conversation; returns whether one has.
    """
    live = rt.live(session)
    if session.get("running") or live.is_closing or not live.watchers:
        return False
    latest = rt.db().read(message_ledger.page, info.key_of(session), None, PAGE)
    new = [one["id"] for one in latest if one["id"] > live.shown and _exchange(one) not in live.own]
    rewinds = info.rewinds_of(rt.db(), info.key_of(session))
    is_cut = rewinds[0] == live.rewinds[0] and rewinds != live.rewinds
    if session.get("running") or not (new or is_cut):
        return False
    live.shown, live.rewinds = max(new, default=live.shown), rewinds
    payload = {"reason": "elsewhere", "stored_session_id": info.key_of(session)}
    rt.emit("session.changed", sid, payload)
    return True


def stored(store: Store, name: str) -> str:
    """The session where a stored conversation is now: by id, title, or beginning of an id."""
    found = store.read(titles.meant, name)
    if found is None:
        raise RpcError(
            NOT_STORED,
            f"There is no conversation {name[:_SHOWN]!r}.",
            fix="`hermes sessions list` shows them.",
        )
    return store.read(lineage.tip, found)


def opened(rt: Runtime, key: str) -> str | None:
    """The open session in the conversation of a stored one; one that is being ended is waited for."""
    store = rt.db()
    root = store.read(lineage.root, key)

    def is_meant(session: LiveSession) -> bool:
        return store.read(lineage.root, info.key_of(session)) == root

    for sid, session in list(rt.sessions.items()):
        if is_meant(session):
            return sid
    rt.wait_for_end(is_meant)
    return None


def transcript(
    store: Store, key: str, limit: int | None, before_id: int | None = None
) -> list[Row]:
    """The originals of a conversation, or a page of them; unanswered turns are marked at their end."""
    if limit is None and before_id is None:
        found = store.read(message_ledger.as_conversation, key, include_ancestors=True)
    else:
        found = store.read(message_ledger.page, key, before_id, PAGE if limit is None else limit)
    following = (
        store.read(message_ledger.page, key, before_id + 1, 1) if before_id is not None else []
    )
    return _ended(store, _led_up_to(store, key, found), following)


def _led_up_to(store: Store, key: str, messages: list[Row]) -> list[Row]:
    """Have results at the top of a page, whose step is on the one before, know their calls."""
    if messages and messages[0]["role"] == "tool":
        earlier = store.read(message_ledger.page, key, messages[0]["id"], PAGE)
        steps = (one["tool_calls"] for one in reversed(earlier) if one.get("tool_calls"))
        messages[0]["tool_calls"] = next(steps, None)
    return messages


def _ended(store: Store, messages: list[Row], following: list[Row]) -> list[Row]:
    """Have the last message of a turn that failed or was stopped say so."""
    exchanges = [_exchange(message) for message in (*messages, *following)]
    cut = {row["user_message_id"]: row for row in store.read(turns.cut_short, set(exchanges))}
    for message, own, after in zip(messages, exchanges, [*exchanges[1:], None], strict=False):
        if own != after and own in cut:
            message[TURN_END] = _end_of(cut[own])
    return messages


def _end_of(turn: Row) -> dict[str, str]:
    """In the words of `message.complete`."""
    if turn["state"] == "interrupted":
        return {"status": "interrupted"}
    return {"status": "error", "error": turn["reason"] or ""}


def _running_tools(session: LiveSession, live: Live) -> list[dict[str, str]]:
    """The calls that run, as `tool.start` and `tool.progress` told of them."""
    if session.get("tool_progress_mode", "all") == "off":
        return []
    return [
        {
            "tool_id": one.tool_id,
            "name": one.name,
            "context": context_of(one.arguments),
            "text": one.output,
        }
        for one in list(live.tools.values())
    ]


def _parted(
    store: Store, live: Live, messages: list[Row], tools: list[dict[str, str]]
) -> tuple[list[Row], dict[str, Any] | None]:
    """What is over, and the turn that runs; prompts that wait are in neither."""
    with live.lock:
        current, waiting = live.current, list(live.queue)
        streamed = "".join(live.streamed)
    begun = {one.turn_id: _user_message(store, one.turn_id) for one in (current, *waiting) if one}
    first = min(begun.values(), default=None)
    if first is None:
        return messages, None
    over = [message for message in messages if _exchange(message) < first]
    if current is None:
        return over, None
    steps = [m for m in messages if m.get("answers") == begun[current.turn_id]]
    ended = {step.get("tool_call_id") for step in steps}
    given = line.prompt(current)
    return over, {
        "turn_id": current.turn_id,
        "user": given["text"],
        "images": given.get("images", []),
        "messages": projected(steps),
        "tools": [one for one in tools if one["tool_id"] not in ended],
        "assistant": streamed,
        "streaming": True,
    }


def _user_message(store: Store, turn_id: str) -> int:
    row = store.read(turns.find, turn_id)
    return row["user_message_id"] if row is not None else 2**63 - 1


def _exchange(message: Row) -> int:
    """The user message that a message belongs to; one that a client brought along is old."""
    return message.get("answers") or message.get("origin_id") or message.get("id") or 0


def status_of(rt: Runtime, session: LiveSession) -> str:
    """What a session does: waiting (for a person), starting, working or idle."""
    if session.get("running"):
        return "waiting" if questions_of(rt, session) else "working"
    has_failed = rt.live(session).error is not None
    return "idle" if session.get("agent") is not None or has_failed else "starting"


def questions_of(rt: Runtime, session: LiveSession) -> list[Row]:
    """What the conversation of a session asks a person, sub-agents included."""
    store = rt.db()
    root = store.read(lineage.root, info.key_of(session))
    return [
        row for row in store.read(questions.pending) if _origin(store, row["session_id"]) == root
    ]


def _origin(store: Store, session_id: str) -> str:
    """The conversation that a person sees of a session: a sub-agent's is its parent's."""
    row = store.read(sessions.find, session_id)
    while row is not None and row["relation"] == "delegate":
        row = store.read(sessions.find, row["parent_session_id"])
    return row["conversation_id"] if row is not None else session_id


def _ask_again(rt: Runtime, sid: str, session: LiveSession) -> None:
    """A client that comes in the middle is told what waits for an answer."""
    # brings the events of the agent, which a session that asks something has loaded
    with loading:
        from tui_gateway.translation import request_of  # noqa: PLC0415

    for question in questions_of(rt, session):
        kind, payload = request_of(rt, session, question)
        rt.emit(kind, sid, payload)
