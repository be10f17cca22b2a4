"""The turn_view of a turn: takes the events of the server and shows them in the transcript.

Every event goes on to the screen after it was shown here, so that it sees them in the same order.
"""

from collections.abc import Callable
from dataclasses import dataclass

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from hermes_core import gc_tuning
from hermes_core.errors import HermesError
from hermes_tui import messages as m
from hermes_tui.catalog import Catalog
from hermes_tui.entries import Entry, Note, Tone, UserMessage, Welcome, last_reply
from hermes_tui.failures import ConnectionLostError
from hermes_tui.host import app_of
from hermes_tui.prompts import Prompts
from hermes_tui.session import Session
from hermes_tui.turn import TurnBuilder
from hermes_tui.widgets.fold import Fold
from hermes_tui.widgets.transcript import Fetch, Transcript

_SETTLE_AFTER_S = 0.1
"""So that a conversation is on the screen first."""


class TurnView(Vertical):
    """The transcript with the running turn, and the prompts that wait for theirs."""

    @dataclass
    class Set(Message):
        """Another conversation is to be shown."""

        entries: list[Entry]
        fetch: Fetch | None

    @dataclass
    class Noted(Message):
        """Something is to be said after what is shown by then."""

        note: Note

    @dataclass
    class Returned(Message):
        """Prompts that were sent from here are not answered, because somebody stopped everything."""

        messages: list[UserMessage]

    def __init__(self, session: Session, tell_waiting: Callable[[list[str]], None]) -> None:
        super().__init__(id="turn-view")
        self.transcript = Transcript()
        self.prompts = Prompts(session, self.transcript, tell_waiting)
        self._turn = TurnBuilder(self.transcript)
        self._catalog = Catalog(session)

    def compose(self) -> ComposeResult:
        yield self.transcript

    def on_unmount(self) -> None:
        gc_tuning.unfreeze()

    @on(Set)
    async def _set(self, event: Set) -> None:
        event.stop()
        await self.transcript.show(event.entries, event.fetch)
        self._turn.begin(event.entries)
        self.set_timer(_SETTLE_AFTER_S, gc_tuning.freeze)
        for entry in event.entries:
            if isinstance(entry, Welcome):
                self._tell_unanswered(entry)

    @work(exclusive=True, group="unanswered")
    async def _tell_unanswered(self, welcome: Welcome) -> None:
        """Say in the welcome that there are conversations which were left in the middle."""
        try:
            welcome.unanswered = await self._catalog.unanswered()
        except HermesError:
            return  # the list of conversations has it
        await self.transcript.changed(welcome)

    @on(Noted)
    async def _noted(self, event: Noted) -> None:
        event.stop()
        await self.transcript.add(event.note)

    @on(m.TurnStarted)
    async def _start(self, event: m.TurnStarted) -> None:
        self._turn.begin()
        await self.prompts.started(event)

    @on(m.QueueChanged)
    def _line_up(self, event: m.QueueChanged) -> None:
        if returned := self.prompts.keep(event):
            self.post_message(self.Returned(returned))

    @on(m.Steered)
    async def _steered(self, event: m.Steered) -> None:
        await self.prompts.steered(event.text)

    @on(m.ReplyDelta)
    async def _say(self, event: m.ReplyDelta) -> None:
        await self._turn.say(event.take())

    @on(m.ReplyInterim)
    async def _interim(self, event: m.ReplyInterim) -> None:
        await self._turn.interim(event)

    @on(m.StatusChanged)
    async def _status(self, event: m.StatusChanged) -> None:
        await self._turn.status(event)

    @on(m.ReasoningDelta)
    async def _think(self, event: m.ReasoningDelta) -> None:
        await self._turn.think(event.take())

    @on(m.ToolStarted)
    async def _start_call(self, event: m.ToolStarted) -> None:
        await self._turn.start_call(event)

    @on(m.ToolProgress)
    async def _progress(self, event: m.ToolProgress) -> None:
        await self._turn.progress(event.tool_id, event.take())

    @on(m.ToolEnded)
    async def _end_call(self, event: m.ToolEnded) -> None:
        await self._turn.end_call(event)

    @on(m.TurnEnded)
    async def _end(self, event: m.TurnEnded) -> None:
        await self._turn.end(event)

    @on(m.ServerFailed)
    async def _failed(self, event: m.ServerFailed) -> None:
        await self._turn.fail(event)

    # -- notes -------------------------------------------------------------------------------

    async def tell(self, text: str, tone: Tone = "info", fix: str = "") -> None:
        """Put a note at the end of the transcript."""
        await self.transcript.add(Note(text, tone, fix))

    @property
    def warnings(self) -> list[Note]:
        """What was told and is in no store, such as that the server has died."""
        notes = (entry for entry in self.transcript.entries if isinstance(entry, Note))
        return [note for note in notes if note.tone == "warning"]

    async def complain(self, error: HermesError) -> None:
        """Say what went wrong and what to do about it; a lost connection is told elsewhere."""
        if not isinstance(error, ConnectionLostError):
            await self.tell(error.message, "error", error.fix)

    # -- reading -----------------------------------------------------------------------------

    def toggle_details(self) -> None:
        """Open every tool call and thought in sight, or close all when any is open."""
        folds = list(self.query(Fold))
        is_any_open = any(fold.is_open for fold in folds)
        for fold in folds:
            fold.is_open = not is_any_open

    def copy_last(self) -> str:
        """Copy the last code of the last reply, or the reply when it has none; says what was done."""
        parts = last_reply(self.transcript.entries)
        if not parts:
            return "There is nothing to copy yet."
        from hermes_tui.widgets.reply import code_of  # noqa: PLC0415 -- loaded with the first reply

        code = [block for part in parts for block in code_of(part.text)]
        reply = "".join(part.text for part in parts).strip()
        app_of(self).copy_to_clipboard(code[-1] if code else reply)
        return "Copied the last code." if code else "Copied the last reply."
