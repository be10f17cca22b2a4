"""Build the entries of a turn from the events of the server."""

import time
from collections.abc import Iterable
from typing import Any

from hermes_protocol import events
from hermes_tui import messages as m
from hermes_tui.entries import (
    STOPPED,
    Call,
    Divider,
    Entry,
    Note,
    Reply,
    Thought,
    replies_of,
    split_point,
)
from hermes_tui.transcript import Transcript


class TurnBuilder:
    """Knows which reply is being written, which thought is being thought and which calls run."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._parts: list[Reply] = []
        """The reply that is being written; the last part still grows."""
        self._thought: Thought | None = None
        self._thinking_since = 0.0
        self._calls: dict[str, Call] = {}
        self._replies: list[str] = []
        """The replies of this turn that are complete."""
        self._failures: set[str] = set()
        self._blank = ""
        self._trouble: Note | None = None
        """What was told last of what holds the turn up."""

    def begin(self, entries: Iterable[Entry] = ()) -> None:
        """Forget the turn before; what is shown and not over yet belongs to this one."""
        going_on = list(entries)
        self._parts = [e for e in going_on if isinstance(e, Reply) and not e.is_done]
        calls = (e for e in going_on if isinstance(e, Call) and e.state == "running")
        self._calls = {call.tool_id: call for call in calls}
        self._thought, self._blank = None, ""
        self._replies, self._failures = [], set()

    async def take(self, event: m.Event[Any]) -> None:
        """Add to the transcript what an event reports about the turn."""
        match event:
            case m.TurnStarted():
                self.begin()
            case m.StatusChanged():
                await self._status(event)
            case m.TurnEnded():
                await self._end(event.payload)
            case m.ServerFailed():
                await self._report_failure(event.payload)
            case m.ToolStarted() | m.ToolProgress() | m.ToolEnded():
                await self._take_call(event)
            case _:
                await self._take_text(event)

    async def _take_text(self, event: m.Event[Any]) -> None:
        match event:
            case m.ReplyDelta():
                await self._say(event.take())
            case m.ReplyInterim():
                await self._interim(event.payload)
            case m.ReasoningDelta():
                await self._think(event.take())
            case _:
                pass

    async def _take_call(self, event: m.ToolStarted | m.ToolProgress | m.ToolEnded) -> None:
        match event:
            case m.ToolStarted():
                await self._start_call(event.payload)
            case m.ToolProgress():
                await self._progress(event.payload.tool_id, event.take())
            case m.ToolEnded():
                await self._end_call(event.payload)

    async def _say(self, text: str) -> None:
        """Add the next piece of the reply."""
        await self._end_thought()
        if not self._parts:
            text = (self._blank + text).lstrip("\n")
            self._blank = "" if text.strip() else text
            if text.strip():
                await self._add_part(text)
            return
        reply = self._parts[-1]
        reply.text += text
        if "\n" in text and (place := split_point(reply.text)) is not None:
            rest, reply.text = reply.text[place:], reply.text[:place]
            await self._finish(reply)
            await self._add_part(rest)
        else:
            self._transcript.text_added(reply)

    async def _add_part(self, text: str) -> None:
        reply = Reply(text, is_done=False, is_continued=bool(self._parts))
        self._parts.append(reply)
        await self._transcript.add(reply)

    async def _finish(self, reply: Reply) -> None:
        reply.is_done = True
        await self._transcript.changed(reply)

    async def _interim(self, event: events.Interim) -> None:
        """Complete the text before tools are used."""
        if not event.already_streamed and not self._parts and event.text.strip():
            await self._say(event.text)
        await self._end_reply()

    async def _void(self) -> None:
        """Remove what was streamed since the last tool call."""
        for entry in (*self._parts, self._thought):
            if entry is not None:
                await self._transcript.remove(entry)
        self._parts, self._thought = [], None

    async def _think(self, text: str) -> None:
        """The next piece of a thought."""
        if self._thought is None:
            await self._end_reply()
            self._thought = Thought(text, is_done=False)
            self._thinking_since = time.monotonic()
            await self._transcript.add(self._thought)
            return
        self._thought.text += text
        await self._transcript.changed(self._thought)

    async def _start_call(self, event: events.ToolStart) -> None:
        call = self._calls.get(event.tool_id)
        if call is not None and call.state == "running":
            return  # it ran already when the conversation was opened
        await self._end_thought()
        await self._end_reply()
        call = Call(event.tool_id, event.name, event.context, event.args_text or "")
        self._calls[event.tool_id] = call
        await self._transcript.add(call)

    async def _progress(self, tool_id: str, text: str) -> None:
        """A running call has something to show."""
        call = self._calls.get(tool_id)
        if call is not None and call.state == "running":
            call.add_output(text)
            await self._transcript.changed(call)

    async def _end_call(self, event: events.ToolComplete) -> None:
        call = self._calls.get(event.tool_id)
        if call is None:
            started = events.ToolStart(event.tool_id, event.name, event.context)
            await self._start_call(started)
            call = self._calls[event.tool_id]
        call.arguments = call.arguments or _format_arguments(event.args)
        call.seconds = None if event.refusal else event.duration_s
        call.diff = event.inline_diff or ""
        call.result = event.result_text or event.result
        call.end(is_error=event.is_error, exit_code=event.exit_code, refusal=event.refusal)
        await self._transcript.changed(call)

    async def _status(self, event: m.StatusChanged) -> None:
        """Show a status of the server, where it matters for the transcript."""
        if event.payload.void:
            await self._void()
        if event.delay_reason:
            await self._tell_trouble(event.delay_reason)
        if event.payload.kind == "compacted":
            text = event.payload.text
            await self._transcript.add(Divider("the conversation was compacted", text))

    async def _tell_trouble(self, text: str) -> None:
        """Say what holds the turn up; the next attempt takes the place of the one before."""
        if self._trouble is not None and self._transcript.entries[-1:] == [self._trouble]:
            self._trouble.text = text
            await self._transcript.changed(self._trouble)
            return
        self._trouble = Note(text)
        await self._transcript.add(self._trouble)

    async def _report_failure(self, event: events.Failure) -> None:
        """Something could not be done; the end of the turn may say the same again."""
        self._failures.add(event.message.strip())
        await self._transcript.add(Note(event.message, "error"))

    async def _end(self, event: events.Complete) -> None:
        """Show the turn as it ended, whatever was streamed of it."""
        await self._end_thought()
        if event.status == "error":
            await self._end_reply()
            await self._fail(event)
        else:
            await self._settle(event.text)
        for call in self._calls.values():
            if call.state == "running":
                call.stop()
                await self._transcript.changed(call)
        if event.status == "interrupted" and not self._is_told_stopped:
            await self._transcript.add(Note(STOPPED))
        if event.warning:
            await self._transcript.add(Note(event.warning, "warning"))

    @property
    def _is_told_stopped(self) -> bool:
        """Return whether the last note says so: one stop ends all queued turns."""
        last = self._transcript.entries[-1:]
        return any(isinstance(entry, Note) and entry.text == STOPPED for entry in last)

    async def _settle(self, text: str) -> None:
        """Replace the streamed reply by the answer of the turn, if they differ."""
        written = "".join(part.text for part in self._parts).strip()
        answer = text.strip()
        is_told = not answer or answer in (
            written,
            *self._replies,
            "\n\n".join([*self._replies, written]),
        )
        if not is_told:
            for part in self._parts:
                await self._transcript.remove(part)
            self._parts = []
            for part in replies_of(text):
                await self._transcript.add(part)
        await self._end_reply()

    async def _fail(self, event: events.Complete) -> None:
        text = (event.error or event.text.removeprefix("Error: ")).strip()
        if text and text not in {*self._failures, *self._replies}:
            await self._transcript.add(Note(text, "error"))

    async def _end_reply(self) -> None:
        parts, self._parts = self._parts, []
        if parts:
            self._replies.append("".join(part.text for part in parts).strip())
            await self._finish(parts[-1])

    async def _end_thought(self) -> None:
        thought, self._thought = self._thought, None
        if thought is not None:
            thought.is_done = True
            thought.seconds = time.monotonic() - self._thinking_since
            await self._transcript.changed(thought)


def _format_arguments(arguments: dict[str, Any]) -> str:
    """The arguments of a call in full, each after its name; a single one needs none."""
    if len(arguments) == 1:
        return str(*arguments.values())
    return "\n".join(f"{name}: {value}" for name, value in arguments.items())
