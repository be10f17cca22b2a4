"""The chat: the transcript, what waits, the composer, the status line, and how they move each other."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable

from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import Screen

from hermes_core.errors import HermesError
from hermes_protocol import results
from hermes_tui import keymap
from hermes_tui import messages as m
from hermes_tui.entries import Note, Welcome
from hermes_tui.failures import CallError, ConnectionLostError
from hermes_tui.history import InputHistory
from hermes_tui.host import app_of
from hermes_tui.opening_view import Earlier, entries_of, news
from hermes_tui.session import Session
from hermes_tui.widgets.card import Card
from hermes_tui.widgets.cards import Cards
from hermes_tui.widgets.composer import Composer
from hermes_tui.widgets.composer_area import ComposerArea, RunLocal
from hermes_tui.widgets.fetch import Fetch
from hermes_tui.widgets.queue import WaitingPrompt, WaitingPrompts
from hermes_tui.widgets.status import StatusLine
from hermes_tui.widgets.turn_view import TurnView

_SECOND_PRESS_S = 2.0
_TRY_AGAIN_S = 2.0
_BACK = "The server is there again; nothing is lost."
_GONE = "The server is gone. `hermes serve` starts it; then this goes on by itself."


class ChatScreen(Screen[None]):
    """The one screen that is always there."""

    BINDINGS = keymap.bindings()
    AUTO_FOCUS = "#composer"
    VERTICAL_BREAKPOINTS = [(0, "-low"), (16, "-high")]  # noqa: RUF012 -- Textual's own

    def __init__(self, session: Session, history: InputHistory, run_local: RunLocal) -> None:
        super().__init__()
        self.session = session
        self.turn_view = TurnView(session, self._tell_waiting)
        self.composer_area = ComposerArea(session, history, self.turn_view, run_local)
        self.composer = self.composer_area.composer
        self.cards = Cards(session, self.composer)
        self.status = StatusLine(session.conversation)
        self._history = history
        self.fetch = Fetch(session, self.turn_view, self.composer, is_agreed=session.pulls)
        self._queue = WaitingPrompts()
        session.shown = self._show
        self._welcome = Welcome()
        self._told: set[str] = set()
        self.for_later: list[Note] = []
        """What is to be said as soon as a conversation is shown."""
        self._crash = ""
        self._has_gaps = False
        """Whether a turn goes on that a dead process began: what became of its calls is not all told."""
        self._is_given_up = False
        self._is_second_press = False

    def compose(self) -> ComposeResult:
        yield self.turn_view
        yield self.cards
        yield self.fetch
        yield self._queue
        yield self.composer_area
        yield self.status

    def on_mount(self) -> None:
        self.call_after_refresh(self._history.load)

    # -- the server comes and goes -----------------------------------------------------------

    @on(m.ServerConnected)
    def _connected(self) -> None:
        self._is_given_up = False
        self._begin()

    @on(m.ServerLost)
    async def _lost(self, event: m.ServerLost) -> None:
        is_news = self.session.is_open and not self.session.is_ours
        self.session.lose()
        await self.cards.clear()
        self._crash = event.reason
        if is_news:
            await self.turn_view.tell(_GONE, "warning")
        self._is_given_up = event.delay_s is None
        if not self._is_given_up:
            self.session.conversation.activity = "server gone, trying again"
        else:
            fix = "What you typed is still here. Ctrl+L tries again; `hermes doctor` may tell more."
            await self.turn_view.tell(f"The server does not start: {event.reason}.", "error", fix)
        self.status.tell()

    @work(exclusive=True, group="open")
    async def _begin(self) -> None:
        """Open what is wanted; until that can be had, say what is wrong and try again."""
        await self._try_on()

    async def _open_wanted(self) -> None:
        """Open what is wanted; at the start a new conversation when that is not to be had."""
        try:
            await self.session.open(self.size.width)
        except CallError as error:
            if self.session.conversation.has_spoken:
                raise
            await self.session.new(self.size.width)
            self.turn_view.post_message(TurnView.Noted(Note(error.message, "error", error.fix)))

    @work(exclusive=True, group="open")
    async def open(self, opening: Awaitable[None]) -> None:
        """Open a conversation, and say so when that fails."""
        try:
            await opening
        except HermesError as error:
            await self.turn_view.complain(error)
            if not self.session.is_open:
                await self._try_on(str(error))

    async def _try_on(self, told: str = "") -> None:
        """Open what is wanted; what is sent meanwhile waits, and a broken file can be corrected."""
        while True:
            try:
                return await self._open_wanted()
            except ConnectionLostError:
                return None
            except HermesError as error:
                if str(error) != told:
                    await self.turn_view.complain(error)
                told = str(error)
            self.session.lose()
            self.session.conversation.activity = "needs attention"
            self.status.tell()
            await asyncio.sleep(_TRY_AGAIN_S)

    def _show(self, opened: results.Opened) -> None:
        """Show an opened conversation from its end."""
        entries = entries_of(opened)
        if not entries:
            entries.append(self._welcome)
            self._tell_who()
        if self._crash:
            restart = f"The server stopped ({self._crash}). It was started again; nothing is lost."
            text = restart if self.session.is_ours else _BACK
            entries.append(Note(text, "warning"))
            self._crash = ""
        entries += self.for_later
        self.for_later = []
        earlier = Earlier(opened.messages, self.session.page)
        has_more = len(opened.messages) < opened.message_count
        self.turn_view.post_message(TurnView.Set(entries, earlier.fetch if has_more else None))
        if opened.running:
            self.session.conversation.begin(time.monotonic())
        self.turn_view.prompts.know(opened.queued)
        self._settle(opened)
        self._tell_news()
        self.status.tell()
        if opened.messages and self.session.conversation.info.usage.cost_usd is None:
            self._learn_cost()

    @work(exclusive=True, group="cost")
    async def _learn_cost(self) -> None:
        """A conversation that is opened again has cost something before its agent is made."""
        with contextlib.suppress(HermesError):
            usage = await self.session.call("session.usage")
            self.session.conversation.learn({"usage": usage})
            self.status.tell()

    @work(group="prompts")
    async def _settle(self, opened: results.Opened) -> None:
        await self.cards.clear(but=opened.session_id)
        try:
            await self.turn_view.prompts.send_again()
        except HermesError as error:
            await self.turn_view.complain(error)

    # -- what the server reports -------------------------------------------------------------

    @on(m.Event)
    async def _heard(self, event: m.Event) -> None:
        if self.session.conversation.hear(event, time.monotonic()):
            self.status.tell()
        is_waiting = isinstance(event, m.StatusChanged) and event.kind == "waiting"
        if isinstance(event, m.SessionChanged) or is_waiting:
            self._tell_news()
            self._tell_who()
            await self.turn_view.transcript.changed(self._welcome)
            await self.fetch.consider(again=is_waiting)

    @on(m.ModelProgress)
    def _fetching(self, event: m.ModelProgress) -> None:
        self.fetch.progress(event)

    @on(Fetch.Declined)
    def _declined(self) -> None:
        """Without a model nobody answers what was sent; it stays in the history."""
        if self.session.conversation.is_running:
            self._stop()

    @on(Fetch.Settled)
    def _write_on(self) -> None:
        self.composer.focus()

    def _tell_who(self) -> None:
        info = self.session.conversation.info
        self._welcome.model, self._welcome.cwd = info.model, info.cwd

    def _tell_news(self) -> None:
        """What is known about the set-up only when the agent is made is told then, once."""
        for note in news(self.session.conversation.info):
            if note.text not in self._told:
                self._told.add(note.text)
                self.turn_view.post_message(TurnView.Noted(note))

    @on(m.TurnStarted)
    def _turn_started(self, event: m.TurnStarted) -> None:
        self._has_gaps |= event.is_recovered

    @on(m.TurnEnded)
    async def _turn_ended(self) -> None:
        await self.cards.clear()

    @on(m.SessionChanged)
    def _fill_gaps(self, event: m.SessionChanged) -> None:
        """Once nothing runs any more, show as it is stored what a dead process began."""
        if self._has_gaps and event.info.get("running") is False:
            self._has_gaps = False
            self.for_later += self.turn_view.warnings
            self.open(self.session.refresh())

    @on(m.Rewritten)
    def _rewritten(self) -> None:
        if not self.session.conversation.is_running:
            self.open(self.session.refresh())

    @on(m.ApprovalAsked)
    @on(m.QuestionAsked)
    async def _asked(self, event: m.Event) -> None:
        await self.cards.ask(event)
        app_of(self).bell()

    @on(m.RequestExpired)
    async def _expired(self, event: m.RequestExpired) -> None:
        await self.cards.expire(event.request_id)

    @on(Cards.Settled)
    def _settled(self) -> None:
        if self.cards.current is None:
            self.session.conversation.answered()
            self.composer.focus()
            self.status.tell()

    @on(m.Notified)
    async def _notified(self, event: m.Notified) -> None:
        is_grave = event.level in ("warning", "error")
        await self.turn_view.tell(event.text, "warning" if is_grave else "info")

    @on(m.BackgroundDone)
    async def _background_done(self, event: m.BackgroundDone) -> None:
        await self.turn_view.tell(f"From the background: {event.text}")

    # -- what is written ---------------------------------------------------------------------

    def keep_draft(self) -> None:
        """Put what is typed into the history, where a later start finds it."""
        self.composer.keep()

    def _tell_waiting(self, waiting: list[str]) -> None:
        self.session.conversation.waiting = waiting
        self._show_waiting(waiting)
        self.status.tell()

    @work(exclusive=True, group="waiting")
    async def _show_waiting(self, waiting: list[str]) -> None:
        await self._queue.show(waiting, can_be_taken=self.turn_view.prompts.can_be_taken_back)

    # -- keys --------------------------------------------------------------------------------

    def action_stop_or_leave(self) -> None:
        """Stop the turn; a second press soon after it leaves."""
        if self._is_second_press:
            app_of(self).run_worker(app_of(self).run_action("app.leave"))
            return
        self._stop_if_any()
        self._is_second_press = True
        self.status.hint = "Ctrl+C again leaves"
        self.status.tell()
        self.set_timer(_SECOND_PRESS_S, self._forget_press)

    async def action_stop(self) -> None:
        """Stop whatever is under way, and say so when nothing is."""
        if not self._stop_if_any():
            await self.turn_view.tell("Nothing is running.")

    def _stop_if_any(self) -> bool:
        if self.fetch.is_running:
            self.fetch.stop()
        elif (
            self.session.conversation.is_running
            or self.turn_view.prompts.are_under_way
            or self.composer_area.is_commanding
        ):
            self._stop()
        else:
            return False
        return True

    def _forget_press(self) -> None:
        self._is_second_press = False
        self.status.hint = ""
        self.status.tell()

    @work(group="stop")
    async def _stop(self) -> None:
        if self.session.conversation.is_running:
            self.session.conversation.stop()
            self.status.tell()
        self.composer_area.give_back(self.turn_view.prompts.withdraw())
        self.turn_view.prompts.claim()
        if not self.session.is_open:
            return
        try:
            await self.session.stop()
            self.composer_area.give_back(self.turn_view.prompts.give_up())
        except HermesError as error:
            await self.turn_view.complain(error)

    @on(TurnView.Returned)
    def _returned(self, event: TurnView.Returned) -> None:
        self.composer_area.give_back(event.messages)

    def action_take_back(self) -> None:
        """Have the prompt that was sent last in the composer again, to change it or to drop it."""
        if self.turn_view.prompts.waiting:
            self._take_back()
        else:
            self.notify("No prompt is waiting.")

    @on(WaitingPrompt.Wanted)
    def _wanted(self, event: WaitingPrompt.Wanted) -> None:
        self._take_back(event.place)

    @work(exclusive=True, group="take-back")
    async def _take_back(self, place: int | None = None) -> None:
        try:
            self.composer_area.give_back([await self.turn_view.prompts.take_back(place)])
        except HermesError as error:
            self.notify(str(error), severity="warning", markup=False)
        self.composer.focus()

    def action_answer(self) -> None:
        if (card := self.cards.current or self.fetch.card) is not None:
            self.composer.post_message(Composer.Answering(card))
        else:
            self.notify("Nothing waits for an answer.")

    def action_page_up(self) -> None:
        self._read().scroll_page_up(animate=False)
        self.turn_view.transcript.look_further()

    def action_page_down(self) -> None:
        self._read().scroll_page_down(animate=False)

    def _read(self) -> VerticalScroll:
        """What is being read: the text of the card that has the keys, else the transcript."""
        card = self.cards.current
        asked = card.text if card is not None and card.has_keys else None
        return asked if asked is not None else self.turn_view.transcript

    def action_first(self) -> None:
        self.turn_view.transcript.to_first()

    async def action_last(self) -> None:
        await self.turn_view.transcript.to_end()

    def action_details(self) -> None:
        self.turn_view.toggle_details()

    def action_copy(self) -> None:
        self.notify(self.turn_view.copy_last(), timeout=2)

    def action_redraw(self) -> None:
        if self._is_given_up:
            self.session.client.retry()
        self.refresh(layout=True)

    def key_escape(self) -> None:
        self.composer.focus()

    def prepare(self, event: events.Event) -> None:
        """Who reads and starts to type or to paste wants to write: that and all after it is written."""
        if isinstance(event, events.Paste) or (
            isinstance(event, events.Key) and event.is_printable
        ):
            self.set_focus(self.composer)

    @on(Card.Wanted)
    def _answer_wanted(self) -> None:
        self.action_answer()

    @on(events.ScreenResume)
    def _seen_again(self) -> None:
        """What was typed in a dialog is no answer to a card behind it."""
        if self.composer.answering is not None:
            self.composer.answering.gain_keys(is_sudden=True)

    @on(events.TextSelected)
    def _selected(self) -> None:
        """What is selected with the mouse is copied at once, so that Ctrl+C can mean stop."""
        if text := self.get_selected_text():
            app_of(self).copy_to_clipboard(text)
            self.notify("Copied.", timeout=1)

    @on(Composer.Helpless)
    async def _help(self) -> None:
        await self.run_action("app.help")

    @on(Composer.Leaving)
    async def _leave(self) -> None:
        await self.run_action("app.leave")

    def on_resize(self, event: events.Resize) -> None:
        self._resized(event.size.width)

    @work(exclusive=True, group="resize")
    async def _resized(self, columns: int) -> None:
        with contextlib.suppress(HermesError):
            await self.session.call("terminal.resize", cols=columns)
