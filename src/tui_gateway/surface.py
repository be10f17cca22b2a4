"""The terminal as the engine knows it: how the turns of sessions that are open here are run.

A turn of a terminal runs only where its conversation is open. What a closed session left queued, or a
dead process unfinished, resumes when somebody opens the conversation again.
"""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hermes_agent.turn.events import Event
from hermes_agent.turn.values import Outcome
from hermes_core.errors import ModelError, ModelMissingError
from hermes_engine.surface import NotReadyError, QueuedTurn, Running, TurnPlan
from hermes_protocol import events
from hermes_state.ledger import sessions
from tui_gateway import feeds, stored_session
from tui_gateway.progress import Progress
from tui_gateway.runtime import LiveSession, Runtime

SURFACE = "tui"
_SERVED = (SURFACE, "cli", "")
"""The person of a terminal is the one of the command line; of old turns no surface is stored."""


class TerminalSurface:
    """The surface of clients that speak JSON-RPC."""

    names = _SERVED

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt

    def adopts(self, turn: QueuedTurn) -> bool:
        """Adopt nothing: what is not open here is left to others."""
        del turn
        return False

    def plan(self, running: Running) -> TurnPlan:
        """Say how a turn runs: as its open session works."""
        turn = running.turn
        session = self._rt.find(turn.conversation_id)
        if session is None:
            raise NotReadyError
        plan = plan_of(self._rt, session)
        try:
            self._rt.assembly().model(plan.model_name)
        except ModelMissingError as error:
            if self._waits_for_model(session, turn, error):
                raise NotReadyError from None
            raise
        plan.permissions = turn.permissions
        return plan

    def _waits_for_model(
        self, session: LiveSession, turn: QueuedTurn, error: ModelMissingError
    ) -> bool:
        """Return whether a turn waits for a model that its client may fetch."""
        from tui_gateway import offer  # noqa: PLC0415 -- brings the catalog of models

        live = self._rt.live(session)
        live.error = error
        is_left = turn.is_resumed or not turn.is_own
        if not (live.waits_for_model or is_left) or not offer.find(self._rt, live).name:
            return False
        self._rt.emit(live.sid, events.Status("waiting", "waiting for a model"))
        return True

    def report(self, running: Running, event: Event) -> None:
        """Do nothing: clients follow the event log of the conversation."""

    def turn_ended(self, running: Running, outcome: Outcome | None) -> None:
        """Follow the agent to its session, and apply a title that could not be set before."""
        session = self._rt.find(running.turn.conversation_id)
        if session is None:
            return
        if running.agent is session.get("agent"):
            sid = self._rt.live(session).sid
            self._rt.sync_key(sid, session, clear_pending_title=False)
        if outcome is not None and outcome.status == "answered":
            stored_session.apply_title(self._rt, session)

    def turn_ended_elsewhere(self, turn_id: str) -> None:
        """Do nothing: `view.notify_foreign_turns` finds what other processes have answered."""


def plan_of(rt: Runtime, session: LiveSession) -> TurnPlan:
    """Return the plan of a turn that the person at the terminal asked for."""
    live = rt.live(session)
    _check_folder(rt, session)
    with live.model_lock:
        _check_model(rt, session)
    return TurnPlan(source=live.source, workspace=live.cwd, model_name=live.model_name)


def _check_folder(rt: Runtime, session: LiveSession) -> None:
    """Work where the conversation worked, or say that this folder is gone."""
    live = rt.live(session)
    row = rt.db().read(sessions.find, session["session_key"])
    if row is None or not row["cwd"]:
        return
    if Path(row["cwd"]).is_dir():
        live.cwd = Path(row["cwd"])
        return
    live.warning = f"Its folder {row['cwd']} no longer exists; using {live.cwd} now."
    rt.db().write(sessions.change, session["session_key"], cwd=str(live.cwd))


def _check_model(rt: Runtime, session: LiveSession) -> None:
    """Use the model that the conversation had, or say that it is gone; the store still remembers it."""
    live = rt.live(session)
    if not live.is_model_remembered:
        return
    try:
        rt.assembly().model(live.model_name)
    except ModelError as error:
        name = rt.assembly().model().facts.name
        text = (
            f"The model {live.model_name} of this conversation is not available: {error.message}"
            f" {name} answers now."
        )
        rt.emit(live.sid, events.Notification(text, "warning", "model"))
        live.model_name = ""
    live.is_model_remembered = False


def attach(rt: Runtime, session: LiveSession) -> None:
    """Open the conversation of a session in the engine, once: its turns run from now on."""
    live, engine = rt.live(session), rt.engine()
    with live.lock:
        if live.log is not None or live.is_closing:
            return
        log = engine.log(live.conversation_id)
        live.opened.enter_context(engine.open(live.conversation_id))
        progress = Progress(rt, session)
        live.log, live.read_inflight = log, progress.read
        log.subscribe(progress)
        live.opened.callback(log.unsubscribe, progress)
    for transport in list(live.watchers):
        feeds.follow(rt, session, transport)
    engine.wake(live.conversation_id)


@contextmanager
def paused_until_answered(rt: Runtime, session: LiveSession) -> Generator[None]:
    """Begin no turn of a session inside the block, nor before the client has its answer."""
    with ExitStack() as stack:
        stack.enter_context(rt.engine().paused(rt.live(session).conversation_id, timeout_s=0))
        yield
        release = stack.pop_all().close
    rt.run_after_answer(release)
