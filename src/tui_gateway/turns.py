"""Running the turns of a session, one after the other, in a thread that lives as long as any wait."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, cast

import msgspec

from hermes_agent import lease
from hermes_cli import plugins
from hermes_core.errors import (
    ConversationBusyError,
    HermesError,
    LeaseLostError,
    StoreError,
)
from hermes_protocol.errors import NO_AGENT
from hermes_state.ledger import lineage
from hermes_state.ledger import turns as turn_ledger
from hermes_state.store_retry import StoreRetry
from tui_gateway import agents, info, line
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import Live, LiveSession, Runtime, Waiting

if TYPE_CHECKING:
    from hermes_agent.turn.values import Outcome
    from hermes_state.store import Store

logger = logging.getLogger(__name__)

_LOOK_AGAIN_S = 0.1
_ASK_AGAIN_S = 1.0
_STOPPED = "stopped by the user"

Result = dict[str, Any]


def run_waiting(rt: Runtime, sid: str, session: LiveSession, live: Live) -> None:
    """Answer what waits until nothing does. The boundary of a turn: what fails is told, once.

    `live` is the session as it was when this was due: it may have been moved to another conversation.
    """
    waiting = _first(rt, session, live)
    while waiting is not None:
        try:
            _run(rt, sid, session, waiting)
        except _OvertakenError:
            _put_back(live, waiting)
        except LeaseLostError as error:  # whoever has it now ends it
            _tell_failure(rt, sid, session, waiting, str(error))
        except HermesError as error:
            _fail(rt, sid, session, waiting, str(error))
        except Exception as error:
            logger.exception("turn %s failed", waiting.turn_id)
            _fail(rt, sid, session, waiting, f"Something went wrong: {error!r}")
        _line_up_unheard(live)
        ended, waiting = waiting, _next(rt, session, live)
        ended.done.set()
        if not live.is_closing:
            info.tell(rt, sid, session)


class _OvertakenError(Exception):
    """What another process left unfinished comes before this turn."""


def _put_back(live: Live, waiting: Waiting) -> None:
    """Have a turn wait again, after what came before it and before what came later."""
    again = msgspec.structs.replace(waiting, done=threading.Event())  # this run of it is over
    with live.lock:
        live.queue = deque(sorted((*live.queue, again), key=lambda one: one.came))


def _first(rt: Runtime, session: LiveSession, live: Live) -> Waiting | None:
    """What this thread was started for, if it was one prompt: it may have been stopped already."""
    with live.lock:
        begun = live.current if live.is_over or not live.is_closing else None
    return begun or _next(rt, session, live)


def _next(rt: Runtime, session: LiveSession, live: Live) -> Waiting | None:
    with live.lock:
        following = live.queue.popleft() if live.queue and not live.is_closing else None
        live.begin(following)
        if session.get("live", live) is live:
            session["running"] = following is not None
    line.tell(rt, live)
    return following


def _line_up_unheard(live: Live) -> None:
    """What was said to a turn that ended before it heard it is a prompt of its own, in its place."""
    with live.lock:
        live.takes_steers = False
        unheard, live.steering = live.steering, []
        late = [one.waiting for one in unheard if one.waiting is not None]
        live.queue = deque(sorted((*live.queue, *late), key=lambda one: one.came))
    for one in unheard:
        one.tell("queued")


def _run(rt: Runtime, sid: str, session: LiveSession, waiting: Waiting) -> None:
    _wait_for_agent(rt, sid, session, waiting)
    if rt.live(session).is_closing and not waiting.stop.is_set:
        return  # it stays in the store as it is, and goes on when the conversation is resumed
    if waiting.makes_session:
        _tell_start(rt, session, waiting)
    if waiting.stop.is_set:
        rt.db().write(turn_ledger.finish, waiting.turn_id, "interrupted", reason=_STOPPED)
        _tell_end(rt, sid, waiting, _completion(waiting, "", "interrupted"))
        return
    _begin(rt, sid, session, waiting)
    version = session.get("history_version", 0)
    result = _ask(rt, sid, session, waiting)
    if not isinstance(result, dict):
        raise RpcError(NO_AGENT, f"The agent answered with {type(result).__name__}.")
    told = cast("Result", result)
    if not _knows_turns(session.get("agent")):
        _settle(rt, waiting, told)
    if told.get("failed"):
        _end_on_disk(rt, sid, session, waiting, str(told.get("error") or ""))
    warning = _take_over(session, told, version)
    rt.sync_key(sid, session, clear_pending_title=False)
    _complete(rt, sid, session, waiting, told, warning)


def _wait_for_agent(rt: Runtime, sid: str, session: LiveSession, waiting: Waiting) -> None:
    if session.get("agent") is not None:
        return
    agents.begin(rt, sid, session)
    live, hopeful = rt.live(session), None
    while not waiting.stop.is_set and not live.is_closing:
        if not live.ready.wait(_LOOK_AGAIN_S):
            continue
        if live.error is None:
            return
        if live.error is not hopeful:
            hopeful = _hope(rt, sid, session, waiting)
        waiting.stop.is_set_within(_LOOK_AGAIN_S)


def _hope(rt: Runtime, sid: str, session: LiveSession, waiting: Waiting) -> HermesError:
    """A prompt waits for a model that can be fetched; without that hope its turn fails."""
    live = rt.live(session)
    assert live.error is not None
    is_offered = bool(info.describe(rt, session).get("offer"))
    if not is_offered or not (live.waits_for_model or waiting.is_recovered):
        rt.db().write(turn_ledger.finish, waiting.turn_id, "failed", reason=str(live.error))
        raise live.error
    rt.emit("status.update", sid, {"kind": "waiting", "text": "waits for a model"})
    return live.error


def _tell_start(rt: Runtime, session: LiveSession, waiting: Waiting) -> None:
    """Tell it before the turn begins; who stops the turn does not wait for a plugin that is slow."""
    are_loaded = session.get("agent") is not None
    if are_loaded and not plugins.has_hook("on_session_start"):
        return
    is_told = threading.Event()

    def tell() -> None:
        try:
            tell_start(rt, session)
        finally:
            is_told.set()

    rt.spawn(tell)
    while not is_told.wait(_LOOK_AGAIN_S) and not waiting.stop.is_set:
        pass


def tell_start(rt: Runtime, session: LiveSession) -> None:
    """The hook for a session that its first message, its title or a branch has made."""
    with suppress(HermesError):  # whoever needs what cannot be had says so
        rt.assembly()  # loads the plugins
    plugins.invoke_hook(
        "on_session_start",
        session_id=info.key_of(session),
        model=info.describe(rt, session)["model"],
        platform=rt.live(session).source,
    )


def _begin(rt: Runtime, sid: str, session: LiveSession, waiting: Waiting) -> None:
    live, agent = rt.live(session), session.get("agent")
    if (forget := getattr(agent, "clear_interrupt", None)) is not None:
        forget()
    with live.lock:
        live.takes_steers = callable(getattr(agent, "steer", None))
    given = line.prompt(waiting)
    rt.emit(
        "message.start",
        sid,
        {
            "turn_id": waiting.turn_id,
            "user": given["text"],
            **({"images": given["images"]} if "images" in given else {}),
            "is_recovered": waiting.is_recovered,
            "queued": len(live.queue),
        },
    )


def _ask(rt: Runtime, sid: str, session: LiveSession, waiting: Waiting) -> object:
    """Have the agent answer; a conversation that another process runs is waited for."""
    live, is_told = rt.live(session), False
    while True:
        try:
            return _call(session.get("agent"), session, waiting, _stream(rt, sid, session))
        except ConversationBusyError as error:
            if not is_told:
                rt.emit("status.update", sid, {"kind": "waiting", "text": str(error)})
                is_told = True
            if waiting.stop.is_set_within(_ASK_AGAIN_S) and not live.is_closing:
                rt.db().write(turn_ledger.finish, waiting.turn_id, "interrupted", reason=_STOPPED)
                return {"interrupted": True}
            if live.is_closing:
                raise
            if rt.take_up(sid, session):
                raise _OvertakenError from None


def _call(
    agent: Any,  # noqa: ANN401 -- ours, or a scenario's
    session: LiveSession,
    waiting: Waiting,
    stream: Callable[[str], None],
) -> object:
    if _knows_turns(agent):
        return _told(agent.run(waiting.turn_id, stream, stop=waiting.stop))
    with waiting.stop.undoing(getattr(agent, "interrupt", lambda: None)):
        return agent.run_conversation(
            waiting.content,
            conversation_history=list(session.get("history", [])),
            stream_callback=stream,
        )


def _knows_turns(agent: object) -> bool:
    """Whether an agent is ours and runs the accepted turn; others just answer what they are told."""
    from hermes_agent.agent import Agent  # noqa: PLC0415 -- loaded with the agent

    return isinstance(agent, Agent)


def _stream(rt: Runtime, sid: str, session: LiveSession) -> Callable[[str], None]:
    live = rt.live(session)
    renderer = rt.make_stream_renderer(session.get("cols", 80)) if live.is_rendered else None

    def stream(text: str) -> None:
        live.streamed.append(text)
        payload = {"text": text}
        if renderer is not None and (rendered := renderer.feed(text)) is not None:
            payload["rendered"] = rendered
        rt.emit("message.delta", sid, payload)

    return stream


def _told(outcome: "Outcome") -> Result:
    """What our agent says about a turn, whose end is on disk, in the words of the others."""
    failed = outcome.status == "failed"
    return {
        "final_response": outcome.text,
        "interrupted": outcome.status == "interrupted",
        "failed": failed,
        "error": outcome.reason if failed else None,
        "partial": outcome.is_partial,
        "reasoning": outcome.reasoning,
    }


def _settle(rt: Runtime, waiting: Waiting, told: Result) -> None:
    """Store the end of a turn for an agent that does not do so itself."""
    store, turn_id = rt.db(), waiting.turn_id
    store.write(turn_ledger.start, turn_id)
    text = told.get("final_response")
    message = {"role": "assistant", "content": text} if text else None
    end, reason = "answered", None
    if told.get("interrupted"):
        end, reason = "interrupted", _STOPPED
    elif told.get("failed") or told.get("error"):
        end, reason = "failed", str(told.get("error") or "The agent failed.")
    store.write(turn_ledger.finish, turn_id, end, message=message, reason=reason)


def _take_over(session: LiveSession, told: Result, version: int) -> str:
    """Go on from the transcript that a turn left; returns a warning when that cannot be done."""
    messages = told.get("messages")
    if not isinstance(messages, list):
        return ""
    with session.get("history_lock") or nullcontext():
        if session.get("history_version", 0) != version:
            return "The history was changed while the turn ran; the change was kept."
        session["history"] = cast("list[dict[str, Any]]", messages)
        session["history_version"] = version + 1
    return ""


def _complete(
    rt: Runtime, sid: str, session: LiveSession, waiting: Waiting, told: Result, warning: str
) -> None:
    status = "complete"
    if told.get("interrupted"):
        status = "interrupted"
    elif told.get("error"):
        status = "error"
    text = str(told.get("final_response") or "")
    if not text and told.get("error") and (told.get("failed") or told.get("partial")):
        text = f"Error: {told['error']}"
    payload = _completion(waiting, text, status)
    payload["usage"] = info.usage(rt, session)
    if warning:
        payload["warning"] = warning
    if told.get("error"):
        payload["error"] = told["error"]
    if reasoning := _reasoning(told):
        payload["reasoning"] = reasoning
    if rt.live(session).is_rendered:
        payload["rendered"] = rt.render_message(text, session.get("cols", 80))
    _tell_end(rt, sid, waiting, payload)
    if status == "complete":
        apply_title(rt, session)


def _completion(waiting: Waiting, text: str, status: str) -> Result:
    return {"text": text, "status": status, "turn_id": waiting.turn_id, "usage": {}}


def _reasoning(told: Result) -> str:
    if "reasoning" in told:
        return told["reasoning"]
    messages = cast("list[Result]", told.get("messages") or [])
    if not messages or messages[-1].get("role") != "assistant":
        return ""
    return str(messages[-1].get("reasoning") or "")


def _fail(rt: Runtime, sid: str, session: LiveSession, waiting: Waiting, reason: str) -> None:
    _end_on_disk(rt, sid, session, waiting, reason)
    _tell_failure(rt, sid, session, waiting, reason)


def _end_on_disk(
    rt: Runtime, sid: str, session: LiveSession, waiting: Waiting, reason: str
) -> None:
    """Have a failed turn end in the store before its end is told; a full disk is waited for."""
    live, is_told = rt.live(session), False
    retry = StoreRetry(f"The end of turn {waiting.turn_id}")
    while not live.is_closing:
        try:
            _finish(rt.db(), waiting.turn_id, reason, "".join(live.streamed).strip())
        except StoreError as error:
            if not error.is_temporary:
                raise
            if not is_told:
                rt.emit("status.update", sid, {"kind": "waiting", "text": str(error)})
                is_told = True
            waiting.done.wait(retry.pause_after(error))
        else:
            return


def _finish(store: "Store", turn_id: str, reason: str, streamed: str) -> None:
    """End a failed turn; what was streamed of its last step stays, which had no room before."""
    row = store.read(turn_ledger.find, turn_id)
    if row is None or row["ended_at"] is not None:
        return
    if not lease.is_held_elsewhere(store, store.read(lineage.root, row["session_id"])):
        part = {"role": "assistant", "content": streamed, "kind": "partial"} if streamed else None
        store.write(turn_ledger.finish, turn_id, "failed", message=part, reason=reason)


def _tell_failure(
    rt: Runtime, sid: str, session: LiveSession, waiting: Waiting, reason: str
) -> None:
    if rt.live(session).is_closing:
        return
    rt.emit("error", sid, {"message": reason, "turn_id": waiting.turn_id})
    payload = {**_completion(waiting, f"Error: {reason}", "error"), "error": reason}
    _tell_end(rt, sid, waiting, payload)


def _tell_end(rt: Runtime, sid: str, waiting: Waiting, payload: Result) -> None:
    waiting.is_told = True
    rt.emit("message.complete", sid, payload)


def apply_title(rt: Runtime, session: LiveSession) -> None:
    """Give the session the title that was asked for; one that cannot be had is dropped."""
    pending = session.get("pending_title")
    if not pending:
        return
    try:
        if rt.db().set_session_title(info.key_of(session), pending):
            session["pending_title"] = None
    except ValueError:
        logger.info("the title %r cannot be used", pending, exc_info=True)
        session["pending_title"] = None
    except Exception:
        logger.warning("the title %r is tried again later", pending, exc_info=True)


# -- stopping ----------------------------------------------------------------------------------------


def interrupt(rt: Runtime, session: LiveSession, *, drops_queue: bool) -> int:
    """Stop the current turn, and with it what waits unless that is kept; returns how many."""
    live = rt.live(session)
    with live.lock:
        current, compaction = live.current, live.compaction
        dropped = list(live.queue) if drops_queue else []
        unheard = list(live.steering) if drops_queue else []
        if drops_queue:
            live.queue.clear()
            live.steering.clear()
    dropped += [one.waiting for one in unheard if one.waiting is not None]
    for waiting in dropped:
        withdraw(rt, waiting)
    line.tell(rt, live, dropped)
    for one in unheard:
        one.tell("rejected")
    stop = current.stop if current is not None else compaction
    if stop is not None:
        stop.set()
    return len(dropped) + (current is not None)


def withdraw(rt: Runtime, waiting: Waiting) -> None:
    """End a turn that is not to begin."""
    with suppress(StoreError):  # it has been said to the running turn meanwhile
        rt.db().write(turn_ledger.withdraw, waiting.turn_id, _STOPPED)
    waiting.done.set()
