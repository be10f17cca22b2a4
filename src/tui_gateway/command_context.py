"""The context: an open session as slash commands see it."""

from collections.abc import Collection, Mapping
from contextlib import nullcontext
from typing import Any, cast

from hermes_agent import commands, skills
from hermes_agent.agent import Agent
from hermes_agent.skills import Skill
from hermes_agent.turn.stop import Stop
from hermes_cli import plugins
from hermes_core.loading import loading
from hermes_protocol.errors import STILL_OPEN
from tui_gateway import agents, info, stored_session, undo, view
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import LiveSession, Runtime, SessionState, at_rest


class CommandContext:
    """The context of a command: it acts on one session, and remembers what the client has to do."""

    background_sessions: Collection[str] = ()
    permissions = None
    """The person at the machine may see everything."""

    def __init__(self, rt: Runtime, sid: str, session: LiveSession) -> None:
        agents.wait(rt, sid, session)
        self._rt = rt
        self._sid = sid
        self._session = session
        self.is_running = info.is_busy(rt, session)
        """Whether a turn ran when the command was typed."""
        self.stop = Stop()
        self.sent: Any = None
        """The next prompt; the client submits it."""
        self.is_asked_again = False
        """Whether a prompt was submitted in the place of an earlier one."""
        self.is_leaving = False
        self.has_moved = False
        """Whether the session is in another conversation now."""

    @property
    def agent(self) -> Agent:
        agents.wait(self._rt, self._sid, self._session)
        return cast("Agent", self._session.get("agent"))

    @property
    def conversation(self) -> Agent:
        return self.agent

    @property
    def plugins(self) -> Mapping[str, commands.PluginCommand]:
        return plugins.commands("rpc")

    @property
    def skills(self) -> Mapping[str, Skill]:
        return skills.load(self._rt.home)

    def open(self, session_id: str | None, end_reason: str) -> None:
        """Move the session to another conversation, under the same id for its clients."""
        store = self._rt.db()
        with view.opening_lock(store, session_id) if session_id is not None else nullcontext():
            if session_id is not None and view.opened(self._rt, session_id) not in (
                None,
                self._sid,
            ):
                raise RpcError(STILL_OPEN, "That conversation is open in another window.")
            before = self._rt.live(self._session)
            self._rt.finalize(self._session, end_reason)
            self._turn_to(session_id, before)
        agents.begin(self._rt, self._sid, self._session)
        self.has_moved = True

    def _turn_to(self, session_id: str | None, before: SessionState) -> None:
        # brings the store, which is open by now
        with loading:
            from hermes_state.ledger import sessions  # noqa: PLC0415

        live, key = self._like(before), info.key_of(self._session)
        live.conversation_id = before.conversation_id
        other = self._like(before)
        other.conversation_id = session_id or sessions.new_id()
        try:
            if session_id is not None:
                stored_session.open_stored(self._rt, session_id, other)
            live, key = other, other.conversation_id
        finally:  # where that fails, it continues where it was
            self._session.update(at_rest(key, live))

    def _like(self, before: SessionState) -> SessionState:
        return SessionState(
            sid=self._sid,
            source=before.source,
            cwd=before.cwd,
            model_name=before.model_name,
            watchers=before.watchers,
            closes_with_client=before.closes_with_client,
            is_rendered=before.is_rendered,
        )

    def send(self, content: Any, replaces: int | None = None) -> None:  # noqa: ANN401 -- text or parts
        if replaces is None:
            self.sent = content
        else:
            undo.resubmit(self._rt, self._session, content, replaces)
            self.is_asked_again = True

    def models(self) -> str:
        live = self._rt.live(self._session)
        findings = self._rt.assembly().registry(live.model_name).discovery.found()
        return "\n".join(f"  {found.label}: {found.reason}" for found in findings)

    def use_model(self, name: str) -> str:
        """Use another model in this session from now on."""
        model = self._rt.assembly().model(name)
        self.agent.model = model
        stored_session.choose_model(self._rt, self._session, name, model.facts.name)
        self._rt.run_after_answer(lambda: info.send(self._rt, self._sid, self._session))
        return model.facts.name

    def leave(self) -> None:
        self.is_leaving = True
