"""The translation of engine events into the events of the wire protocol, each into at most one."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from hermes_agent.approval import display
from hermes_agent.turn import events
from hermes_agent.turn.call_summary import summary_of
from hermes_core.text import shorten_middle
from hermes_engine.events import LogEntry, TurnStarted, TurnWaiting
from hermes_protocol import events as wire
from hermes_protocol.structs import WireStruct
from tui_gateway import info, queue
from tui_gateway.progress import whole_lines
from tui_gateway.runtime import LiveSession, Runtime

_MAX_CHARS = 16_000
_MAX_ARGUMENT_CHARS = 1_000
_STATUSES = {"answered": "complete", "interrupted": "interrupted", "failed": "error"}


class Translator:
    """Translates the events of a session for one client."""

    def __init__(self, rt: Runtime, session: LiveSession) -> None:
        self._rt = rt
        self._session = session
        self._live = rt.live(session)
        self._renderer = None
        self._on: dict[type[events.Event], Callable[[str, Any], WireStruct | None]] = {
            TurnStarted: self._start,
            TurnWaiting: self._wait,
            events.TextDelta: self._text,
            events.ReasoningDelta: self._reason,
            events.ToolCallBegun: self._generate,
            events.ToolStarted: self._start_tool,
            events.ToolProgress: self._progress,
            events.ToolEnded: self._end_tool,
            events.StepStored: self._end_step,
            events.Steered: lambda _, event: wire.Steered(event.text),
            events.Retrying: self._retry,
            events.FellBack: self._fall_back,
            events.QuestionAsked: self._ask,
            events.QuestionAnswered: lambda _, event: wire.Settled(event.question_id, event.answer),
            events.QuestionWithdrawn: lambda _, event: wire.Settled(event.question_id),
            events.Compacting: self._compact,
            events.Compacted: self._compacted,
            events.Titled: self._title,
            events.Notice: self._notice,
            events.TurnEnded: self._end,
        }

    def __call__(self, entry: LogEntry) -> WireStruct | None:
        """Return the wire event of an engine event, if it has one."""
        if translate := self._on.get(type(entry.event)):
            return translate(entry.turn_id, entry.event)
        return None

    # -- the turn ----------------------------------------------------------------------------------

    def _start(self, turn_id: str, event: TurnStarted) -> WireStruct:
        cols = self._session.get("cols", 80)
        self._renderer = self._rt.make_stream_renderer(cols) if self._live.is_rendered else None
        prompt = queue.prompt(self._rt.db(), turn_id)
        queued = len(self._live.sent_queue)  # read for this event, before any client is sent it
        return wire.Start(turn_id, prompt.text, prompt.images, event.is_resumed, queued)

    def _wait(self, _turn_id: str, event: TurnWaiting) -> WireStruct:
        return wire.Status("waiting", event.reason, void=True)

    def _end(self, turn_id: str, event: events.TurnEnded) -> WireStruct:
        text, has_failed = event.text, event.status == "failed"
        if not text and has_failed:
            text = f"Error: {event.reason}"
        cols = self._session.get("cols", 80)
        return wire.Complete(
            text,
            _STATUSES[event.status],
            turn_id,
            info.current_usage(self._rt, self._session),
            error=event.reason if has_failed else None,
            reasoning=event.reasoning or None,
            rendered=self._rt.render_message(text, cols) if self._live.is_rendered else None,
        )

    # -- what the model says -----------------------------------------------------------------------

    def _text(self, _turn_id: str, event: events.TextDelta) -> WireStruct:
        rendered = self._renderer.feed(event.text) if self._renderer is not None else None
        return wire.Delta(event.text, rendered)

    def _reason(self, _turn_id: str, event: events.ReasoningDelta) -> WireStruct | None:
        if not self._session.get("show_reasoning", True):
            return None
        return wire.Reasoning(event.text)

    def _generate(self, _turn_id: str, event: events.ToolCallBegun) -> WireStruct | None:
        return wire.Generating(event.name) if self._shows_tools else None

    def _end_step(self, _turn_id: str, event: events.StepStored) -> WireStruct | None:
        if not event.text.strip():
            return None
        return wire.Interim(event.text, already_streamed=True)

    # -- tools -------------------------------------------------------------------------------------

    @property
    def _shows_tools(self) -> bool:
        return self._session.get("tool_progress_mode", "all") != "off"

    def _start_tool(self, _turn_id: str, event: events.ToolStarted) -> WireStruct | None:
        if not self._shows_tools:
            return None
        args_text = None
        if self._session.get("tool_progress_mode") == "verbose":
            args_text = shorten_middle(str(event.arguments), _MAX_ARGUMENT_CHARS)
        return wire.ToolStart(event.call_id, event.name, summary_of(event.arguments), args_text)

    def _progress(self, _turn_id: str, event: events.ToolProgress) -> WireStruct | None:
        if not self._shows_tools:
            return None
        return wire.ToolProgress(event.call_id, whole_lines(event.text))

    def _end_tool(self, _turn_id: str, event: events.ToolEnded) -> WireStruct | None:
        if not self._shows_tools and not event.diff:
            return None
        result = shorten_middle(event.result, _MAX_CHARS)
        return wire.ToolComplete(
            event.call_id,
            event.name,
            event.arguments,
            summary_of(event.arguments),
            result,
            result,
            round(event.seconds, 3),
            event.is_error,
            event.exit_code or None,
            event.diff or None,
            event.refusal or None,
        )

    # -- everything else ---------------------------------------------------------------------------

    def _ask(self, _turn_id: str, event: events.QuestionAsked) -> WireStruct:
        question = {"id": event.question_id, **msgspec.structs.asdict(event)}
        return request_of(self._rt, self._session, question)

    def _retry(self, _turn_id: str, event: events.Retrying) -> WireStruct:
        when = f" in {event.delay_s:.0f} s" if event.delay_s >= 1 else ""
        text = f"{event.reason} Trying again{when}."
        return wire.Status("retry", text, void=True)

    def _fall_back(self, _turn_id: str, event: events.FellBack) -> WireStruct:
        text = f"{event.reason} Asking {event.model} instead."
        return wire.Status("retry", text, void=True)

    def _compact(self, _turn_id: str, event: events.Compacting) -> WireStruct:
        text = f"Compacting {event.message_count} messages, {event.tokens} tokens."
        return wire.Status("compacting", text)

    def _compacted(self, _turn_id: str, event: events.Compacted) -> WireStruct:
        text = (
            f"Compacted from {event.tokens_before} to {event.tokens_after} tokens"
            f" ({event.strategy}). /expand shows the originals, /undo compress undoes it."
        )
        return wire.Status("compacted", text)

    def _title(self, _turn_id: str, event: events.Titled) -> WireStruct:
        return wire.Title(event.session_id, event.title)

    def _notice(self, _turn_id: str, event: events.Notice) -> WireStruct:
        return wire.Notification(event.text, "info", "notice")


def request_of(rt: Runtime, session: LiveSession, question: Mapping[str, Any]) -> WireStruct:
    """Return the event that asks the person a question, from the question's row."""
    choices = list(question["choices"])
    if question["kind"] == "clarify":
        return wire.Clarification(question["id"], question["text"], choices)
    reasons, lasting = display.lasting_of(question["text"])
    return wire.Approval(
        question["id"],
        question["tool_name"],
        question["detail"],
        reasons,
        choices,
        allow_permanent="always" in choices,
        remembers=lasting,
    )
