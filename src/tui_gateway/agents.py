"""Agents of sessions: made in the background, because that takes longer than an answer should."""

from functools import partial
from typing import TYPE_CHECKING

from hermes_core.loading import loading
from hermes_protocol.errors import NO_AGENT
from tui_gateway import info
from tui_gateway.protocol import RpcError, outcome_of
from tui_gateway.runtime import LiveSession, Runtime

if TYPE_CHECKING:
    from hermes_agent.agent import Agent

_TIMEOUT_S = 30.0


def begin(rt: Runtime, sid: str, session: LiveSession) -> None:
    """Start to make the agent of a session, unless there is one or it is being made."""
    live = rt.live(session)
    with live.lock:
        if session.get("agent") is not None or live.is_building or live.is_closing:
            return
        live.is_building = True
        live.error = None
        live.ready.clear()
    rt.spawn(lambda: _build(rt, sid, session))


def _build(rt: Runtime, sid: str, session: LiveSession) -> None:
    live = rt.live(session)
    work = partial(_make, rt, session)
    if (error := outcome_of(work, NO_AGENT, "The agent could not be created")) is not None:
        live.error = error
    with live.lock:
        live.is_building = False
    live.ready.set()
    if not live.is_closing:
        info.send(rt, sid, session)
    if not live.is_closing and info.find_sandbox(rt, session):
        info.send(rt, sid, session)


def _make(rt: Runtime, session: LiveSession) -> None:
    # the engine, the agent and all it brings: loaded with the first session, not with the server
    with loading:
        from tui_gateway import surface  # noqa: PLC0415

    live = rt.live(session)
    surface.attach(rt, session)
    plan = surface.plan_of(rt, session)
    agent = rt.engine().agent(session["session_key"], plan)
    with live.lock:
        if not live.is_closing:
            session["agent"] = agent
    rt.engine().wake(live.conversation_id)  # a prompt may have waited for its model


def wait(rt: Runtime, sid: str, session: LiveSession) -> None:
    """Wait for the agent of a session; raises RpcError when there can be none."""
    if session.get("agent") is not None:
        return
    begin(rt, sid, session)
    live = rt.live(session)
    if not live.ready.wait(_TIMEOUT_S):
        raise RpcError(NO_AGENT, "The agent is not ready yet.", fix="Try again in a moment.")
    if live.error is not None:
        raise RpcError(NO_AGENT, live.error.message, fix=live.error.fix)
    if session.get("agent") is None:
        raise RpcError(NO_AGENT, "The session is being closed.")


def get(rt: Runtime, sid: str, session: LiveSession) -> "Agent":
    """Return the agent of a session, waiting for it; raises RpcError when there can be none."""
    wait(rt, sid, session)
    agent: Agent = session.get("agent")  # pyright: ignore[reportAssignmentType]
    return agent
