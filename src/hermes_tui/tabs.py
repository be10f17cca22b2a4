"""The conversations that are open side by side, each with its transcript, and the one that is shown."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from hermes_core.errors import HermesError
from hermes_core.text import one_line
from hermes_protocol import results
from hermes_tui import messages as m
from hermes_tui.client import Client
from hermes_tui.entries import Note, Tone, UserMessage, Welcome
from hermes_tui.failures import ConnectionLostError
from hermes_tui.opening import Opening
from hermes_tui.prompts import Prompts
from hermes_tui.session import Session
from hermes_tui.transcript import Transcript
from hermes_tui.turn import TurnBuilder

Badge = Literal["", "working", "finished", "waiting", "lost"]


@dataclass
class Draft:
    """An unsent message of a conversation that is not shown."""

    text: str = ""
    pastes: dict[str, str] = field(default_factory=dict)
    images: list[str] = field(default_factory=list)
    returned: list[UserMessage] = field(default_factory=list)
    """Messages that were sent and given back; they belong before the text."""


class Tab:
    """An open conversation: its calls, its transcript, its prompts, its questions and its draft."""

    def __init__(self, client: Client, opening: Opening, changed: Callable[["Tab"], None]) -> None:
        """`changed` is called when the queue of its prompts is another one."""
        self.session = Session(client, opening)
        self.conversation = self.session.conversation
        self.transcript = Transcript()
        self.prompts = Prompts(self.session, self.transcript, self._line_up)
        self.turn = TurnBuilder(self.transcript)
        self.questions: list[m.ApprovalAsked | m.QuestionAsked] = []
        """What waits for an answer of the person, the oldest first."""
        self.draft = Draft()
        self.welcome = Welcome()
        self.is_shown = False
        self.has_finished = False
        """Whether a turn has ended since it was shown."""
        self.has_gaps = False
        """Whether a turn continues that a dead process began: not every result of its calls is known."""
        self.commands = 0
        """How many commands the server runs for it, such as a compaction, which takes its time."""
        self.loss: Note | None = None
        """The note that the server is gone, until it is there again."""
        self.crash = ""
        """Why the server stopped while a turn ran here, until that was reported."""
        self.notes: list[Note] = []
        """To be shown as soon as the conversation is."""
        self._changed = changed

    def update_welcome(self) -> None:
        """Say in the welcome who answers, and where it works."""
        info = self.conversation.info
        self.welcome.model, self.welcome.cwd = info.model, info.cwd

    async def add_note(self, text: str, tone: Tone = "info", fix: str = "") -> None:
        """Put a note at the end of the transcript."""
        await self.transcript.add(Note(text, tone, fix))

    async def add_error(self, error: HermesError) -> None:
        """Say what went wrong and what to do about it; a lost connection is reported elsewhere."""
        if not isinstance(error, ConnectionLostError):
            await self.add_note(error.message, "error", error.fix)

    @property
    def warnings(self) -> list[Note]:
        """Notes that are in no store, such as that the server has died."""
        notes = (entry for entry in self.transcript.entries if isinstance(entry, Note))
        return [note for note in notes if note.tone == "warning"]

    def _line_up(self, waiting: list[str]) -> None:
        self.conversation.waiting = waiting
        self._changed(self)

    @property
    def title(self) -> str:
        """Its title; before it has one, how it begins."""
        first = (e.text for e in self.transcript.entries if isinstance(e, UserMessage))
        return one_line(self.conversation.info.title or next(first, "")) or "New conversation"

    @property
    def badge(self) -> Badge:
        """Return what a person who looks at another conversation should know."""
        conversation = self.conversation
        if self.questions:
            return "waiting"
        if conversation.is_running:
            return "working"
        if conversation.state == "lost":
            return "lost"
        return "finished" if self.has_finished else ""

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was said in it, so that nothing is lost with it."""
        is_used = self.conversation.has_spoken or self.conversation.is_running
        return not (is_used or self.prompts.waiting or self.prompts.are_under_way)

    async def take(self, event: m.Event[Any], now: float) -> bool:
        """Take an event in, once; returns whether the state of the conversation changed."""
        if not self.conversation.advance(event.position):
            return False
        await self.turn.take(event)
        match event:
            case m.TurnStarted():
                self.has_gaps |= event.payload.is_recovered
                await self.prompts.started(event.payload)
            case m.TurnEnded():
                self.questions.clear()
                self.has_finished = not self.is_shown
            case m.QueueChanged():
                self.draft.returned += self.prompts.update_queue(event.payload)
            case m.Steered():
                await self.prompts.steered(event.payload.text)
            case m.ApprovalAsked() | m.QuestionAsked():
                self._ask(event)
            case m.RequestExpired():
                self.settle(event.payload.request_id)
            case _:
                pass
        return self.conversation.handle(event, now)

    def _ask(self, event: m.ApprovalAsked | m.QuestionAsked) -> None:
        ids = {question.payload.request_id for question in self.questions}
        if not event.payload.request_id or event.payload.request_id not in ids:
            self.questions.append(event)

    def settle(self, request_id: str) -> None:
        """Forget a question that needs no answer any more."""
        self.questions = [
            question for question in self.questions if question.payload.request_id != request_id
        ]
        if not self.questions:
            self.conversation.answered()

    def open(self, opened: results.Opened) -> None:
        """Forget what belonged to the session that was open before, if it was another one."""
        live = opened.session_id
        self.questions = [question for question in self.questions if question.session_id == live]

    def lose(self, reason: str) -> None:
        """The server is gone."""
        if self.is_shown or self.conversation.is_running:
            self.crash = reason
        self.session.connection_lost()
        self.questions.clear()


