"""What a person sees of a turn on a terminal: text as it comes, tools, notes, the end."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TextIO

from hermes_agent import events
from hermes_agent.events import Event
from hermes_cli.chat import wording
from hermes_cli.chat.blocks import Block, Blocks
from hermes_cli.chat.markdown import Painter
from hermes_cli.chat.screen import Line, Screen, clip, wrap
from hermes_cli.chat.wording import Marks, Totals
from hermes_core.text import visible

_SILENCE_S = 0.6
"""How long nothing may happen before the person is told what is being waited for."""
_THOUGHT_LINES = 3
_THINKING = "thinking"


@dataclass
class _Running:
    """A tool that runs."""

    name: str
    about: str
    began: float
    last: str = ""
    """The last line it has shown."""


class TerminalView:
    """Shows the events of turns. Called from one thread; `tick` now and then, for what only waits."""

    def __init__(
        self,
        out: TextIO,
        *,
        screen: Screen | None = None,
        notes: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`notes` is where everything but the answer goes; without it, to the same place."""
        self._screen = screen or Screen(out)
        self._painter = Painter(out)
        self._notes = notes
        self._note_painter = Painter(notes) if notes is not None else self._painter
        self._marks = Marks.of(out)
        self._clock = clock
        self._on: dict[type[Event], Callable[[Any], None]] = {
            events.TextDelta: self._text,
            events.ReasoningDelta: self._reason,
            events.ToolCallBegun: self._begin_call,
            events.StepStored: self._end_step,
            events.ToolStarted: self._start_tool,
            events.ToolProgress: self._progress,
            events.ToolEnded: self._end_tool,
            events.Retrying: lambda event: self._void(wording.retrying(event)),
            events.FellBack: lambda event: self._void(wording.fell_back(event)),
            events.Used: lambda event: self._totals.add(event),
            events.Compacting: self._begin_compacting,
            events.Compacted: lambda event: self.note(wording.compacted(event)),
            events.Notice: lambda event: self.note(event.text),
            events.TurnEnded: self._end_turn,
        }
        self.begin()
        self._above = ""

    @staticmethod
    def is_possible(out: TextIO) -> bool:
        """Whether the output is a terminal that can do more than write on."""
        return not Painter(out).is_dumb

    def begin(self) -> None:
        """A turn begins."""
        self._blocks = Blocks()
        self._is_raw = False
        """Whether the open block has outgrown the screen and stays as it was written."""
        self._standing = 0
        """Characters of it that stand for good."""
        self._above: Literal["", "text", "note"] = "text" if self._notes is None else ""
        """What stands above; at the beginning of a turn in a chat, what the person has typed."""
        self._thought = ""
        self._thought_at = 0.0
        self._running: dict[str, _Running] = {}
        self._totals = Totals()
        self._began = self._clock()
        self._wait_for(_THINKING)

    def hear(self, event: Event) -> None:
        """Show an event."""
        if show := self._on.get(type(event)):
            show(event)
            self._draw()

    def tick(self) -> None:
        """Time has passed; say what is being waited for when that takes long."""
        self._draw()

    def pause(self) -> None:
        """Leave the screen to somebody else, who ends with a whole line."""
        self._finish_said()
        self._screen.clear()
        self._wait_for(self._waiting_for)

    def note(self, text: str, style: str = "dim") -> None:
        """Something a person should know."""
        self._finish_said()
        mark = f"{self._marks.note} "
        for line in wrap(visible(text).strip(), self._screen.columns - len(mark)):
            self._say([(mark, "dim"), (line, style)])
            mark = " " * len(mark)

    def plain(self, text: str, indent: int = 0) -> None:
        """Words as they are."""
        self._finish_said()
        lines = wrap(visible(text).expandtabs(4).rstrip("\n"), self._screen.columns - indent)
        self._put("".join(f"{' ' * indent}{line}\n" for line in lines))

    def markdown(self, text: str) -> None:
        """A whole text at once."""
        self._finish_said()
        self._text(events.TextDelta(text))
        self._finish_said()

    def summary(self) -> None:
        """What the turn took, in one line."""
        if words := self._totals.in_words(self._clock() - self._began):
            self._say([(f"{self._marks.note} {words}", "dim")])

    # -- text ----------------------------------------------------------------------------------

    def _text(self, event: events.TextDelta) -> None:
        self._finish_thought()
        self._wait_for("")
        text = visible(event.text).replace("\r", "").replace("\t", "    ")
        self._put_blocks(self._blocks.feed(text))

    def _put_blocks(self, blocks: Sequence[Block]) -> None:
        painted = "".join([self._painted(block) for block in blocks])
        if painted:
            self._screen.put(painted, self._live())

    def _painted(self, block: Block) -> str:
        if self._is_raw:
            raw = block.source[self._standing :].strip("\n")
            self._is_raw, self._standing = False, 0
            return "".join(f"{line}\n" for line in wrap(raw, self._screen.columns))
        gap = "\n" if self._above and not block.goes_on else ""
        self._above = "text"
        return gap + self._painter.block(block, self._screen.columns)

    def _finish_text(self) -> None:
        if self._blocks.rest.strip():
            self._put_blocks(self._blocks.end())
        self._blocks = Blocks()

    def _finish_said(self) -> None:
        """What was thought and said so far is complete."""
        self._finish_thought()
        self._finish_text()

    def _end_step(self, _event: events.StepStored) -> None:
        self._finish_said()

    def _void(self, why: str) -> None:
        """What was streamed of this step does not count."""
        self._blocks, self._is_raw, self._standing = Blocks(), False, 0
        cut = " What stands above is void." if self._above == "text" else ""
        self.note(why + cut, "yellow")
        self._wait_for(_THINKING)

    def _reason(self, event: events.ReasoningDelta) -> None:
        if not self._thought:
            self._thought_at = self._clock()
        self._thought += visible(event.text)

    def _finish_thought(self) -> None:
        if not self._thought.strip():
            return
        took = wording.duration(self._clock() - self._thought_at)
        gist = clip(f"thought for {took}: {self._thought}", self._screen.columns - 2)
        self._thought = ""
        self._say([(f"{self._marks.note} {gist}", "dim italic")])

    # -- tools ---------------------------------------------------------------------------------

    def _begin_call(self, event: events.ToolCallBegun) -> None:
        self._finish_said()
        self._wait_for(event.name)

    def _start_tool(self, event: events.ToolStarted) -> None:
        self._finish_said()
        about = wording.arguments_in_short(event.arguments)
        self._running[event.call_id] = _Running(event.name, about, self._clock())

    def _progress(self, event: events.ToolProgress) -> None:
        running = self._running.get(event.call_id)
        lines = visible(event.text).strip().splitlines()
        if running is not None and lines:
            running.last = lines[-1]

    def _end_tool(self, event: events.ToolEnded) -> None:
        running = self._running.pop(event.call_id, None)
        self._finish_said()
        room = self._screen.columns - len(event.name) - 5
        about = clip(running.about, max(room * 2 // 3, 12)) if running else ""
        how = clip(wording.outcome(event), max(room - len(about), 20))
        mark = (self._marks.failed, "red") if event.is_error else (self._marks.done, "green")
        parts = [mark, (f" {event.name} ", "bold"), (f"{about}  " if about else "", "")]
        self._say([*parts, (how, "red" if event.is_error else "dim")])
        if event.diff:
            lines = wording.clipped_diff(event.diff)
            self._put(self._note_painter.diff(lines, self._screen.columns))
        self._wait_for(_THINKING)

    # -- the end -------------------------------------------------------------------------------

    def _begin_compacting(self, _event: events.Compacting) -> None:
        self._finish_said()
        self._wait_for("shortening the conversation")

    def _end_turn(self, event: events.TurnEnded) -> None:
        self._finish_said()
        self._wait_for("")
        self._running.clear()
        if event.status == "failed":
            self._say([(f"{self._marks.failed} {visible(event.reason)}", "red")])
        elif event.status == "interrupted":
            self._say([(f"{self._marks.note} Stopped.", "yellow")])

    # -- the screen ----------------------------------------------------------------------------

    def _wait_for(self, what: str) -> None:
        self._waiting_for = what
        self._since = self._clock()

    def _draw(self) -> None:
        self._make_room()
        self._screen.show(self._live())

    def _make_room(self) -> None:
        """Let go of lines that would scroll out of sight before they can be replaced."""
        if len(self._raw_lines()) <= self._screen.room:
            return
        if not self._is_raw:
            self._put_blocks(self._blocks.spill())
        lines = self._raw_lines()
        if len(lines) > self._screen.room:
            self._screen.show(self._live())
            self._screen.keep(len(self._live()) - 1)
            self._standing = len(self._blocks.rest.rstrip("\n")) - len(lines[-1])
            self._is_raw, self._above = True, "text"

    def _raw_lines(self) -> list[str]:
        rest = self._blocks.rest[self._standing :].rstrip("\n")
        return wrap(rest, self._screen.columns) if rest.strip() else []

    def _live(self) -> list[Line]:
        """The lines that may change: text without an end, or what is being waited for."""
        if lines := self._raw_lines():
            is_apart = self._above and not (self._is_raw or self._blocks.goes_on)
            gap = [Line("")] if is_apart else []
            return [*gap, *map(Line, lines)]
        lines = self._waits()
        gap = [Line("")] if lines and self._above == "text" else []
        return [*gap, *(Line(line, is_dim=True) for line in lines)]

    def _waits(self) -> list[str]:
        """Thoughts, the tools that run, or that nothing happens."""
        columns = self._screen.columns
        if self._thought.strip():
            lines = wrap(" ".join(self._thought.split()), columns - 2)
            return [f"  {line}" for line in lines[-_THOUGHT_LINES:]]
        if self._running:
            running = list(self._running.values())[-self._screen.room :]
            return [clip(self._state_of(tool), columns) for tool in running]
        waited = self._clock() - self._since
        if self._waiting_for and waited >= _SILENCE_S:
            return [clip(f"{self._marks.more} {self._waiting_for} {int(waited)} s", columns)]
        return []

    def _state_of(self, tool: _Running) -> str:
        ran = self._clock() - tool.began
        parts = [self._marks.more, tool.name, tool.about, f" {int(ran)} s" if ran >= 1 else ""]
        return " ".join(part for part in parts if part) + (f" | {tool.last}" if tool.last else "")

    def _say(self, parts: Sequence[tuple[str, str]]) -> None:
        """A line for good that is no part of the answer."""
        self._put(self._note_painter.styled(parts, self._screen.columns))

    def _put(self, text: str) -> None:
        if self._notes is None:
            self._screen.put(("\n" if self._above == "text" else "") + text)
        else:
            self._screen.clear()
            self._notes.write(text)
            self._notes.flush()
        self._above = "note"
