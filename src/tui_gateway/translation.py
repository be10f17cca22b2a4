"""The translation of engine events into the events of the wire protocol, each into at most one."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from hermes_agent.turn import events
from hermes_core.text import shorten_middle
from hermes_engine.events import LogEntry, TurnStarted, TurnWaiting
from tui_gateway import info, queue
from tui_gateway.progress import whole_lines
from tui_gateway.projection import context_of
from tui_gateway.runtime import LiveSession, Runtime

_MAX_CHARS = 16_000
_MAX_ARGUMENT_CHARS = 1_000
_STATUSES = {"answered": "complete", "interrupted": "interrupted", "failed": "error"}

Payload = dict[str, Any]
WireEvent = tuple[str, Payload]


class Translator:
    """Translates the events of a session for one client."""

    def __init__(self, rt: Runtime, session: LiveSession) -> None:
        self._rt = rt
        self._session = session
        self._live = rt.live(session)
        self._renderer = None
        self._on: dict[type[events.Event], Callable[[str, Any], WireEvent | None]] = {
            TurnStarted: self._start,
            TurnWaiting: self._wait,
            events.TextDelta: self._text,
            events.ReasoningDelta: self._reason,
            events.ToolCallBegun: self._generate,
            events.ToolStarted: self._start_tool,
            events.ToolProgress: self._progress,
            events.ToolEnded: self._end_tool,
            events.StepStored: self._end_step,
            events.Steered: lambda _, event: ("prompt.steered", {"text": event.text}),
            events.Retrying: self._retry,
            events.FellBack: self._fall_back,
            events.QuestionAsked: self._ask,
            events.QuestionAnswered: lambda _, event: _settled(event.question_id, event.answer),
            events.QuestionWithdrawn: lambda _, event: _settled(event.question_id, ""),
            events.Compacting: self._compact,
            events.Compacted: self._compacted,
            events.Titled: self._title,
            events.Notice: self._notice,
            events.TurnEnded: self._end,
        }

    def __call__(self, entry: LogEntry) -> WireEvent | None:
        """Return the wire event of an engine event, if it has one."""
        if translate := self._on.get(type(entry.event)):
            return translate(entry.turn_id, entry.event)
        return None

    # -- the turn ----------------------------------------------------------------------------------

    def _start(self, turn_id: str, event: TurnStarted) -> WireEvent:
        cols = self._session.get("cols", 80)
        self._renderer = self._rt.make_stream_renderer(cols) if self._live.is_rendered else None
        prompt = queue.prompt(self._rt.db(), turn_id)
        payload: Payload = {
            "turn_id": turn_id,
            "user": prompt["text"],
            "is_recovered": event.is_resumed,
            "queued": len(queue.turn_ids(self._rt, self._live)),
        }
        if "images" in prompt:
            payload["images"] = prompt["images"]
        return "message.start", payload

    def _wait(self, _turn_id: str, event: TurnWaiting) -> WireEvent:
        return "status.update", {"kind": "waiting", "text": event.reason, "void": True}

    def _end(self, turn_id: str, event: events.TurnEnded) -> WireEvent:
        text = event.text
        if not text and event.status == "failed":
            text = f"Error: {event.reason}"
        payload: Payload = {
            "text": text,
            "status": _STATUSES[event.status],
            "turn_id": turn_id,
            "usage": info.current_usage(self._rt, self._session),
        }
        if event.status == "failed":
            payload["error"] = event.reason
        if event.reasoning:
            payload["reasoning"] = event.reasoning
        if self._live.is_rendered:
            payload["rendered"] = self._rt.render_message(text, self._session.get("cols", 80))
        return "message.complete", payload

    # -- what the model says -----------------------------------------------------------------------

    def _text(self, _turn_id: str, event: events.TextDelta) -> WireEvent:
        payload = {"text": event.text}
        if self._renderer is not None:
            rendered = self._renderer.feed(event.text)
            if rendered is not None:
                payload["rendered"] = rendered
        return "message.delta", payload

    def _reason(self, _turn_id: str, event: events.ReasoningDelta) -> WireEvent | None:
        if not self._session.get("show_reasoning", True):
            return None
        return "reasoning.delta", {"text": event.text}

    def _generate(self, _turn_id: str, event: events.ToolCallBegun) -> WireEvent | None:
        return ("tool.generating", {"name": event.name}) if self._shows_tools else None

    def _end_step(self, _turn_id: str, event: events.StepStored) -> WireEvent | None:
        if not event.text.strip():
            return None
        return "message.interim", {"text": event.text, "already_streamed": True}

    # -- tools -------------------------------------------------------------------------------------

    @property
    def _shows_tools(self) -> bool:
        return self._session.get("tool_progress_mode", "all") != "off"

    def _start_tool(self, _turn_id: str, event: events.ToolStarted) -> WireEvent | None:
        if not self._shows_tools:
            return None
        payload: Payload = {
            "tool_id": event.call_id,
            "name": event.name,
            "context": context_of(event.arguments),
        }
        if self._session.get("tool_progress_mode") == "verbose":
            payload["args_text"] = shorten_middle(str(event.arguments), _MAX_ARGUMENT_CHARS)
        return "tool.start", payload

    def _progress(self, _turn_id: str, event: events.ToolProgress) -> WireEvent | None:
        if not self._shows_tools:
            return None
        return "tool.progress", {"tool_id": event.call_id, "text": whole_lines(event.text)}

    def _end_tool(self, _turn_id: str, event: events.ToolEnded) -> WireEvent | None:
        if not self._shows_tools and not event.diff:
            return None
        result = shorten_middle(event.result, _MAX_CHARS)
        payload: Payload = {
            "tool_id": event.call_id,
            "name": event.name,
            "args": event.arguments,
            "context": context_of(event.arguments),
            "result": result,
            "result_text": result,
            "duration_s": round(event.seconds, 3),
            "is_error": event.is_error,
        }
        if event.exit_code:
            payload["exit_code"] = event.exit_code
        if event.diff:
            payload["inline_diff"] = event.diff
        return "tool.complete", payload

    # -- everything else ---------------------------------------------------------------------------

    def _ask(self, _turn_id: str, event: events.QuestionAsked) -> WireEvent:
        question = {"id": event.question_id, **msgspec.structs.asdict(event)}
        return request_of(self._rt, self._session, question)

    def _retry(self, _turn_id: str, event: events.Retrying) -> WireEvent:
        when = f" in {event.delay_s:.0f} s" if event.delay_s >= 1 else ""
        text = f"{event.reason} Trying again{when}."
        return "status.update", {"kind": "retry", "text": text, "void": True}

    def _fall_back(self, _turn_id: str, event: events.FellBack) -> WireEvent:
        text = f"{event.reason} Asking {event.model} instead."
        return "status.update", {"kind": "retry", "text": text, "void": True}

    def _compact(self, _turn_id: str, event: events.Compacting) -> WireEvent:
        text = f"Compacting {event.message_count} messages, {event.tokens} tokens."
        return "status.update", {"kind": "compacting", "text": text}

    def _compacted(self, _turn_id: str, event: events.Compacted) -> WireEvent:
        text = (
            f"Compacted from {event.tokens_before} to {event.tokens_after} tokens"
            f" ({event.strategy}). /expand shows the originals, /undo compress undoes it."
        )
        return "status.update", {"kind": "compacted", "text": text}

    def _title(self, _turn_id: str, event: events.Titled) -> WireEvent:
        return "session.title", {"session_id": event.session_id, "title": event.title}

    def _notice(self, _turn_id: str, event: events.Notice) -> WireEvent:
        payload = {"text": event.text, "level": "info", "kind": "notice"}
        return "notification.show", payload


def _settled(question_id: str, answer: str) -> WireEvent:
    return "question.settled", {"request_id": question_id, "answer": answer}


def request_of(rt: Runtime, session: LiveSession, question: Mapping[str, Any]) -> WireEvent:
    """Return the event that asks the person a question, from the question's row."""
    payload: Payload = {"request_id": question["id"], "choices": list(question["choices"])}
    if question["kind"] == "clarify":
        return "clarify.request", {**payload, "question": question["text"]}
    return "approval.request", {
        **payload,
        "tool_name": question["tool_name"],
        "command": question["detail"],
        "description": question["text"],
        "allow_permanent": "always" in question["choices"],
        "remembers": "exactly this call" if "session" in question["choices"] else "",
    }
