"""The progress of a session's running turn, for a client that comes in the middle of it.

It follows the event log of the conversation before any client does, so that a snapshot and the number
of the last event in it belong together.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from hermes_agent.turn import events
from hermes_engine.events import (
    LogEntry,
    TurnCancelled,
    TurnDetached,
    TurnStarted,
    TurnSuspended,
    TurnWaiting,
)
from hermes_state.ledger import messages, turns
from tui_gateway import info, queue
from tui_gateway.inflight import Inflight, RunningTool
from tui_gateway.runtime import LiveSession, Runtime

_MAX_OUTPUT_CHARS = 16_000


class Progress:
    """The subscriber that keeps a session up to date. Called in the thread that publishes."""

    def __init__(self, rt: Runtime, session: LiveSession) -> None:
        self._rt = rt
        self._session = session
        self._live = rt.live(session)
        self._turn_id = ""
        self._text: list[str] = []
        self._tools: dict[str, RunningTool] = {}
        self._ended_calls: set[str] = set()
        self._last_message_id = 0
        self._on: dict[type[events.Event], Callable[[Any], None]] = {
            events.TextDelta: lambda event: self._text.append(event.text),
            events.StepStored: self._end_step,
            events.Steered: self._steer,
            events.ToolStarted: self._start_tool,
            events.ToolProgress: self._progress,
            events.ToolEnded: self._end_tool,
            events.Retrying: self._void,
            events.FellBack: self._void,
            TurnWaiting: self._void,
            events.Used: lambda event: self._fill(event.input_tokens + event.output_tokens),
            events.Compacted: self._move,
            events.TurnEnded: self._end,
            TurnSuspended: self._end,
            TurnDetached: self._end,
        }

    def __call__(self, entry: LogEntry) -> None:
        if isinstance(entry.event, TurnStarted):
            self._start(entry.turn_id)
        elif isinstance(entry.event, TurnCancelled):
            self._answer_steer(entry.turn_id, "rejected")
        elif isinstance(entry.event, TurnDetached) and self._turn_id not in ("", entry.turn_id):
            self._answer_steer(entry.turn_id, "queued")
        elif handle := self._on.get(type(entry.event)):
            handle(entry.event)

    def read(self) -> Inflight:
        """Return what was shown of the running turn; to be called while nothing is published."""
        tools = [msgspec.structs.replace(tool) for tool in self._tools.values()]
        text, ended = "".join(self._text), set(self._ended_calls)
        return Inflight(self._turn_id, text, tools, ended, self._last_message_id)

    def _start(self, turn_id: str) -> None:
        self._reset(turn_id)
        self._answer_steers()  # those that came when the last turn had just ended
        row = self._rt.db().read(turns.find, turn_id)
        if row is not None:
            self._live.own.add(row["user_message_id"])
            latest = self._rt.db().read(messages.page, row["session_id"], None, 1)
            self._last_message_id = latest[-1]["id"] if latest else 0
        running = self._rt.engine().work.get(self._live.conversation_id)
        if running is not None and running.agent is not None and running.agent.permissions is None:
            self._session["agent"], self._live.error = running.agent, None
            self._live.ready.set()
        queue.send_if_changed(self._rt, self._live)

    def _end(self, _event: events.Event) -> None:
        self._reset("")
        self._answer_steers()

    def _reset(self, turn_id: str) -> None:
        self._turn_id = turn_id
        self._text.clear()
        self._tools.clear()
        self._ended_calls.clear()

    def _void(self, _event: events.Event) -> None:
        self._text.clear()

    def _end_step(self, event: events.StepStored) -> None:
        self._text.clear()
        self._last_message_id = event.message_id

    def _start_tool(self, event: events.ToolStarted) -> None:
        self._tools[event.call_id] = RunningTool(event.call_id, event.name, event.arguments)

    def _end_tool(self, event: events.ToolEnded) -> None:
        self._tools.pop(event.call_id, None)
        self._ended_calls.add(event.call_id)

    def _progress(self, event: events.ToolProgress) -> None:
        if (tool := self._tools.get(event.call_id)) is not None:
            tool.output = (tool.output + whole_lines(event.text))[-_MAX_OUTPUT_CHARS:]

    def _fill(self, tokens: int) -> None:
        self._live.used_tokens = tokens
        self._rt.emit(self._live.sid, info.window_share(self._rt, self._session))

    def _move(self, event: events.Compacted) -> None:
        """Follow the conversation to its new session, also where another agent has compacted it."""
        self._session["session_key"] = event.new_session_id
        running = self._rt.engine().work.get(self._live.conversation_id)
        agent = self._session.get("agent")
        if agent is not None and running is not None and agent is not running.agent:
            agent.session_id = event.new_session_id
        self._fill(event.tokens_after)

    # -- messages to the running turn ---------------------------------------------------------------

    def _steer(self, event: events.Steered) -> None:
        self._last_message_id = event.message_id
        self._answer_steer(event.turn_id, "steered")

    def _answer_steers(self) -> None:
        """Answer those that the turn did not hear: each is a prompt of its own."""
        for turn_id in list(self._live.steers):
            self._answer_steer(turn_id, "queued")

    def _answer_steer(self, turn_id: str, status: str) -> None:
        if (answer := self._live.steers.pop(turn_id, None)) is not None:
            answer(status)


def whole_lines(text: str) -> str:
    """Return output with a line break at its end: clients append one to the other."""
    return text.rstrip("\n") + "\n"
