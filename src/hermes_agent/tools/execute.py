"""Running the tool calls of a step: each is let through the gate, started, run and settled on disk.

A tool runs in a thread of its own, so that a stop or a time-out need not wait for one that hangs: it is
left behind, and the ledger says that its effect is unknown.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from hermes_agent.approval.gate import CallRef, Gate, Permit
from hermes_agent.approval.questions import Asker
from hermes_agent.checkpoints.lasting import lasting_effects
from hermes_agent.hooks import Hooks
from hermes_agent.models import arguments
from hermes_agent.tools import schema
from hermes_agent.tools.base import Args, Call, Delegate, Result, Tool, ToolContext
from hermes_agent.tools.registry import Toolbox
from hermes_agent.turn.events import ToolEnded, ToolProgress, ToolStarted
from hermes_agent.turn.stop import Stop
from hermes_agent.turn.values import Turn
from hermes_cli import hook_answers
from hermes_core.errors import Interrupted, ToolDeniedError, ToolError, describe_error
from hermes_core.secrets import redact
from hermes_core.text import shorten_middle
from hermes_state.ledger import effects, taint
from hermes_state.ledger import effects as effect_ledger
from hermes_state.transitions import EffectState
from hermes_state.values import Question, Row, TaintSource

_GRACE_S = 0.1
"""How long a stopped tool may take to hand in what it has."""
_TIMEOUT_GRACE_S = 3.0
_MAX_DIFF = 20_000
"""Kept with a result: it is read again with every request, although no model is shown it."""

Status = Literal["done", "failed", "blocked", "denied"]


class ApprovedCall(NamedTuple):
    """A call that was let through."""

    effect: Row
    tool: Tool
    args: Args
    permit: Permit


class RejectedCall(NamedTuple):
    """A call that will not run, and what the model is told."""

    effect: Row
    args: Args
    status: Status
    text: str


class NestedCall(msgspec.Struct):
    """A call that a tool made of another one; plugins are told of it when the outer call is settled."""

    tool_name: str
    args: Args
    began: float
    outcome: "tuple[Status, str, float] | None" = None
    """How it came out, what the caller was told and how long it took; None while it runs."""

    def end(self, status: Status, text: str) -> None:
        self.outcome = (status, text, time.monotonic() - self.began)


class CallResult(NamedTuple):
    """A call that has run."""

    result: Result
    seconds: float
    is_known: bool = True
    """False when the tool was left behind."""
    refusal: Status | None = None
    """Why a call that was all about another one came to nothing: that one was blocked or denied."""
    inner: Sequence[NestedCall] = ()


class Executor(msgspec.Struct):
    """Runs tools for one conversation."""

    toolbox: Toolbox
    bench: ToolContext
    gate: Gate
    asker: Asker
    hooks: Hooks
    delegate: "DelegateFor"

    def run(self, turn: Turn, effects: Sequence[Row]) -> None:
        """Run the open calls of a step: together when all only read, else one after the other."""
        together = len(effects) > 1 and all(
            (tool := self.toolbox.get(effect["tool_name"])) is not None and tool.read_only
            for effect in effects
        )
        if together:
            self._run_together(turn, [self._prepare(turn, effect) for effect in effects])
            return
        for effect in effects:
            turn.stop.check()
            call = self._prepare(turn, effect)
            if isinstance(call, RejectedCall):
                self._refuse(turn, call)
            else:
                self._begin(turn, call)
                self._settle(turn, call, self._run(turn, call))

    def _run_together(self, turn: Turn, calls: Sequence[ApprovedCall | RejectedCall]) -> None:
        """Run calls at the same time; results are stored in the order of the calls."""
        ready = [call for call in calls if isinstance(call, ApprovedCall)]
        for call in ready:
            self._begin(turn, call)
        running = {call.effect["id"]: _Worker(self, turn, call) for call in ready}
        for call in calls:
            if isinstance(call, RejectedCall):
                self._refuse(turn, call)
            else:
                self._settle(turn, call, running[call.effect["id"]].outcome())

    def _prepare(self, turn: Turn, effect: Row) -> ApprovedCall | RejectedCall:
        """Read and check a call, let plugins see it, and lead it through the gate."""
        args: Args = {}
        try:
            tool = self._tool(effect["tool_name"])
            is_cut = turn.was_cut or turn.is_resumed
            args = arguments.parse(effect["arguments"], is_cut=is_cut)
            args = schema.check(tool.parameters, args)
            args = self._after_hooks(turn, effect, tool, args)
            permit = self._admit(turn, tool, args, effect["tool_call_id"])
        except _Blocked as blocked:
            return RejectedCall(effect, args, "blocked", str(blocked))
        except ToolDeniedError as error:
            return RejectedCall(effect, args, "denied", str(error))
        except ToolError as error:
            return RejectedCall(effect, args, "failed", str(error))
        return ApprovedCall(effect, tool, args, permit)

    def _tool(self, name: str) -> Tool:
        tool = self.toolbox.get(name)
        if tool is None:
            names = ", ".join(spec.name for spec in self.toolbox.core)
            raise ToolError(f"There is no tool {name!r}.", fix=f"The tools are: {names}.")
        return tool

    def _after_hooks(self, turn: Turn, effect: Row, tool: Tool, args: Args) -> Args:
        answers = self.hooks.invoke_hook(
            "pre_tool_call",
            session_id=turn.session_id,
            turn_id=turn.id,
            tool_call_id=effect["tool_call_id"],
            tool_name=tool.name,
            arguments=args,
        )
        answer = hook_answers.first_refusal_or_answer(answers)
        if answer is None:
            return args
        if answer["action"] == "block":
            raise _Blocked(answer["message"] or "A plugin blocked this call.")
        return schema.check(tool.parameters, answer["arguments"])

    def _admit(self, turn: Turn, tool: Tool, args: Args, call_id: str) -> Permit:
        who = CallRef(turn.conversation_id, turn.session_id, turn.id, call_id)
        checkpoints = self.bench.checkpoints
        if tool.read_only or tool.reads_notes or checkpoints is None:
            return self.gate.admit(tool, args, self.bench, who, turn.stop, turn.report)
        checkpoints.begin(turn)
        permit = self.gate.admit(tool, args, self.bench, who, turn.stop, turn.report)
        if tool.is_path and tool.writes:
            checkpoints.before_write(permit.path)
        for kind, detail in lasting_effects(tool, permit, self.bench):
            checkpoints.note_effect(turn, call_id, tool.name, kind, detail)
        return permit

    def _begin(self, turn: Turn, call: ApprovedCall) -> None:
        turn.stop.check()
        self.bench.store.write(
            effect_ledger.start, call.effect["id"], turn.lease, reads=call.permit.reads
        )
        arguments = {name: _displayed(value) for name, value in call.args.items()}
        turn.report(ToolStarted(call.effect["tool_call_id"], call.tool.name, arguments))

    def _run(self, turn: Turn, call: ApprovedCall) -> CallResult:
        return _Worker(self, turn, call).outcome()

    def call_for(
        self, turn: Turn, ready: ApprovedCall, stop: Stop, inner: list[NestedCall]
    ) -> Call:
        """Make the `Call` for the tool's function; calls that it makes itself are added to `inner`."""
        call_id = ready.effect["tool_call_id"]

        def progress(text: str) -> None:
            turn.report(ToolProgress(call_id, redact(text)))

        def ask_user(question: str, choices: Sequence[str]) -> str:
            row = self.asker.put(
                Question(turn.id, call_id, "clarify", ready.tool.name, question, "", choices)
            )
            answer, _ = self.asker.wait(row, stop, turn.report)
            if answer is None:
                raise ToolError("No one answered.", fix="Go on with your best guess, and say so.")
            return answer

        def ask_host(host: str) -> None:
            who = CallRef(turn.conversation_id, turn.session_id, turn.id, call_id)
            self.gate.admit_host(host, ready.tool, ready.permit, self.bench, who, stop, turn.report)

        def note_host(host: str) -> None:
            note_read(TaintSource("outside", f"what {host} sent"))
            if self.bench.checkpoints is not None:
                self.bench.checkpoints.note_effect(turn, call_id, ready.tool.name, "host", host)

        def note_read(source: TaintSource) -> None:
            self.bench.store.write(taint.note, turn.session_id, [source], turn.id)

        def run_tool(name: str, arguments: Args) -> Result:
            return self._nested(turn, ready, stop, inner, name, arguments)

        return Call(
            id=call_id,
            session_id=turn.session_id,
            turn_id=turn.id,
            bench=self.bench,
            stop=stop,
            permit=ready.permit,
            progress=progress,
            ask_user=ask_user,
            ask_host=ask_host,
            note_host=note_host,
            run_tool=run_tool,
            delegate=self.delegate.of(turn, call_id, stop),
            note_read=note_read,
        )

    def _nested(
        self,
        turn: Turn,
        outer: ApprovedCall,
        stop: Stop,
        inner: list[NestedCall],
        name: str,
        args: Args,
    ) -> Result:
        """A tool called by a tool: the same hooks and the same gate, inside the same effect."""
        tool = self._tool(name)
        if tool.name == outer.tool.name:
            raise ToolError(f"{name} cannot call itself.")
        args = schema.check(tool.parameters, args)
        noted = NestedCall(tool.name, args, time.monotonic())
        inner.append(noted)
        try:
            noted.args = self._after_hooks(turn, outer.effect, tool, args)
            permit = self._admit(turn, tool, noted.args, outer.effect["tool_call_id"])
            if permit.reads:
                self.bench.store.write(taint.note, turn.session_id, permit.reads, turn.id)
            ready = outer._replace(tool=tool, args=noted.args, permit=permit)
            result = as_result(tool.run(noted.args, self.call_for(turn, ready, stop, inner)))
        except Exception as error:
            failed = failure(error)
            noted.end(failed.refusal or "failed", self._capped(failed.result).text)
            raise
        noted.end("failed" if result.is_error else "done", self._capped(result).text)
        return result

    def _settle(self, turn: Turn, call: ApprovedCall, ran: CallResult) -> None:
        """Store how a call came out, and tell whoever listens."""
        result = self._capped(ran.result)
        status = ran.refusal or ("failed" if result.is_error else "done")
        message = _message(call.effect, result, status, ran.seconds)
        end = effects.done if ran.is_known else effects.unknown
        self.bench.store.write(end, call.effect["id"], message, turn.lease)
        for inner in ran.inner:
            status, text, seconds = inner.outcome or ("failed", result.text, ran.seconds)
            facts = (inner.tool_name, inner.args, status, text, seconds)
            self._tell_plugins(turn, call.effect["tool_call_id"], *facts)
        self._tell(turn, call.effect, call.args, status, result, ran.seconds)

    def _refuse(self, turn: Turn, call: RejectedCall) -> None:
        result = Result(call.text, is_error=True)
        is_begun = (
            call.effect["state"] == EffectState.STARTED
        )  # before a crash; now it may not go on
        end = effects.unknown if is_begun else effects.cancel
        message = _message(call.effect, result, call.status, 0.0)
        self.bench.store.write(end, call.effect["id"], message, turn.lease)
        self._tell(turn, call.effect, call.args, call.status, result, 0.0)

    def _capped(self, result: Result) -> Result:
        limit = self.bench.settings.tools.output_limit
        return result._replace(
            text=shorten_middle(redact(result.text), limit),
            diff=_clipped(redact(result.diff), _MAX_DIFF),
        )

    def _tell(
        self,
        turn: Turn,
        effect: Row,
        args: Args,
        status: Status,
        result: Result,
        seconds: float,
    ) -> None:
        name, call_id = effect["tool_name"], effect["tool_call_id"]
        turn.report(
            ToolEnded(
                call_id,
                name,
                result.text,
                result.is_error,
                seconds,
                result.diff,
                {key: _displayed(value) for key, value in args.items()},
                result.exit_code,
                _refusal(status),
            )
        )
        self._tell_plugins(turn, call_id, name, args, status, result.text, seconds)

    def _tell_plugins(
        self,
        turn: Turn,
        call_id: str,
        name: str,
        args: Args,
        status: Status,
        text: str,
        seconds: float,
    ) -> None:
        self.hooks.invoke_hook(
            "post_tool_call",
            session_id=turn.session_id,
            turn_id=turn.id,
            tool_call_id=call_id,
            tool_name=name,
            arguments=args,
            status=status,
            result=text,
            duration_ms=round(seconds * 1000),
        )