class Tabs:
    """The open conversations in the order of their opening; there is always one that is shown."""

    def __init__(self, client: Client, opening: Opening) -> None:
        self.client = client
        self.is_ours = opening.live is None
        """Whether the server was started for this interface, so that leaving ends the conversations."""
        self.pulls = opening.pulls
        self.opened: Callable[[Tab, results.Opened], None]
        """Called with every conversation that was opened, before any later event of it is heard."""
        self.selected: Callable[[Tab, Tab], None]
        """Called when another conversation is to be shown, with the one before and the new one."""
        self.queue_changed: Callable[[Tab], None]
        """Called when other prompts wait in a conversation than before."""
        self.connection = 0
        """How often the connection was lost; what came before and was not taken comes again."""
        self._new = Opening(cwd=opening.cwd, model=opening.model)
        self.current = self._make(opening)
        self.current.is_shown = True
        self.all = [self.current]

    def _make(self, opening: Opening) -> Tab:
        tab = Tab(self.client, opening, lambda tab: self.queue_changed(tab))
        tab.session.opened_as = lambda opened: self._opened(tab, opened)
        return tab

    def _opened(self, tab: Tab, opened: results.Opened) -> None:
        twin = self.find(opened.session_id, but=tab)
        if twin is not None:  # it was open here already, under another of its names
            twin.session.adopt(opened)
            self.select(twin)
            return
        tab.open(opened)
        if tab not in self.all:
            self.all.append(tab)
            self.opened(tab, opened)
            self.select(tab)
        else:
            self.opened(tab, opened)

    def find(self, live_id: str, but: Tab | None = None) -> Tab | None:
        """The tab of a live session; without an id it is the one that is shown."""
        if not live_id:
            return self.current
        return next(
            (t for t in self.all if t.conversation.live_id == live_id and t is not but), None
        )

    def stored(self, stored_id: str) -> Tab | None:
        """The tab of a stored conversation, if it is open."""
        return next((t for t in self.all if t.conversation.stored_id == stored_id), None)

    # -- opening and switching ---------------------------------------------------------------

    def new(self) -> None:
        """Show a new conversation, which has yet to be opened; an empty one is new already."""
        if not self.current.is_empty:
            tab = self._make(self._new)
            self.all.append(tab)
            self.select(tab)

    async def switch(self, stored_id: str, columns: int) -> None:
        """Show a stored conversation beside the others."""
        if (tab := self.stored(stored_id)) is not None:
            self.select(tab)
            return
        empty = self.current
        await self._make(Opening(resume=stored_id)).session.open(columns)
        await self._discard(empty)

    async def branch(self, name: str) -> None:
        """Continue in a copy; the original stays open."""
        params = {"name": name} if name else {}
        copy = await self.current.session.call("session.branch", **params)
        await self._make(self._new).session.join(str(copy.get("session_id", "")))

    def select(self, tab: Tab) -> None:
        """Show a conversation."""
        before, self.current = self.current, tab
        before.is_shown, tab.is_shown = False, True
        tab.has_finished = False
        if tab is not before:
            self.selected(before, tab)

    def move(self, step: int) -> None:
        """Show the conversation so many places further, around the end."""
        place = self.all.index(self.current) + step
        self.select(self.all[place % len(self.all)])

    def waiting(self) -> Tab | None:
        """The next conversation that waits for an answer of the person."""
        place = self.all.index(self.current)
        around = [*self.all[place:], *self.all[:place]]
        return next((tab for tab in around if tab.questions), None)

    # -- closing -----------------------------------------------------------------------------

    async def close(self, tab: Tab) -> None:
        """End a conversation; after the last one a new one is shown."""
        place = self.all.index(tab)
        if len(self.all) == 1:
            self.all.append(self._make(self._new))
        self.all.remove(tab)
        if tab is self.current:
            self.select(self.all[min(place, len(self.all) - 1)])
        if self.is_ours:
            await tab.session.close()

    async def _discard(self, tab: Tab) -> None:
        """Close a conversation in which nothing was said."""
        if tab in self.all and tab is not self.current and tab.is_empty:
            await self.close(tab)

    async def quit(self, timeout_s: float) -> None:
        """Close all conversations, then the connection, each within a time; our server ends with it."""
        with contextlib.suppress(TimeoutError):  # the server ends them when its input is closed
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*(tab.session.close() for tab in self.all if self.is_ours))
        await self.client.close(timeout_s)
