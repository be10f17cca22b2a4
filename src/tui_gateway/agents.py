"""Agents of sessions: made beside, because that takes longer than a client should wait for an answer."""

import logging
from pathlib import Path

from hermes_core.errors import HermesError, ModelError
from hermes_core.loading import loading
from hermes_protocol.errors import NO_AGENT
from hermes_state.ledger import sessions
from tui_gateway import info
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import Live, LiveSession, Runtime

logger = logging.getLogger(__name__)

_PATIENCE_S = 30.0


def begin(rt: Runtime, sid: str, session: LiveSession) -> None:
    """Start to make the agent of a session, unless it is there or being made."""
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
    try:
        _make(rt, sid, session)
    except HermesError as error:
        live.error = error
    except Exception as error:
        logger.exception("the agent of %s could not be made", session["session_key"])
        live.error = RpcError(NO_AGENT, f"The agent could not be made: {error!r}.")
    finally:
        with live.lock:
            live.is_building = False
        live.ready.set()
    if not live.is_closing:
        info.tell(rt, sid, session)


def _make(rt: Runtime, sid: str, session: LiveSession) -> None:
    # the agent and all it brings: loaded with the first session, not with the server
    with loading:
        from tui_gateway.translation import Translator  # noqa: PLC0415

    live = rt.live(session)
    _settle_in(rt, session)
    _find_model(rt, sid, live)
    agent = rt.assembly().agent(
        session["session_key"],
        source=live.source,
        workspace=live.cwd,
        sink=Translator(rt, sid, session),
        model_name=live.model_name,
    )
    with live.lock:
        if not live.is_closing:
            session["agent"] = agent
            return
    agent.close()


def _settle_in(rt: Runtime, session: LiveSession) -> None:
    """Work where the conversation worked, or say that this place is gone."""
    live = rt.live(session)
    row = rt.db().read(sessions.find, session["session_key"])
    if row is None or not row["cwd"]:
        return
    if Path(row["cwd"]).is_dir():
        live.cwd = Path(row["cwd"])
        return
    live.warning = f"Its folder {row['cwd']} is gone; it works in {live.cwd} now."
    rt.db().write(sessions.change, session["session_key"], cwd=str(live.cwd))


def _find_model(rt: Runtime, sid: str, live: Live) -> None:
    """Go on with the model that the conversation had, or say that it is gone.

    The store remembers it all the same: it may be there the next time.
    """
    if not live.is_model_remembered:
        return
    try:
        rt.assembly().model(live.model_name)
    except ModelError as error:
        name = rt.assembly().model().facts.name
        text = f"The model {live.model_name} of this conversation cannot be had: {error.message}"
        told = {"text": f"{text} {name} answers now.", "level": "warning", "kind": "model"}
        rt.emit("notification.show", sid, told)
        live.model_name = ""
    live.is_model_remembered = False


def wait(rt: Runtime, sid: str, session: LiveSession) -> None:
    """Wait for the agent of a session; raises RpcError when it cannot be had."""
    if session.get("agent") is not None:
        return
    begin(rt, sid, session)
    live = rt.live(session)
    if not live.ready.wait(_PATIENCE_S):
        raise RpcError(NO_AGENT, "The agent is still being made.", fix="Try again in a moment.")
    if live.error is not None:
        raise RpcError(NO_AGENT, live.error.message, fix=live.error.fix)
    if session.get("agent") is None:
        raise RpcError(NO_AGENT, "The session is being closed.")
