"""The stored session of an open one: what makes it, its title and its model."""

import logging
from contextlib import suppress
from typing import Any

from hermes_cli import plugins
from hermes_core.errors import HermesError
from hermes_state.ledger import lineage, sessions
from hermes_state.values import NewSession
from tui_gateway import info
from tui_gateway.runtime import LiveSession, Runtime, SessionState

logger = logging.getLogger(__name__)


def opening_of(session: LiveSession, live: SessionState) -> NewSession:
    """Return the session that the first message, or a title, makes."""
    fields: dict[str, Any] = {"cwd": str(live.cwd)}
    if (agent := session.get("agent")) is not None:
        fields["model"] = info.model_name(agent)
    marks = {"_branched_from": live.parent_session_id, sessions.CHOSEN_MODEL: live.model_name}
    fields["model_config"] = {name: value for name, value in marks.items() if value} or None
    return NewSession(live.source, fields, live.parent_session_id, live.seed)


def open_stored(rt: Runtime, session_id: str, live: SessionState) -> None:
    """Open a stored conversation, and store that it is open again."""
    store = rt.db()
    live.conversation_id = store.read(lineage.root, session_id)
    rt.presence.add(live.conversation_id)
    row = store.read(sessions.find, session_id)
    if row is None:
        return
    live.model_name = sessions.chosen_model(row)
    live.is_model_remembered = bool(live.model_name)
    if row["ended_at"] is not None and row["is_tip"]:
        store.write(sessions.reopen, session_id)


def choose_model(rt: Runtime, session: LiveSession, name: str, model: str) -> None:
    """Use the model of this name in a conversation from now on, also in a later process."""
    live, store, key = rt.live(session), rt.db(), info.key_of(session)
    live.model_name, live.is_model_remembered = name, False
    if store.read(sessions.find, key) is not None:
        store.write(sessions.change_model, key, model, chosen_as=name)
    if live.log is not None:
        rt.engine().wake(live.conversation_id)


def apply_title(rt: Runtime, session: LiveSession) -> None:
    """Set the title that was asked for; one that is not valid is dropped."""
    pending = session.get("pending_title")
    if not pending:
        return
    try:
        if rt.db().set_session_title(info.key_of(session), pending):
            session["pending_title"] = None
    except ValueError:
        logger.info("The title %r is not valid", pending, exc_info=True)
        session["pending_title"] = None
    except Exception:
        logger.warning("The title %r is tried again later", pending, exc_info=True)


def invoke_start_hook(rt: Runtime, session: LiveSession) -> None:
    """Call `on_session_start` for a session that its title or a branch has made.

    The engine calls it for one that a prompt has made.
    """
    with suppress(HermesError):  # what needs the plugins says so
        rt.assembly()  # loads the plugins
    plugins.invoke_hook(
        "on_session_start",
        session_id=info.key_of(session),
        model=info.describe(rt, session).model,
        platform=rt.live(session).source,
    )
