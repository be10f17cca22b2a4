"""What a turn reports, as the events that clients know."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from hermes_agent.turn import events
from hermes_core.text import shorten_middle
from tui_gateway import info, scope
from tui_gateway.projection import context_of
from tui_gateway.runtime import LiveSession, RunningTool, Runtime

_LONGEST = 16_000
_LONGEST_ARGUMENTS = 1_000

Payload = dict[str, Any]


class Translator:
    """The sink of a session's agent."""

    def __init__(self, rt: Runtime, sid: str, session: LiveSession) -> None:
        self._rt = rt
        self._sid = sid
        self._session = session
        self._live = rt.live(session)
        self._on: dict[type[events.Event], Callable[[Any], None]] = {
            events.ReasoningDelta: self._reason,
            events.ToolCallBegun: self._generate,
            events.ToolStarted: self._start_tool,
            events.ToolProgress: self._progress,
            events.ToolEnded: self._end_tool,
            events.StepStored: self._end_step,
            events.Steered: self._steer,
            events.Retrying: self._retry,
            events.FellBack: self._fall_back,
            events.QuestionAsked: self._ask,
            events.QuestionAnswered: self._settle,
            events.QuestionWithdrawn: self._withdraw,
            events.Used: self._use,
            events.Compacting: self._compact,
            events.Compacted: self._compacted,
            events.Titled: self._title,
            events.Notice: self._notice,
        }

    def __call__(self, event: events.Event) -> None:
        """Tell the clients; text and the end of a turn are told by whoever runs the turn."""
        if tell := self._on.get(type(event)):
            tell(event)

    def _emit(self, kind: str, payload: Payload) -> None:
        self._rt.emit(kind, self._sid, payload)

    # -- what the model says and does ------------------------------------------------------------

    def _reason(self, event: events.ReasoningDelta) -> None:
        if self._session.get("show_reasoning", True):
            self._emit("reasoning.delta", {"text": event.text})

    def _generate(self, event: events.ToolCallBegun) -> None:
        if self._shows_tools:
            self._emit("tool.generating", {"name": event.name})

    def _end_step(self, event: events.StepStored) -> None:
        if event.text.strip():
            self._emit("message.interim", {"text": event.text, "already_streamed": True})
        self._live.streamed.clear()

    def _steer(self, event: events.Steered) -> None:
        with self._live.lock:
            heard = next((one for one in self._live.steering if one.text == event.text), None)
            if heard is not None:
                self._live.steering.remove(heard)
        if heard is not None:
            heard.tell("steered")
        self._emit("prompt.steered", {"text": event.text})

    # -- tools -----------------------------------------------------------------------------------

    @property
    def _shows_tools(self) -> bool:
        return self._session.get("tool_progress_mode", "all") != "off"

    def _start_tool(self, event: events.ToolStarted) -> None:
        running = RunningTool(event.call_id, event.name, event.arguments)
        self._live.tools[event.call_id] = running
        if not self._shows_tools:
            return
        payload: Payload = {
            "tool_id": event.call_id,
            "name": event.name,
            "context": context_of(event.arguments),
        }
        if self._session.get("tool_progress_mode") == "verbose":
            payload["args_text"] = shorten_middle(str(event.arguments), _LONGEST_ARGUMENTS)
        self._emit("tool.start", payload)

    def _progress(self, event: events.ToolProgress) -> None:
        lines = event.text.rstrip("\n") + "\n"  # clients put them one after the other
        if (running := self._live.tools.get(event.call_id)) is not None:
            running.output = (running.output + lines)[-_LONGEST:]
        if self._shows_tools:
            self._emit("tool.progress", {"tool_id": event.call_id, "text": lines})

    def _end_tool(self, event: events.ToolEnded) -> None:
        running = self._live.tools.pop(event.call_id, None)
        arguments = running.arguments if running is not None else event.arguments
        if not self._shows_tools and not event.diff:
            return
        result = shorten_middle(event.result, _LONGEST)
        payload: Payload = {
            "tool_id": event.call_id,
            "name": event.name,
            "args": arguments,
            "context": context_of(arguments),
            "result": result,
            "result_text": result,
            "duration_s": round(event.seconds, 3),
            "is_error": event.is_error,
        }
        if event.exit_code:
            payload["exit_code"] = event.exit_code
        if event.diff:
            payload["inline_diff"] = event.diff
        self._emit("tool.complete", payload)

    # -- questions -------------------------------------------------------------------------------

    def _ask(self, event: events.QuestionAsked) -> None:
        question = {"id": event.question_id, **msgspec.structs.asdict(event)}
        self._emit(*request_of(self._rt, self._session, question))

    def _settle(self, event: events.QuestionAnswered) -> None:
        self._emit("question.settled", {"request_id": event.question_id, "answer": event.answer})

    def _withdraw(self, event: events.QuestionWithdrawn) -> None:
        self._emit("question.settled", {"request_id": event.question_id, "answer": ""})

    # -- what happens around it ------------------------------------------------------------------

    def _retry(self, event: events.Retrying) -> None:
        self._live.streamed.clear()
        when = f" in {event.delay_s:.0f} s" if event.delay_s >= 1 else ""
        text = f"{event.reason} Trying again{when}."
        self._emit("status.update", {"kind": "retry", "text": text, "void": True})

    def _fall_back(self, event: events.FellBack) -> None:
        self._live.streamed.clear()
        text = f"{event.reason} Asking {event.model} instead."
        self._emit("status.update", {"kind": "retry", "text": text, "void": True})

    def _use(self, event: events.Used) -> None:
        self._fill(event.input_tokens + event.output_tokens)

    def _fill(self, tokens: int) -> None:
        self._live.taken = tokens
        self._emit("usage.update", info.window_share(self._rt, self._session))

    def _compact(self, event: events.Compacting) -> None:
        text = f"Shortening {event.message_count} messages, {event.tokens} tokens."
        self._emit("status.update", {"kind": "compacting", "text": text})

    def _compacted(self, event: events.Compacted) -> None:
        text = (
            f"Shortened from {event.tokens_before} to {event.tokens_after} tokens"
            f" ({event.strategy}). /expand shows the originals, /undo compress takes it back."
        )
        self._emit("status.update", {"kind": "compacted", "text": text})
        self._fill(event.tokens_after)

    def _title(self, event: events.Titled) -> None:
        self._emit("session.title", {"session_id": event.session_id, "title": event.title})

    def _notice(self, event: events.Notice) -> None:
        self._emit("notification.show", {"text": event.text, "level": "info", "kind": "notice"})


def request_of(
    rt: Runtime, session: LiveSession, question: Mapping[str, Any]
) -> tuple[str, Payload]:
    """The event that puts a question to the person, from the question's row."""
    payload: Payload = {"request_id": question["id"], "choices": list(question["choices"])}
    if question["kind"] == "clarify":
        return "clarify.request", {**payload, "question": question["text"]}
    return "approval.request", {
        **payload,
        "tool_name": question["tool_name"],
        "command": question["detail"],
        "description": question["text"],
        "allow_permanent": True,
        "remembers": scope.of_yes(rt, session, question),
    }
