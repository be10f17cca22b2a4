"""Run prompts in the background, each in a new conversation."""

from contextlib import ExitStack
from typing import Annotated, NamedTuple, TypedDict

from hermes_agent.turn.events import TurnEnded
from hermes_core import clock
from hermes_engine.events import LogEntry, TurnCancelled, TurnDetached
from hermes_protocol.errors import BAD_ARGUMENT
from hermes_protocol.events import BackgroundDone
from hermes_state.ledger import messages, sessions, turns
from hermes_state.values import Row
from tui_gateway import attachment, prompts, surface
from tui_gateway.params import Session, says
from tui_gateway.projection import text_of
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import Runtime, SessionState, at_rest

_END_REASON = "background_done"


class Background(Session, frozen=True):
    """A prompt."""

    text: Annotated[str, says("The task for the agent.")] = ""


class Task(TypedDict):
    """The task; `background.complete` names it. Its conversation is stored like any other."""

    task_id: str
    session_id: str
    stored_session_id: str


def submit(rt: Runtime, params: Background) -> Task:
    """Run a prompt in a new conversation in the background; `background.complete` has its answer.

    Returns when the prompt is on disk. Its questions are asked in its own session, which
    `session.active_list` shows as waiting.
    """
    if not params.text.strip():
        raise RpcError(BAD_ARGUMENT, "The prompt is empty.")
    of_client = rt.live(rt.session(params.session_id))
    live = SessionState(
        source=of_client.source,
        cwd=of_client.cwd,
        model_name=of_client.model_name,
        detached_at=clock.now(),
    )
    session = at_rest(sessions.new_id(), live)
    live.conversation_id = session["session_key"]
    sid = rt.register(session)
    with ExitStack() as stack:
        stack.callback(rt.close, sid, _END_REASON)
        text = attachment.with_pasted(rt.home, params.text)
        surface.attach(rt, session)
        turn_id = str(prompts.submit(rt, session, text)["turn_id"])
        stack.pop_all()  # the prompt is on disk: from now on its task closes the session
    task = _Task(rt, f"bg_{sid}", params.session_id, live, turn_id)
    task.follow()
    return {
        "task_id": task.id,
        "session_id": sid,
        "stored_session_id": session["session_key"],
    }


class _Task(NamedTuple):
    """A prompt in the background."""

    rt: Runtime
    id: str
    client_sid: str
    """The session that gets its result."""
    live: SessionState
    turn_id: str

    def follow(self) -> None:
        """Report the end of the turn, also if it has ended already."""
        if self.live.log is not None:
            subscriber = self.live.log.follow_turn(self.turn_id, self._on_event)
            self.live.opened.callback(self.live.log.unsubscribe, subscriber)

    def _on_event(self, entry: LogEntry) -> None:
        if isinstance(entry.event, TurnEnded | TurnCancelled | TurnDetached):
            self.rt.spawn(self._report)

    def _report(self) -> None:
        """Send the result, and close the session unless a client has opened it."""
        row = self.rt.db().read(turns.find, self.turn_id)
        if row is None or row["ended_at"] is None:
            return
        done = BackgroundDone(self.id, _text(self.rt, row), row["session_id"])
        self.rt.emit(self.client_sid, done)
        if not self.live.watchers:
            self.rt.close(self.live.sid, _END_REASON)


def _text(rt: Runtime, turn: Row) -> str:
    """Return the reply of an ended turn, or the reason why there is none."""
    if turn["final_message_id"] is not None:
        around = rt.db().read(messages.around, turn["session_id"], turn["final_message_id"], 0)
        if text := text_of(around["window"][0]["content"]):
            return text
    return f"The task ended without a reply: {turn['reason'] or turn['state']}."
