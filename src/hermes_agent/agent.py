"""Agent: a conversation as the surfaces hold it. It takes messages in, runs turns, and can be stopped.

The store is the truth: the agent keeps no transcript of its own, and everything it says it has done is
on disk. Names that begin with an underscore and are used elsewhere are part of the contract with the
surfaces (docs/reference/pins.md).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hermes_agent import compaction, lease, memory, prompt
from hermes_agent.approval import policy, rights, taint
from hermes_agent.approval.gate import CallRef, Gate
from hermes_agent.approval.questions import Asker
from hermes_agent.checkpoints.recorder import Checkpoints
from hermes_agent.delegation import SubAgents
from hermes_agent.hooks import Hooks, NoHooks
from hermes_agent.memory import MemoryProvider
from hermes_agent.models.base import Model, Reply, Request
from hermes_agent.permissions import Permissions
from hermes_agent.prompt import SessionStart
from hermes_agent.sandbox.hosts import HostGrants
from hermes_agent.sandbox.sandboxes import Sandbox
from hermes_agent.titles import Titler
from hermes_agent.tokens import Estimator
from hermes_agent.tools.base import Args, Tool, ToolContext
from hermes_agent.tools.execute import DelegateFor, Executor
from hermes_agent.tools.processes import Processes
from hermes_agent.tools.registry import Toolbox
from hermes_agent.turn import meter
from hermes_agent.turn.context import TurnContext
from hermes_agent.turn.events import Event, Sink, TextDelta, ignore
from hermes_agent.turn.meter import Meter
from hermes_agent.turn.result import as_dictionary
from hermes_agent.turn.runner import ConversationRunner
from hermes_agent.turn.stop import Stop
from hermes_agent.turn.values import Deliver, Outcome, Steer, deliver_nothing
from hermes_core import clock, config
from hermes_core.errors import BudgetSpent, UsageError
from hermes_core.paths import Home
from hermes_core.settings import Settings
from hermes_state.ledger import lineage, sessions, turns
from hermes_state.ledger import messages as message_ledger
from hermes_state.ledger.records import message_from
from hermes_state.ledger.turns import TurnSource
from hermes_state.store import Store
from hermes_state.values import Accepted, InboundMessage, Limits, NewSession

_CLOSE_TIMEOUT_S = 0.5
"""How long closing waits for a turn that was stopped."""


class Agent:
    """One conversation that can be talked to."""

    def __init__(  # noqa: PLR0913 -- the five parts, and how this conversation is placed
        self,
        model: Model,
        toolbox: Toolbox,
        store: Store,
        settings: Settings,
        home: Home,
        *,
        hooks: Hooks | None = None,
        session_id: str | None = None,
        source: str = "cli",
        workspace: Path | None = None,
        can_ask: bool = False,
        sink: Sink = ignore,
        memory: Sequence[MemoryProvider] = (),
        fields: Mapping[str, Any] | None = None,
        paid_by: str | None = None,
        deliver: Deliver = deliver_nothing,
        permissions: Permissions | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        """`checkpoints` are those of the agent that sends this one for a part of its work."""
        self.model = model
        self.store = store
        self.settings = settings
        self.platform = source
        self.sink = sink
        self.hooks: Hooks = hooks or NoHooks()
        self.session_id = store.read(lineage.tip, session_id) if session_id else sessions.new_id()
        self.conversation_id = store.read(lineage.root, self.session_id)
        self._fields = dict(fields or {})
        self._paid_by = paid_by
        self._deliver = deliver
        self.permissions = permissions
        """What the person that it works for may see, use and spend; None: there are no limits."""
        self._memory = list(memory)
        self._estimators: dict[str, Estimator] = {}
        self._session_messages: list[dict[str, Any]] = []
        self._titler = Titler(
            store,
            lambda: self.model,
            self._limits,
            is_wanted=settings.agent.titles and not paid_by,
            report=lambda event: self.sink(event),
        )
        self._runner = ConversationRunner(
            store,
            self.conversation_id,
            self._follow,
            self._titler.start_if_untitled,
            is_restricted=permissions is not None,
        )
        tools = toolbox.restricted_to(permissions)
        self._executor = self._make_executor(tools, home, workspace, checkpoints, can_ask=can_ask)

    def _follow(self, session_id: str) -> None:
        self.session_id = session_id

    def _make_executor(
        self,
        toolbox: Toolbox,
        home: Home,
        workspace: Path | None,
        checkpoints: Checkpoints | None,
        *,
        can_ask: bool,
    ) -> Executor:
        row = self.store.read(sessions.find, self.session_id)
        place = Path(row["cwd"]) if row and row["cwd"] else (workspace or Path.cwd())
        bench = ToolContext(
            home=home,
            settings=self.settings,
            store=self.store,
            processes=Processes(choose=self._choose_sandbox),
            workspace=place,
            cwd=place,
            environment=config.command_environment(self.settings),
            permissions=self.permissions,
            conversation_id=self.conversation_id,
            checkpoints=checkpoints or Checkpoints(self.store, home, place, self.settings.tools),
        )
        rules = self.settings.approvals
        asker = Asker(self.store, can_ask=can_ask, timeout_s=rules.timeout_s)
        gate = Gate(asker, self.hooks, rules, policy.load(home), self.platform)
        delegates = DelegateFor() if self._paid_by else SubAgents(self)
        return Executor(toolbox, bench, gate, asker, self.hooks, delegates)

    def _choose_sandbox(self) -> Sandbox:
        from hermes_agent.sandbox import detect  # noqa: PLC0415 -- many conversations run no command

        return detect.choose(self.settings, self._host_grants)

    def _host_grants(self) -> HostGrants:
        return taint.host_grants(self.store, self.conversation_id, self.permissions)

    # -- what surfaces know ---------------------------------------------------------------------

    @property
    def toolbox(self) -> Toolbox:
        return self._executor.toolbox

    @property
    def tool_context(self) -> ToolContext:
        return self._executor.bench

    @property
    def asker(self) -> Asker:
        return self._executor.asker

    @property
    def _limits(self) -> Limits:
        return meter.limits_of(self.settings.agent, self.permissions)

    @property
    def is_interrupted(self) -> bool:
        return self._runner.is_interrupted

    def interrupt(self, message: str | None = None) -> None:
        """Stop the turn that runs, at once and with all it started; a message is for the next one."""
        if message:
            self.steer(message)
        self._runner.interrupt()

    def clear_interrupt(self) -> None:
        """Forget an interrupt and the messages to the turn that was interrupted."""
        self._runner.clear_interrupt()

    def steer(self, text: str, turn_id: str | None = None) -> bool:
        """Send a message to the running turn; the model gets it after its next tool call.

        A queued turn of its own ends when the model has got it.
        """
        self._runner.steer(Steer(text, turn_id))
        return True

    def admit(self, tool: Tool, args: Args, turn_id: str, stop: Stop) -> None:
        """Lead what a surface does for a turn through the gate; raises ToolDeniedError, Interrupted."""
        who = CallRef(self.conversation_id, self.session_id, turn_id, tool.name)
        self._executor.gate.admit(tool, args, self.tool_context, who, stop, self.sink)

    def answer(self, question_id: str, text: str) -> None:
        """Answer a question that the agent asked. Raises UsageError when it is not open."""
        rights.answer(self.store, question_id, text, by=self.platform)

    def sub_agent(self, session_id: str, paid_by: str, sink: Sink) -> "Agent":
        """An agent for a part of the work: same model and tools, a conversation of its own."""
        agent = Agent(
            self.model,
            self.toolbox,
            self.store,
            self.settings,
            self.tool_context.home,
            hooks=self.hooks,
            session_id=session_id,
            source=self.platform,
            workspace=self.tool_context.workspace,
            can_ask=self.asker.can_ask,
            sink=sink,
            paid_by=paid_by,
            permissions=self.permissions,
            checkpoints=self.tool_context.checkpoints,
        )
        agent.tool_context.cwd = self.tool_context.cwd
        return agent

    # -- a turn ---------------------------------------------------------------------------------

    def accept(
        self,
        content: Any,  # noqa: ANN401 -- text or parts
        *,
        delivery: InboundMessage | None = None,
        idempotency_key: str | None = None,
        replaces: int | None = None,
        history: Sequence[dict[str, Any]] = (),
    ) -> Accepted:
        """Accept a message; when this returns, it is on disk and will be answered or accounted for.

        `replaces` is a user message that is taken back for it, with all after it. `history` is what a
        surface brings along for a conversation that the store does not know; it is stored with the
        message, and each of its messages gets its id.
        """
        is_first = self.store.read(sessions.find, self.session_id) is None
        fresh = [message for message in history if message.get("id") is None]
        accepted = self.store.write(
            turns.accept,
            self.session_id,
            {"role": "user", "content": content},
            inbound=delivery,
            idempotency_key=idempotency_key,
            new_session=self.opening(fresh) if is_first else None,
            replaces=replaces,
            source=TurnSource(self.platform, lease.process_name()),
        )
        if is_first and accepted.is_new:
            stored = (
                self.store.read(message_ledger.of_session, self.session_id, limit=len(fresh))
                if fresh
                else []
            )
            for message, row in zip(fresh, stored, strict=True):
                message["id"] = row["id"]
            self._invoke_start_hook()
        return accepted

    def opening(self, history: Sequence[Mapping[str, Any]] = ()) -> NewSession:
        """Return the session to make with the first message of a conversation."""
        facts = self.model.facts
        place = SessionStart(self.tool_context.workspace, clock.now())
        fields = {
            "model": facts.name,
            "cwd": str(self.tool_context.workspace),
            "system_prompt": prompt.build(facts, self.toolbox, self.tool_context, place),
            **self._fields,
        }
        parent = fields.pop("parent_session_id", None)
        return NewSession(self.platform, fields, parent, history)

    def _invoke_start_hook(self) -> None:
        self.hooks.invoke_hook(
            "on_session_start",
            session_id=self.session_id,
            model=self.model.facts.name,
            platform=self.platform,
        )

    def run_conversation(
        self,
        user_message: Any,  # noqa: ANN401 -- text or parts
        conversation_history: list[dict[str, Any]] | None = None,
        stream_callback: Callable[[str], None] | None = None,
        task_id: str | None = None,
    ) -> dict[str, Any]:
        """Take a message in and answer it. `task_id` makes a second call find the first."""
        accepted = self.accept(
            user_message, idempotency_key=task_id, history=conversation_history or ()
        )
        return self.run_turn(accepted.turn_id, stream_callback)

    def run_turn(
        self,
        turn_id: str,
        stream_callback: Callable[[str], None] | None = None,
        *,
        stop: Stop | None = None,
    ) -> dict[str, Any]:
        """Run a turn and return its outcome as a dictionary with all that surfaces want to know."""
        return self.result(turn_id, self.run(turn_id, stream_callback, stop=stop))

    def run(
        self,
        turn_id: str,
        stream_callback: Callable[[str], None] | None = None,
        *,
        stop: Stop | None = None,
    ) -> Outcome:
        """Run an accepted turn, for the first time or after a crash.

        Earlier turns of the conversation that have no end are completed first, whoever accepted them.
        A turn that has ended returns its recorded outcome; one that its chat moved to another
        conversation returns as interrupted. `stop` is the caller's, who may set it before the turn
        starts. Raises ConversationBusyError.
        """
        report = _streaming(self.sink, stream_callback)
        return self._runner.run(turn_id, self._context(), stop, report, self.sink)

    def _context(self) -> TurnContext:
        return TurnContext(
            store=self.store,
            model=self.model,
            executor=self._executor,
            hooks=self.hooks,
            settings=self.settings,
            estimator=self._estimator_of(self.model.facts.name),
            platform=self.platform,
            limits=self._limits,
            paid_by=self._paid_by,
            deliver=self._deliver,
            take_steers=self._runner.take_steers,
        )

    def _estimator_of(self, name: str) -> Estimator:
        """One for each model: it remembers what it has counted."""
        if name not in self._estimators:
            self._estimators[name] = Estimator(name, self.store)
        return self._estimators[name]

    def result(self, turn_id: str, outcome: Outcome) -> dict[str, Any]:
        """Return an outcome as a dictionary with all that surfaces and programs want to know."""
        steers = [steer.text for steer in self._runner.take_steers() if not steer.turn_id]
        result = as_dictionary(
            self.store, turn_id, outcome, self.session_id, self.model.facts, steers
        )
        self._session_messages = result["messages"]
        return result

    def context_tokens(self) -> int:
        """Estimate the tokens of the next request."""
        messages = self.store.read(message_ledger.as_conversation, self.session_id)
        context = self._context()
        prefix = context.prefix(self.session_id)
        return context.estimator.count(messages, prefix.system, prefix.tools)

    def context_parts(self) -> dict[str, int]:
        """Estimate the tokens of each part of the next request."""
        messages = self.store.read(message_ledger.as_conversation, self.session_id)
        context = self._context()
        sizes, prefix = context.estimator, context.prefix(self.session_id)
        return {
            "system prompt": sizes.count([], prefix.system),
            "tools": sizes.count([], "", prefix.tools),
            "messages": sizes.count(messages),
        }

    def compress(self, focus: str = "", stop: Stop | None = None) -> dict[str, Any]:
        """Compact the conversation now. Raises UsageError at a limit, Interrupted at a stop."""
        try:
            with self._runner.stoppable(stop) as own:
                return self._compress(focus, own)
        except BudgetSpent as limit:
            raise UsageError(f"Nothing was compacted: {limit}.") from None

    def _compress(self, focus: str, stop: Stop) -> dict[str, Any]:
        context = self._context()
        account = Meter(self.store, f"compress:{self.session_id}", self._limits)

        def ask(request: Request) -> Reply:
            tokens = context.estimator.count(request)
            return account.ask_separately(
                context.model, request, tokens, stop, self.session_id, "compaction"
            )

        with lease.held(self.store, self.conversation_id, stop.set) as held:
            job = context.compaction(self.session_id, ask, held, stop, self.sink)
            outcome = compaction.compact(msgspec.structs.replace(job, force=True, focus=focus))
        if outcome is None:
            return {"compressed": False, "session_id": self.session_id}
        self.session_id = outcome.new_session_id
        return {
            "compressed": True,
            "old_session_id": outcome.old_session_id,
            "session_id": outcome.new_session_id,
            "tokens_before": outcome.tokens_before,
            "tokens_after": outcome.tokens_after,
            "strategy": outcome.strategy,
        }

    # -- the end --------------------------------------------------------------------------------

    def _persist_session(
        self,
        messages: list[dict[str, Any]],
        conversation_history: list[dict[str, Any]] | None = None,
    ) -> None:
        """Store the messages that are not stored yet; those that are carry their id."""
        del conversation_history
        self._session_messages = messages
        fresh = [message for message in messages if message.get("id") is None]
        stored = [message_from(message) for message in fresh]
        ids = self.store.write(message_ledger.append_all, self.session_id, stored) if fresh else []
        for message, id_ in zip(fresh, ids, strict=True):
            message["id"] = id_

    def commit_memory_session(self, messages: list[dict[str, Any]] | None = None) -> None:
        """Let memory learn from the conversation so far."""
        if self._memory:
            stored = message_ledger.as_conversation
            memory.learn(self._memory, messages or self.store.read(stored, self.session_id))

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait for the running turn to reach its end; tells whether it did."""
        return self._runner.wait_until_idle(seconds)

    def close(self) -> None:
        """Stop what runs and release processes and connections; the conversation stays open."""
        self._runner.interrupt()
        self.wait_until_idle(_CLOSE_TIMEOUT_S)
        self._titler.close()
        self.tool_context.processes.close()
        if self.tool_context.checkpoints is not None:
            self.tool_context.checkpoints.close()
        self.model.close()


def _streaming(sink: Sink, callback: Callable[[str], None] | None) -> Sink:
    """A sink that also hands the pieces of the reply to a callback."""
    if callback is None:
        return sink

    def both(event: Event) -> None:
        if isinstance(event, TextDelta):
            callback(event.text)
        sink(event)

    return both
