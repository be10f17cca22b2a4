"""Undo: a request and everything after it leaves the conversation; the store keeps it."""

from collections.abc import Sequence
from typing import Any

from hermes_agent import history, lease
from hermes_protocol.errors import OUT_OF_RANGE
from hermes_state.ledger import lineage, messages
from hermes_state.store import Store
from hermes_state.values import Row, TaintSource
from tui_gateway import info, prompts
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import LiveSession, Runtime


def undo_last(rt: Runtime, session: LiveSession) -> int:
    """Undo the last exchange; return how many messages are undone."""
    with rt.live(session).lock:  # a prompt that comes now is not what is meant
        store, key = _idle_store(rt, session)
        return _rewind(rt, store, session, history.last_request(store, key))


def request(rt: Runtime, session: LiveSession, ordinal: int) -> int:
    """Return the id of the user message with this number, counted from 0 as a client sees them.

    Raises RpcError when it cannot be undone: a message to a running turn is part of its exchange.
    """
    store, key = _idle_store(rt, session)
    originals = history.user_messages(store.read(messages.originals, key))
    if not 0 <= ordinal < len(originals):
        raise RpcError(
            OUT_OF_RANGE, f"There is no user message {ordinal}; there are {len(originals)}."
        )
    if originals[ordinal].get("answers") is not None:
        raise RpcError(
            OUT_OF_RANGE,
            "This message to a running turn cannot be undone alone.",
            fix="Undo the message that the turn answers.",
        )
    number = _number(originals[ordinal])
    for message in history.undoable(store.read(messages.as_conversation, key)):
        if _number(message) == number:
            return message["id"]
    raise RpcError(
        OUT_OF_RANGE,
        "This message, or one after it, was compacted; it cannot be undone.",
        fix=history.undo_hint(store, key),
    )


def resubmit(
    rt: Runtime,
    session: LiveSession,
    content: Any,  # noqa: ANN401 -- text or parts
    message_id: int,
    key: str | None = None,
    brings: Sequence[TaintSource] = (),
) -> dict[str, Any]:
    """Submit a prompt in the place of a user message and all after it, in one transaction."""
    with rt.live(session).lock:
        store, _ = _idle_store(rt, session)
        lease.expire_dead_leases(store)
        answer = prompts.submit(rt, session, content, key, replaces=message_id, brings=brings)
        transcript = store.read(messages.as_conversation, info.key_of(session))
        _follow(rt, session, transcript[:-1])
        return answer


def _idle_store(rt: Runtime, session: LiveSession) -> tuple[Store, str]:
    prompts.check_idle(rt, session)
    store = rt.db()
    return store, store.read(lineage.tip, info.key_of(session))


def _rewind(rt: Runtime, store: Store, session: LiveSession, message: Row) -> int:
    root = store.read(lineage.root, info.key_of(session))
    with lease.held(store, root, lambda: None):
        key = store.read(lineage.tip, root)
        result = store.write(messages.rewind, key, message["id"])
    _follow(rt, session, store.read(messages.as_conversation, key))
    return result["rewound_count"]


def _follow(rt: Runtime, session: LiveSession, transcript: list[Row]) -> None:
    """Bring the session and its clients up to date after an undo."""
    agent = session.get("agent")
    with rt.live(session).lock:
        session["history_version"] = session.get("history_version", 0) + 1
        if agent is not None and session.get("history"):  # others look into the store
            session["history"] = agent._session_messages = transcript
    rt.live(session).rewinds = info.rewinds_of(rt.db(), info.key_of(session))
    info.estimate(rt, session)
    info.notify_changed(rt, session, "undo")


def _number(message: Row) -> int:
    """Return what a message and its copies have in common."""
    return message.get("origin_id") or message["id"]
