"""The loop: ask the model, store what it said, run its tools, store the results, repeat, end.

Every arrow is one transaction of the store. A turn that a crash cut off is run by the same loop: what
its last step left open is what the loop looks at first.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from hermes_agent import compaction
from hermes_agent.hooks import Hooks
from hermes_agent.models.base import Model, Reply, Request, ToolSpec
from hermes_agent.tokens import Estimator
from hermes_agent.tools.execute import Executor
from hermes_agent.turn.events import (
    Event,
    Steered,
    StepStored,
    ToolEnded,
    TurnEnded,
    Used,
)
from hermes_agent.turn.meter import Meter
from hermes_agent.turn.partial_reply import PartialReply
from hermes_agent.turn.tool_results import paired
from hermes_agent.turn.values import Deliver, Outcome, Steer, Turn, deliver_nothing
from hermes_core.errors import (
    BudgetSpent,
    ContextTooLongError,
    Interrupted,
    ModelError,
    StoreError,
)
from hermes_core.secrets import redact
from hermes_core.settings import Settings
from hermes_state.protocol import Store
from hermes_state.values import Call, Receipt, Row, Settled

_NOT_RUN = "Not run: the turn was stopped before."
_CUT_OFF = (
    "The process was cut off while this ran. Whether it took effect is unknown:"
    " check before you repeat it."
)


logger = logging.getLogger(__name__)

_PUT_OFF = Outcome("suspended", "", "Put off until the next start.", "suspended")


class Loop(msgspec.Struct):
    """Runs one turn to its end. Made for the turn and thrown away after it."""

    store: Store
    model: Model
    executor: Executor
    hooks: Hooks
    settings: Settings
    estimator: Estimator
    meter: Meter
    turn: Turn
    system: str
    tools: Sequence[ToolSpec]
    platform: str
    take_steers: Callable[[], list[Steer]]
    """What the person said to the running turn since the last step."""
    deliver: Deliver = deliver_nothing
    partial: PartialReply = msgspec.field(default_factory=PartialReply)
    _made_room: bool = False

    def run(self) -> Outcome:
        """Run the turn; whatever happens, it has one end on disk afterwards, unless it is put off."""
        try:
            return self._until_answered()
        except Interrupted:
            self.meter.note_unsettled()
            return _PUT_OFF if self.turn.stop.is_suspended else self._interrupt()
        except BudgetSpent as limit:
            return self._fail(f"Stopped: {limit}.", "budget")
        except ModelError as error:
            self.meter.note_unsettled()
            return self._fail(str(error), error.code)

    def _until_answered(self) -> Outcome:
        while True:
            self.turn.stop.check()
            self._act()
            self.turn.stop.check()  # a turn that is stopped hears nothing more: that waits
            self._take_in()
            reply, receipt = self._ask()
            if not reply.tool_calls:
                return self._answer(reply, receipt)
            self._store_step(reply, receipt)

    # -- act -----------------------------------------------------------------------------------

    def _act(self) -> None:
        """Run what the last step asked for; after a crash, what it left open."""
        left = self._open_effects()
        if self.turn.is_resumed:
            for effect in left:
                if effect["state"] == "started" and not effect["read_only"]:
                    self._note_cut_off(effect)
            left = self._open_effects()
        if left:
            self.executor.run(self.turn, left)

    def _note_cut_off(self, effect: Row) -> None:
        """Have the model and whoever watches told of a call whose end nobody saw."""
        self.store.effects.unknown(effect["id"], _told(effect, _CUT_OFF), self.turn.lease)
        name, call_id = effect["tool_name"], effect["tool_call_id"]
        arguments = _arguments(effect)
        self.turn.report(
            ToolEnded(call_id, name, _CUT_OFF, is_error=True, seconds=0.0, arguments=arguments)
        )
        tell_unseen(self.hooks, self.turn.session_id, effect, _CUT_OFF)

    def _open_effects(self) -> list[Row]:
        if not self.turn.steps and not self.turn.is_resumed:
            return []
        effects = self.store.effects.of_turn(self.turn.id)
        return [effect for effect in effects if effect["state"] in ("intended", "started")]

    def _take_in(self) -> None:
        for text, waiting_turn in self.take_steers():
            if waiting_turn is not None:
                message_id = self.store.turns.fold(waiting_turn, self.turn.id)
            else:
                message_id = self.store.append_message(
                    self.turn.session_id, "user", text, answers=self.turn.user_message_id
                )
            if message_id is not None:
                self.turn.report(Steered(message_id, text))

    # -- ask -----------------------------------------------------------------------------------

    def _ask(self) -> tuple[Reply, Receipt]:
        """One answer of the model, with room made for it; an empty one is asked for once more."""
        reply, receipt = self._ask_once()
        if reply.text.strip() or reply.tool_calls:
            return reply, receipt
        self.store.budgets.settle(self.turn.id, self.turn.session_id, receipt)
        reply, receipt = self._ask_once()
        if reply.text.strip() or reply.tool_calls:
            return reply, receipt
        self.store.budgets.settle(self.turn.id, self.turn.session_id, receipt)
        raise ModelError(
            "The model returned nothing, twice.", fix="Ask again, or try another model."
        )

    def _ask_once(self) -> tuple[Reply, Receipt]:
        request, tokens = self._request()
        try:
            return self._call(request, tokens)
        except ContextTooLongError:
            if self._made_room:
                raise
            self._made_room = True
            if not self._compact(force=True):
                raise
            request, tokens = self._request()
            return self._call(request, tokens)

    def _request(self) -> tuple[Request, int]:
        """The request as it goes out, shortened when it would not fit, and its tokens."""
        request = Request(self.system, self.tools, self._history())
        tokens = self.estimator.count(request)
        facts = self.model.facts
        is_long = compaction.needed(
            tokens, facts.window, facts.max_output, self.settings.compaction
        )
        if is_long and self._compact():
            request = request._replace(messages=self._history())
            tokens = self.estimator.count(request)
        return request, tokens

    def _history(self) -> Sequence[Row]:
        """What was said up to this turn; what waits behind it is not shown to the model yet."""
        last = self.turn.user_message_id
        messages = self.store.get_messages_as_conversation(self.turn.session_id)
        return paired([message for message in messages if _exchange(message) <= last])

    def _call(self, request: Request, tokens: int) -> tuple[Reply, Receipt]:
        """Ask, within the limits: set aside, call, and make out what it cost."""
        facts = self.model.facts
        room = compaction.reply_room(tokens, facts.window, facts.max_output)
        reservation, room = self.meter.reserve(facts, tokens, room)
        request = request._replace(max_output_tokens=room)
        reply = self._observed(request)
        receipt = self.meter.receipt(reservation, facts, reply)
        self.estimator.learn(tokens, reply.usage.input_tokens)
        spent = receipt.spent
        self.turn.report(
            Used(
                model=spent.model,
                input_tokens=spent.input_tokens,
                output_tokens=spent.output_tokens,
                cache_read_tokens=spent.cache_read_tokens,
                cost_usd=spent.cost_usd,
                window=facts.window,
            )
        )
        return reply, receipt

    def _observed(self, request: Request) -> Reply:
        """Call the model between its two hooks."""
        self.hooks.invoke_hook(
            "pre_model_call",
            session_id=self.turn.session_id,
            turn_id=self.turn.id,
            step=self.meter.steps,
            model=self.model.facts.name,
            message_count=len(request.messages),
            tool_count=len(request.tools),
        )
        began = time.monotonic()
        reply, error = None, "interrupted"
        try:
            with self.partial.step(self._store_partial):
                reply = self.model.ask(request, self.turn.stop, self._heard)
        except ModelError as failure:
            error = str(failure)
            raise
        else:
            error = ""
            return reply
        finally:
            self.hooks.invoke_hook(
                "post_model_call",
                session_id=self.turn.session_id,
                turn_id=self.turn.id,
                step=self.meter.steps,
                model=self.model.facts.name,
                input_tokens=reply.usage.input_tokens if reply else 0,
                output_tokens=reply.usage.output_tokens if reply else 0,
                finish_reason=reply.finish if reply else "",
                error=error,
                duration_ms=round((time.monotonic() - began) * 1000),
            )

    def _heard(self, event: Event) -> None:
        self.partial.receive(event)
        self.turn.report(event)

    def _store_partial(self, text: str) -> None:
        """Store what was streamed so far; a store that cannot be written now does not end the turn."""
        try:
            self.store.partials.keep(self.turn.id, text, self.turn.lease)
        except StoreError as error:
            logger.warning("turn %s: could not store its partial reply: %s", self.turn.id, error)

    def _compact(self, *, force: bool = False) -> bool:
        """Shorten the conversation and follow it to its new session; tells whether it did."""

        facts = self.model.facts
        outcome = compaction.compact(
            compaction.Job(
                store=self.store,
                session_id=self.turn.session_id,
                estimator=self.estimator,
                window=facts.window,
                max_output=facts.max_output,
                ask=self._ask_for_summary,
                settings=self.settings.compaction,
                system=self.system,
                tools=self.tools,
                stop=self.turn.stop,
                report=self.turn.report,
                hooks=self.hooks,
                platform=self.platform,
                lease=self.turn.lease,
                force=force,
                target_share=0.25 if force else 0.5,
                answering=self.turn.user_message_id,
            )
        )
        if outcome is None:
            return False
        self.turn.session_id = outcome.new_session_id
        return True

    def _ask_for_summary(self, request: Request) -> Reply:
        tokens = self.estimator.count(request)
        turn = self.turn
        try:
            return self.meter.ask_aside(
                self.model, request, tokens, turn.stop, turn.session_id, "compaction"
            )
        except BudgetSpent as limit:  # a summary is not worth the turn: there is a way without one
            raise ModelError(str(limit)) from limit

    # -- store ---------------------------------------------------------------------------------

    def _store_step(self, reply: Reply, receipt: Receipt) -> None:
        calls = [self._intended(call) for call in reply.tool_calls]
        message_id = self.store.turns.step(
            self.turn.id, _assistant(reply), calls, self.turn.lease, receipt
        )
        self.turn.steps += 1
        self.turn.was_cut = reply.finish == "length"
        self.partial.clear()
        self.turn.report(StepStored(message_id, reply.text, len(calls)))

    def _intended(self, call: Mapping[str, Any]) -> Call:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        tool = self.executor.toolbox.get(name)
        if tool is not None and tool.inner is not None:
            tool = self.executor.toolbox.get(tool.inner(arguments))
        may_repeat = tool is not None and (tool.read_only or tool.resumes)
        return Call(call["id"], name, arguments, may_repeat)

    def _answer(self, reply: Reply, receipt: Receipt) -> Outcome:
        outcome = Outcome(
            "answered",
            redact(reply.text),
            is_partial=reply.finish == "length",
            reasoning=redact(reply.reasoning),
        )
        self.store.turns.finish(
            self.turn.id,
            "answered",
            message=_assistant(reply),
            pieces=self.deliver(self.turn.id, outcome),
            lease=self.turn.lease,
            receipt=receipt,
        )
        return self._ended(outcome)

    def _interrupt(self) -> Outcome:
        """End the turn as the user wished; what was streamed stays, and every call has a result."""
        text = self.partial.text.strip()
        message = {"role": "assistant", "content": text, "kind": "partial"} if text else None
        outcome = Outcome("interrupted", text, "Stopped.", "interrupted", is_partial=bool(text))
        left = left_open(self.store, self.turn.id)
        self.store.turns.finish(
            self.turn.id,
            "interrupted",
            message=message,
            reason="stopped by the user",
            pieces=self.deliver(self.turn.id, outcome),
            settled=[one.settled for one in left],
            lease=self.turn.lease,
        )
        for one in left:
            tell_unseen(self.hooks, self.turn.session_id, one.effect, one.text)
        return self._ended(outcome)

    def _fail(self, reason: str, code: str) -> Outcome:
        text = self.partial.text.strip()
        message = {"role": "assistant", "content": text, "kind": "partial"} if text else None
        outcome = Outcome("failed", text, reason, code, is_partial=bool(text))
        self.store.turns.finish(
            self.turn.id,
            "failed",
            message=message,
            reason=reason,
            pieces=self.deliver(self.turn.id, outcome),
            lease=self.turn.lease,
        )
        return self._ended(outcome)

    def _ended(self, outcome: Outcome) -> Outcome:
        self.turn.report(TurnEnded(outcome.status, outcome.text, outcome.reason))
        return outcome


class Left(NamedTuple):
    """A call that a turn leaves open when it ends, and what is told of it."""

    effect: Row
    text: str

    @property
    def settled(self) -> Settled:
        state = "cancelled" if self.text == _NOT_RUN else "unknown"
        return Settled(self.effect["id"], state, _told(self.effect, self.text))


def left_open(store: Store, turn_id: str) -> list[Left]:
    """Every call that a turn leaves open."""
    texts = {"intended": _NOT_RUN, "started": _CUT_OFF}
    effects = store.effects.of_turn(turn_id)
    return [Left(one, texts[one["state"]]) for one in effects if one["state"] in texts]


def tell_unseen(hooks: Hooks, session_id: str, effect: Row, text: str) -> None:
    """Tell plugins of a call that was settled although nobody saw its end, or it had none."""
    hooks.invoke_hook(
        "post_tool_call",
        session_id=session_id,
        turn_id=effect["turn_id"],
        tool_call_id=effect["tool_call_id"],
        tool_name=effect["tool_name"],
        arguments=_arguments(effect),
        status="failed",
        result=text,
        duration_ms=0,
    )


def _assistant(reply: Reply) -> dict[str, Any]:
    """A reply in the stored form."""
    message: dict[str, Any] = {
        **reply.extra,
        "role": "assistant",
        "content": reply.text or None,
        "finish_reason": reply.finish,
    }
    if reply.tool_calls:
        message["tool_calls"] = list(reply.tool_calls)
    if reply.reasoning:
        message["reasoning"] = reply.reasoning
    return message


def _arguments(effect: Row) -> dict[str, Any]:
    """What a call was made with, in whatever form the model gave it."""
    try:
        return msgspec.json.decode(effect["arguments"], type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


def _told(effect: Row, text: str) -> dict[str, Any]:
    """What the model is told about a call that has no result of its own."""
    return {
        "role": "tool",
        "tool_call_id": effect["tool_call_id"],
        "tool_name": effect["tool_name"],
        "content": text,
        "is_error": True,
    }


def _exchange(message: Row) -> int:
    """The user message that a message belongs to; summaries belong to the beginning."""
    if message["role"] != "user" or message.get("kind") == "summary":
        return message.get("answers", 0)
    return message.get("answers") or message.get("origin_id") or message["id"]
