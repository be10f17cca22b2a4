"""Agents of scenarios: objects that only have `run_conversation`, put into a session by hand.

The specification's scenarios pin how such a session answers `prompt.submit`
(docs/reference/pins.md). They know nothing of turns, and their store may be a double, so the engine
cannot run them: this module accepts the prompt, calls the agent, and stores the end.
"""

from contextlib import nullcontext
from typing import Any, cast

from hermes_core.errors import HermesError
from hermes_protocol import events
from hermes_protocol.errors import NO_AGENT
from hermes_state.ledger import turns
from tui_gateway import info, stored_session
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import LiveSession, Runtime

Json = dict[str, Any]


def is_foreign(session: LiveSession) -> bool:
    """Return whether the agent of a session is not ours."""
    if session.get("agent") is None:
        return False
    from hermes_agent.agent import Agent  # noqa: PLC0415 -- loaded with the first agent

    return not isinstance(session.get("agent"), Agent)


def submit(rt: Runtime, session: LiveSession, content: Any, key: str | None) -> Json:  # noqa: ANN401
    """Accept a prompt and have the agent answer it in a thread of its own."""
    accepted = rt.db().write(
        turns.accept,
        info.key_of(session),
        {"role": "user", "content": content},
        idempotency_key=key,
        new_session=stored_session.opening_of(session, rt.live(session)),
        reopens=True,
    )
    session["running"] = True
    rt.run_after_answer(lambda: rt.spawn(lambda: _run(rt, session, accepted.turn_id, content)))
    return {"status": "streaming", "turn_id": accepted.turn_id}


def interrupt(session: LiveSession) -> None:
    """Interrupt the agent, if it works and can be."""
    if session.get("running") and (stop := getattr(session.get("agent"), "interrupt", None)):
        stop()


def _run(rt: Runtime, session: LiveSession, turn_id: str, content: Any) -> None:  # noqa: ANN401
    sid = rt.live(session).sid
    try:
        result = _ask(rt, sid, session, turn_id, content)
    except HermesError as error:
        result = {"error": str(error), "failed": True}
    finally:
        session["running"] = False
    text = str(result.get("final_response") or "")
    error = result.get("error")
    status = "error" if error else "interrupted" if result.get("interrupted") else "complete"
    displayed = text or (f"Error: {error}" if error else "")
    rt.emit(sid, events.Complete(displayed, status, turn_id))


def _ask(rt: Runtime, sid: str, session: LiveSession, turn_id: str, content: Any) -> Json:  # noqa: ANN401
    agent, version = session.get("agent"), session.get("history_version", 0)

    def stream(text: str) -> None:
        rt.emit(sid, events.Delta(text))

    result: object = cast("Any", agent).run_conversation(
        content,
        conversation_history=list(session.get("history", [])),
        stream_callback=stream,
    )
    if not isinstance(result, dict):
        raise RpcError(NO_AGENT, f"The agent answered with {type(result).__name__}.")
    found = cast("Json", result)
    _store_end(rt, turn_id, found)
    messages = found.get("messages")
    with session.get("history_lock") or nullcontext():
        if isinstance(messages, list) and session.get("history_version", 0) == version:
            session["history"] = cast("list[Json]", messages)
            session["history_version"] = version + 1
    rt.sync_key(sid, session, clear_pending_title=False)
    if not found.get("error"):
        stored_session.apply_title(rt, session)
    return found


def _store_end(rt: Runtime, turn_id: str, result: Json) -> None:
    store, text, error = rt.db(), result.get("final_response"), result.get("error")
    end = "failed" if error else "interrupted" if result.get("interrupted") else "answered"
    message = {"role": "assistant", "content": text} if text else None
    store.write(turns.start, turn_id)
    store.write(turns.finish, turn_id, end, message=message, reason=str(error) if error else None)
