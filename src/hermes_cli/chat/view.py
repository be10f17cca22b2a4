"""Shows a turn on a terminal: streamed text, and a line for each tool call, notice and end."""

import time
from collections.abc import Callable
from typing import Any, TextIO

from hermes_agent.turn import events
from hermes_agent.turn.call_summary import summary_of
from hermes_agent.turn.events import Event
from hermes_cli.chat import formatting
from hermes_cli.chat.formatting import Marks, Totals
from hermes_core.text import one_line, truncate, visible

_MAX_STEP_LENGTH = 300


class View:
    """Writes the events of turns as lines, without colors and without Markdown."""

    def __init__(self, notes: TextIO, answers: TextIO | None = None) -> None:
        """Text is streamed to `answers`; without it, text between tool calls becomes notes."""
        self._notes = notes
        self._answers = answers
        self._marks = Marks.of(notes)
        self._in_line = False
        self._abouts: dict[str, str] = {}
        self._totals = Totals()
        self._began = time.monotonic()
        self._on: dict[type[Event], Callable[[Any], None]] = {
            events.TextDelta: self._text,
            events.StepStored: self._end_step,
            events.ToolStarted: self._start_tool,
            events.ToolEnded: self._end_tool,
            events.Retrying: lambda event: self.note(formatting.retrying(event)),
            events.FellBack: lambda event: self.note(formatting.fell_back(event)),
            events.Used: lambda event: self._totals.add(event),
            events.Compacted: lambda event: self.note(formatting.compacted(event)),
            events.Notice: lambda event: self.note(event.text),
            events.TurnEnded: self._end_turn,
        }

    def begin(self) -> None:
        """Reset the totals for a new turn."""
        self._totals = Totals()
        self._began = time.monotonic()

    def show(self, event: Event) -> None:
        """Write an event, if it is shown at all."""
        if handler := self._on.get(type(event)):
            handler(event)

    def pause(self) -> None:
        """End the line that is being written."""
        if self._in_line and self._answers is not None:
            self._answers.write("\n")
            self._answers.flush()
        self._in_line = False

    def note(self, text: str) -> None:
        """Write a notice."""
        for line in visible(text).strip().split("\n"):
            self._write_line(f"{self._marks.note} {line}")

    def write(self, text: str, indent: int = 0) -> None:
        """Write text unchanged."""
        lines = visible(text).rstrip("\n").split("\n")
        self._write_line("\n".join(" " * indent + line for line in lines))

    def summary(self) -> None:
        """Write time, tokens and cost of the turn on one line."""
        if text := self._totals.describe(time.monotonic() - self._began):
            self.note(text)

    def _text(self, event: events.TextDelta) -> None:
        text = visible(event.text)
        if self._answers is not None and text:
            self._answers.write(text)
            self._answers.flush()
            self._in_line = not text.endswith("\n")

    def _end_step(self, event: events.StepStored) -> None:
        if self._answers is None and event.tool_calls and event.text.strip():
            self.note(truncate(one_line(event.text), _MAX_STEP_LENGTH))
        self.pause()

    def _start_tool(self, event: events.ToolStarted) -> None:
        self._abouts[event.call_id] = summary_of(event.arguments)

    def _end_tool(self, event: events.ToolEnded) -> None:
        about = self._abouts.pop(event.call_id, "")
        mark = self._marks.failed if event.is_error else self._marks.done
        parts = (mark, event.name, about, formatting.outcome(event))
        self._write_line(" ".join(part for part in parts if part))
        if event.diff:
            self._write_line(
                "\n".join(f"    {line}" for line in formatting.clipped_diff(event.diff))
            )

    def _end_turn(self, event: events.TurnEnded) -> None:
        self.pause()
        if event.status == "failed":
            self._write_line(f"{self._marks.failed} {visible(event.reason)}")
        elif event.status == "interrupted":
            self.note("Stopped.")

    def _write_line(self, text: str) -> None:
        self.pause()
        self._notes.write(f"{text}\n")
        self._notes.flush()