class DelegateFor:
    """Makes the `delegate` of a call; the agent gives the real one, this one has no sub-agents."""

    def of(self, turn: Turn, call_id: str, stop: Stop) -> Delegate:
        """Return what a tool of this call may use to have a task done."""
        del turn, call_id, stop

        def refuse(task: str, context: str) -> Result:
            del task, context
            raise ToolError("A sub-agent has no sub-agents.", fix="Do the work yourself.")

        return refuse


class _Blocked(ToolError):
    """A plugin does not let a call run."""


class Failure(NamedTuple):
    """Describe how a tool failed."""

    result: Result
    refusal: Status | None = None
    is_cut_off: bool = False


def failure(error: BaseException) -> Failure:
    """Return what an error of a tool means; one that fails harms only itself."""
    if isinstance(error, Interrupted):
        text = "Stopped by the user before it was done."
        return Failure(Result(text, is_error=True), is_cut_off=True)
    if isinstance(error, ToolError):
        is_denied = isinstance(error, ToolDeniedError)
        refusal = "blocked" if isinstance(error, _Blocked) else "denied" if is_denied else None
        return Failure(Result(str(error), is_error=True), refusal)
    return Failure(Result(f"The tool failed: {describe_error(error)}", is_error=True))


class _Worker:
    """One tool in a thread of its own."""

    def __init__(self, executor: Executor, turn: Turn, call: ApprovedCall) -> None:
        self._turn = turn
        self._call = call
        self._stop = Stop()
        self._began = time.monotonic()
        self._wake = threading.Event()
        self._is_back = threading.Event()
        self._result: Result | None = None
        self._failure: Failure | None = None
        self._inner: list[NestedCall] = []
        self._stopped_at = 0.0
        context = executor.call_for(turn, call, self._stop, self._inner)
        name = f"tool-{call.tool.name}"
        threading.Thread(target=self._work, args=(context,), name=name, daemon=True).start()

    def _work(self, context: Call) -> None:
        try:
            self._result = as_result(self._call.tool.run(self._call.args, context))
        except BaseException as error:  # noqa: BLE001 -- whatever it is, the turn waits for us
            self._failure = failure(error)
            self._result = self._failure.result
        finally:
            self._is_back.set()
            self._wake.set()

    def outcome(self) -> CallResult:
        """Wait for the tool, but not past a stop or its time.

        Raises Interrupted when the turn is put off before it was done: the call stays open, and what
        becomes of it is decided when the turn goes on.
        """
        with self._turn.stop.callback(self._stopped):
            self._wake.wait(self._call.tool.timeout_s)
        if not self._is_back.is_set():
            self._stop.set()
            # Tools that run beside each other are stopped together: their grace is the same one.
            grace = self._stopped_at + _GRACE_S - time.monotonic()
            self._is_back.wait(max(grace, 0) if self._stopped_at else _TIMEOUT_GRACE_S)
        seconds = time.monotonic() - self._began
        failed, inner = self._failure, tuple(self._inner)
        is_cut_off = failed is not None and failed.is_cut_off
        if self._turn.stop.is_suspended and (is_cut_off or self._result is None):
            raise Interrupted
        if self._result is not None:
            return CallResult(self._result, seconds, refusal=failed and failed.refusal, inner=inner)
        why = "was stopped" if self._turn.stop.is_set else f"gave no answer within {seconds:.0f} s"
        text = f"The tool {why}. Whether it took effect is unknown; check before you repeat it."
        return CallResult(Result(text, is_error=True), seconds, is_known=False, inner=inner)

    def _stopped(self) -> None:
        self._stopped_at = time.monotonic()
        if self._turn.stop.is_suspended:
            self._stop.suspend()
        else:
            self._stop.set()
        self._wake.set()


