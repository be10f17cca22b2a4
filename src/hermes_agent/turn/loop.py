"""The loop: ask the model, store its step, run the tools, store the results, repeat, end.

Each of these is one transaction of the store. A turn that a crash cut off is run by the same loop, which
looks first at the calls that the last step left open.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from hermes_agent import compaction
from hermes_agent.hooks import Hooks
from hermes_agent.models.base import Reply, Request, has_images
from hermes_agent.turn.context import Prefix, TurnContext
from hermes_agent.turn.events import (
    Event,
    Notice,
    Steered,
    StepStored,
    ToolEnded,
    TurnEnded,
    Used,
)
from hermes_agent.turn.meter import Meter
from hermes_agent.turn.partial_reply import PartialReply
from hermes_agent.turn.tool_results import paired
from hermes_agent.turn.values import Outcome, Turn
from hermes_core.errors import (
    BudgetSpent,
    ContextTooLongError,
    Interrupted,
    ModelError,
    StoreError,
)
from hermes_core.secrets import redact
from hermes_state.ledger import budgets, messages, partials, turns
from hermes_state.ledger import effects as effect_ledger
from hermes_state.ledger import messages as message_ledger
from hermes_state.store import Store
from hermes_state.transitions import EffectState
from hermes_state.values import Call, NewMessage, Receipt, Row, Settled

_NOT_RUN = "Not run: the turn was stopped before."
_UNKNOWN = (
    "The process was cut off while this ran. Whether it took effect is unknown:"
    " check before you repeat it."
)

_FORCED_TARGET_SHARE = 0.25
"""The part of the room to aim at after a provider refused a request as too long."""

logger = logging.getLogger(__name__)

_SUSPENDED = Outcome("suspended", "", "Suspended until the next start.", "suspended")


class Loop:
    """Runs one turn to its end; each attempt has its own."""

    def __init__(self, context: TurnContext, turn: Turn, meter: Meter, prefix: Prefix) -> None:
        self._context = context
        self._store = context.store
        self._model = context.model
        self._turn = turn
        self._meter = meter
        self._prefix = prefix
        self._partial = PartialReply()
        self._was_compacted = False
        """Whether a provider's refusal has already led to a compaction in this turn."""

    def run(self) -> Outcome:
        """Run the turn; store its end, unless it is suspended."""
        try:
            return self._until_answered()
        except Interrupted:
            self._meter.note_unsettled()
            return _SUSPENDED if self._turn.stop.is_suspended else self._interrupt()
        except BudgetSpent as limit:
            return self._fail(f"Stopped: {limit}.", "budget")
        except ModelError as error:
            self._meter.note_unsettled()
            return self._fail(str(error), error.code)

    def _until_answered(self) -> Outcome:
        while True:
            self._turn.stop.check()
            self._act()
            self._turn.stop.check()  # what is sent to a stopped turn waits for the next one
            self._store_steers()
            reply, receipt = self._ask()
            if not reply.tool_calls:
                return self._answer(reply, receipt)
            self._store_step(reply, receipt)

    # -- act -----------------------------------------------------------------------------------

    def _act(self) -> None:
        """Run the calls of the last step; after a crash, those it left open."""
        effects = self._open_effects()
        if self._turn.is_resumed:
            for effect in effects:
                if effect["state"] == EffectState.STARTED and not effect["read_only"]:
                    self._mark_unknown(effect)
            effects = self._open_effects()
        if effects:
            self._context.executor.run(self._turn, effects)

    def _mark_unknown(self, effect: Row) -> None:
        """Tell the model, subscribers and plugins that nobody knows how a call ended."""
        self._store.write(
            effect_ledger.unknown, effect["id"], _result(effect, _UNKNOWN), self._turn.lease
        )
        name, call_id = effect["tool_name"], effect["tool_call_id"]
        arguments = _arguments(effect)
        self._turn.report(
            ToolEnded(call_id, name, _UNKNOWN, is_error=True, seconds=0.0, arguments=arguments)
        )
        report_unseen(self._context.hooks, self._turn.session_id, effect, _UNKNOWN)

    def _open_effects(self) -> list[Row]:
        if not self._turn.steps and not self._turn.is_resumed:
            return []
        effects = self._store.read(effect_ledger.of_turn, self._turn.id)
        return [effect for effect in effects if EffectState(effect["state"]).is_open]

    def _store_steers(self) -> None:
        """Store the messages that were sent to the running turn."""
        for text, queued_turn in self._context.take_steers():
            if queued_turn is not None:
                message_id = self._store.write(turns.merge, queued_turn, self._turn.id)
            else:
                message_id = self._store.write(
                    messages.append,
                    self._turn.session_id,
                    NewMessage("user", text, answers=self._turn.user_message_id),
                )
            if message_id is not None:
                self._turn.report(Steered(message_id, text, queued_turn or ""))

    # -- ask -----------------------------------------------------------------------------------

    def _ask(self) -> tuple[Reply, Receipt]:
        """Ask the model within its window; an empty reply is asked for once more."""
        reply, receipt = self._ask_once()
        if reply.text.strip() or reply.tool_calls:
            return reply, receipt
        self._store.write(budgets.settle, self._turn.id, self._turn.session_id, receipt)
        reply, receipt = self._ask_once()
        if reply.text.strip() or reply.tool_calls:
            return reply, receipt
        self._store.write(budgets.settle, self._turn.id, self._turn.session_id, receipt)
        raise ModelError(
            "The model returned nothing, twice.", fix="Try again, or use another model."
        )

    def _ask_once(self) -> tuple[Reply, Receipt]:
        request, tokens = self._request()
        try:
            return self._call(request, tokens)
        except ContextTooLongError:
            if self._was_compacted:
                raise
            self._was_compacted = True
            if not self._compact(force=True):
                raise
            request, tokens = self._request()
            return self._call(request, tokens)

    def _request(self) -> tuple[Request, int]:
        """Return the next request and its tokens; compact the conversation first if it is due."""
        request = Request(self._prefix.system, self._prefix.tools, self._history())
        tokens = self._context.estimator.count(request)
        facts = self._model.facts
        is_long = compaction.needed(
            tokens, facts.window, facts.max_output, self._context.settings.compaction
        )
        if is_long and self._compact():
            request = request._replace(messages=self._history())
            tokens = self._context.estimator.count(request)
        return request, tokens

    def _history(self) -> Sequence[Row]:
        """Return the messages up to this turn, without those of queued turns."""
        last = self._turn.user_message_id
        messages = self._store.read(message_ledger.as_conversation, self._turn.session_id)
        return paired([message for message in messages if _exchange(message) <= last])

    def _call(self, request: Request, tokens: int) -> tuple[Reply, Receipt]:
        """Reserve the cost, ask the model, and report the usage."""
        facts = self._model.facts
        room = compaction.reply_room(tokens, facts.window, facts.max_output)
        reservation, room = self._meter.reserve(facts, tokens, room)
        request = request._replace(max_output_tokens=room)
        self._warn_about_images(request)
        reply = self._ask_model(request)
        receipt = self._meter.receipt(reservation, facts, reply)
        self._context.estimator.learn(tokens, reply.usage.input_tokens)
        spent = receipt.spent
        self._turn.report(
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

    def _warn_about_images(self, request: Request) -> None:
        """Tell the person once per turn that the model does not see the image they sent."""
        facts = self._model.facts
        if self._turn.steps or facts.takes_images:
            return
        sent = next((row for row in reversed(request.messages) if row["role"] == "user"), None)
        if sent is not None and has_images(sent["content"]):
            self._turn.report(
                Notice(
                    f"{facts.name} does not see images, as far as is known, so it did not get yours."
                    " If it does: hermes config set model.images on"
                )
            )

    def _ask_model(self, request: Request) -> Reply:
        """Ask the model between its two hooks."""
        self._context.hooks.invoke_hook(
            "pre_model_call",
            session_id=self._turn.session_id,
            turn_id=self._turn.id,
            step=self._meter.steps,
            model=self._model.facts.name,
            message_count=len(request.messages),
            tool_count=len(request.tools),
        )
        began = time.monotonic()
        reply, error = None, "interrupted"
        try:
            with self._partial.step(self._store_partial):
                reply = self._model.ask(request, self._turn.stop, self._receive)
        except ModelError as failure:
            error = str(failure)
            raise
        else:
            error = ""
            return reply
        finally:
            self._context.hooks.invoke_hook(
                "post_model_call",
                session_id=self._turn.session_id,
                turn_id=self._turn.id,
                step=self._meter.steps,
                model=self._model.facts.name,
                input_tokens=reply.usage.input_tokens if reply else 0,
                output_tokens=reply.usage.output_tokens if reply else 0,
                finish_reason=reply.finish if reply else "",
                error=error,
                duration_ms=round((time.monotonic() - began) * 1000),
            )

    def _receive(self, event: Event) -> None:
        self._partial.receive(event)
        self._turn.report(event)

    def _store_partial(self, text: str) -> None:
        """Store the reply so far; a store that cannot be written now does not end the turn."""
        try:
            self._store.write(partials.save, self._turn.id, text, self._turn.lease)
        except StoreError as error:
            logger.warning("turn %s: could not store its partial reply: %s", self._turn.id, error)

    def _compact(self, *, force: bool = False) -> bool:
        """Compact the conversation and follow it to its new session; return whether that happened."""
        turn = self._turn
        job = self._context.compaction(
            turn.session_id, self._ask_for_summary, turn.lease, turn.stop, turn.report
        )
        job = msgspec.structs.replace(job, answering=turn.user_message_id)
        if force:
            job = msgspec.structs.replace(job, force=True, target_share=_FORCED_TARGET_SHARE)
        outcome = compaction.compact(job)
        if outcome is None:
            return False
        turn.session_id = outcome.new_session_id
        return True

    def _ask_for_summary(self, request: Request) -> Reply:
        tokens = self._context.estimator.count(request)
        turn = self._turn
        try:
            return self._meter.ask_separately(
                self._model, request, tokens, turn.stop, turn.session_id, "compaction"
            )
        except BudgetSpent as limit:  # a summary is not worth the turn: there is a way without one
            raise ModelError(str(limit)) from limit

    # -- store ---------------------------------------------------------------------------------

    def _store_step(self, reply: Reply, receipt: Receipt) -> None:
        calls = [self._intended(call) for call in reply.tool_calls]
        message_id = self._store.write(
            turns.step, self._turn.id, _assistant(reply), calls, self._turn.lease, receipt
        )
        self._turn.steps += 1
        self._turn.was_cut = reply.finish == "length"
        self._partial.clear()
        self._turn.report(StepStored(message_id, reply.text, len(calls)))

    def _intended(self, call: Mapping[str, Any]) -> Call:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        tool = self._context.executor.toolbox.get(name)
        if tool is not None and tool.inner is not None:
            tool = self._context.executor.toolbox.get(tool.inner(arguments))
        may_repeat = tool is not None and (tool.read_only or tool.resumes)
        return Call(call["id"], name, arguments, may_repeat)

    def _answer(self, reply: Reply, receipt: Receipt) -> Outcome:
        outcome = Outcome(
            "answered",
            redact(reply.text),
            is_partial=reply.finish == "length",
            reasoning=redact(reply.reasoning),
        )
        self._context.end_checkpoint(self._turn)  # what is edited once the reply is seen is kept
        self._store.write(
            turns.finish,
            self._turn.id,
            "answered",
            message=_assistant(reply),
            parts=self._context.deliver(self._turn.id, outcome),
            lease=self._turn.lease,
            receipt=receipt,
        )
        return self._ended(outcome)

    def _interrupt(self) -> Outcome:
        """End the turn as the user wished: store the partial reply and a result for every open call."""
        text, message = self._partial_message()
        outcome = Outcome("interrupted", text, "Stopped.", "interrupted", is_partial=bool(text))
        calls = open_calls(self._store, self._turn.id)
        self._store.write(
            turns.finish,
            self._turn.id,
            "interrupted",
            message=message,
            reason="stopped by the user",
            parts=self._context.deliver(self._turn.id, outcome),
            settled=[call.settled for call in calls],
            lease=self._turn.lease,
        )
        for call in calls:
            report_unseen(self._context.hooks, self._turn.session_id, call.effect, call.text)
        return self._ended(outcome)

    def _fail(self, reason: str, code: str) -> Outcome:
        text, message = self._partial_message()
        outcome = Outcome("failed", text, reason, code, is_partial=bool(text))
        self._store.write(
            turns.finish,
            self._turn.id,
            "failed",
            message=message,
            reason=reason,
            parts=self._context.deliver(self._turn.id, outcome),
            lease=self._turn.lease,
        )
        return self._ended(outcome)

    def _partial_message(self) -> tuple[str, dict[str, Any] | None]:
        """Return the text streamed in this step, and the message to store it as."""
        text = self._partial.text.strip()
        message = {"role": "assistant", "content": text, "kind": "partial"} if text else None
        return text, message

    def _ended(self, outcome: Outcome) -> Outcome:
        self._turn.report(
            TurnEnded(outcome.status, outcome.text, outcome.reason, outcome.reasoning)
        )
        return outcome


class OpenCall(NamedTuple):
    """A call without a result when its turn ends, and the result to store for it."""

    effect: Row
    text: str

    @property
    def settled(self) -> Settled:
        """Return the final state of the call."""
        state = "cancelled" if self.text == _NOT_RUN else "unknown"
        return Settled(self.effect["id"], state, _result(self.effect, self.text))


def open_calls(store: Store, turn_id: str) -> list[OpenCall]:
    """Return the calls of a turn that have no result."""
    texts = {"intended": _NOT_RUN, "started": _UNKNOWN}
    effects = store.read(effect_ledger.of_turn, turn_id)
    return [OpenCall(row, texts[row["state"]]) for row in effects if row["state"] in texts]


def report_unseen(hooks: Hooks, session_id: str, effect: Row, text: str) -> None:
    """Invoke post_tool_call for a call that was never run, or whose end is unknown."""
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
    """Return a reply as a message to store."""
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
    """Return the arguments of a call; empty when the model wrote them as invalid JSON."""
    try:
        return msgspec.json.decode(effect["arguments"], type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


def _result(effect: Row, text: str) -> dict[str, Any]:
    """Return a result message for a call that has none of its own."""
    return {
        "role": "tool",
        "tool_call_id": effect["tool_call_id"],
        "tool_name": effect["tool_name"],
        "content": text,
        "is_error": True,
    }


def _exchange(message: Row) -> int:
    """Return the user message that a message belongs to; 0 for a summary."""
    if message["role"] != "user" or message.get("kind") == "summary":
        return message.get("answers", 0)
    return message.get("answers") or message.get("origin_id") or message["id"]
