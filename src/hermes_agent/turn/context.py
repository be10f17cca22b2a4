"""The context of a turn: the parts of an agent that every turn and compaction of it work with."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from hermes_agent import compaction, prompt
from hermes_agent.hooks import Hooks
from hermes_agent.models.base import Model, Reply, Request, ToolSpec
from hermes_agent.prompt import SessionStart
from hermes_agent.tokens import Estimator
from hermes_agent.tools.execute import Executor
from hermes_agent.turn.events import Sink
from hermes_agent.turn.stop import Stop
from hermes_agent.turn.values import Deliver, Steer, Turn
from hermes_core import clock
from hermes_core.settings import Settings
from hermes_state.ledger import sessions
from hermes_state.store import Store
from hermes_state.values import Lease, Limits, Row

Ask = Callable[[Request], Reply]


class Prefix(msgspec.Struct, frozen=True):
    """The beginning of every request of a conversation."""

    system: str
    tools: Sequence[ToolSpec]


class TurnContext(msgspec.Struct, frozen=True):
    """The parts of an agent as they are when a turn starts: its model may change between turns."""

    store: Store
    model: Model
    executor: Executor
    hooks: Hooks
    settings: Settings
    estimator: Estimator
    platform: str
    limits: Limits
    paid_by: str | None
    """The turn whose budget pays for this one, when a sub-agent runs it."""
    deliver: Deliver
    take_steers: Callable[[], list[Steer]]
    """Removes and returns what the person sent to the running turn."""

    def prefix(self, session_id: str) -> Prefix:
        """Return the system prompt and the tools of a session; a prompt not yet stored is stored."""
        row = self.store.read(sessions.find, session_id) or {}
        toolbox = self.executor.toolbox
        if self.model.facts.is_small:
            return Prefix(self._new_prompt(row, row.get("started_at", 0.0)), toolbox.small)
        system = row.get("system_prompt")
        if not system or prompt.is_outdated(system, self.executor.bench):
            system = self._new_prompt(row, row.get("started_at", clock.now()))
            self.store.write(sessions.change, session_id, system_prompt=system)
        return Prefix(system, toolbox.core)

    def _new_prompt(self, row: Mapping[str, Row], started_at: float) -> str:
        """Build the system prompt, with the instructions that a program gave for the conversation."""
        bench = self.executor.bench
        place = SessionStart(bench.workspace, started_at)
        system = prompt.build(self.model.facts, self.executor.toolbox, bench, place)
        instructions = sessions.instructions_of(row)
        return f"{system}\n\n{instructions}" if instructions else system

    def end_checkpoint(self, turn: Turn) -> None:
        """Record what the workspace holds now as the end of the turn; only the first call counts."""
        checkpoints = self.executor.bench.checkpoints
        if checkpoints is not None:
            checkpoints.end(turn)

    def compaction(
        self, session_id: str, ask: Ask, lease: Lease, stop: Stop, report: Sink
    ) -> "compaction.Job":
        """Return the job to compact a session when it is due."""
        facts, prefix = self.model.facts, self.prefix(session_id)
        return compaction.Job(
            store=self.store,
            session_id=session_id,
            estimator=self.estimator,
            window=facts.window,
            max_output=facts.max_output,
            ask=ask,
            settings=self.settings.compaction,
            system=prefix.system,
            tools=prefix.tools,
            lease=lease,
            stop=stop,
            report=report,
            hooks=self.hooks,
            platform=self.platform,
        )