def as_result(value: Result | str) -> Result:
    """Return what a tool returned, as a result."""
    return value if isinstance(value, Result) else Result(value)


def _message(effect: Row, result: Result, status: Status, seconds: float) -> dict[str, Any]:
    """The result as the model is told, and beside it what only people are shown."""
    content: Any = result.text
    if result.images:
        pictures = [{"type": "image_url", "image_url": {"url": url}} for url in result.images]
        content = [{"type": "text", "text": result.text}, *pictures]
    return {
        "role": "tool",
        "tool_call_id": effect["tool_call_id"],
        "tool_name": effect["tool_name"],
        "content": content,
        "is_error": result.is_error or None,
        "inline_diff": result.diff or None,
        "exit_code": result.exit_code or None,
        "refusal": _refusal(status) or None,
        "seconds": None if _refusal(status) else round(seconds, 3),
    }


def _refusal(status: Status) -> str:
    """Return who refused a call: the person or the policy (denied), a plugin (blocked), or nobody."""
    return status if status in ("denied", "blocked") else ""


def _clipped(diff: str, limit: int) -> str:
    """As much of a diff as is kept, in whole lines."""
    if len(diff) <= limit:
        return diff
    return diff[: diff.rfind("\n", 0, limit) + 1] + "(the rest of the comparison is left out)\n"


def _displayed(value: object) -> object:
    return shorten_middle(redact(value), 2000) if isinstance(value, str) else value
