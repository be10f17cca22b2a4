"""The chat: the transcript, what waits, the composer, the status line, and how they move each other."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable
from typing import Any

from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import Screen

from hermes_core.errors import HermesError
from hermes_core.text import truncate
from hermes_protocol import results
from hermes_tui import keymap
from hermes_tui import messages as m
from hermes_tui.attention import LONG_S, Attention
from hermes_tui.entries import Note
from hermes_tui.failures import CallError, ConnectionLostError
from hermes_tui.foreground import SETUP_COMMAND, run_in_foreground
from hermes_tui.history import InputHistory
from hermes_tui.host import app_of
from hermes_tui.opening_view import EarlierMessages, entries_of, news
from hermes_tui.tabs import Tab, Tabs
from hermes_tui.widgets.card import Card
from hermes_tui.widgets.cards import Cards
from hermes_tui.widgets.composer import Composer
from hermes_tui.widgets.composer_area import ComposerArea, RunLocal
from hermes_tui.widgets.fetch import Fetch
from hermes_tui.widgets.queue import WaitingPrompt, WaitingPrompts
from hermes_tui.widgets.side_panel import SidePanel
from hermes_tui.widgets.status import StatusLine
from hermes_tui.widgets.tab_bar import TabBar
from hermes_tui.widgets.turn_view import TurnView

_SECOND_PRESS_S = 2.0
_TRY_AGAIN_S = 2.0
_TITLE = 40
_BACK = "Reconnected to the server; nothing is lost."
_SERVER_GONE = (
    "Lost the connection to the server. Start it with `hermes serve`; this UI reconnects."
)


class ChatScreen(Screen[None]):
    """The one screen that is always there."""

    BINDINGS = keymap.bindings()
    AUTO_FOCUS = "#composer"
    HORIZONTAL_BREAKPOINTS = [(0, "-slim"), (140, "-wide")]  # noqa: RUF012 -- Textual's own
    VERTICAL_BREAKPOINTS = [(0, "-low"), (16, "-high"), (24, "-tall")]  # noqa: RUF012 -- Textual's own

    def __init__(
        self, tabs: Tabs, history: InputHistory, run_local: RunLocal, attention: Attention
    ) -> None:
        super().__init__()
        self.attention = attention
        self.tabs = tabs
        self.tab_bar = TabBar(tabs)
        self.turn_view = TurnView(tabs, self._state_changed)
        self.composer_area = ComposerArea(tabs, history, self.turn_view, run_local)
        self.composer = self.composer_area.composer
        self.cards = Cards(tabs, self.composer)
        self.status = StatusLine(tabs)
        self.panel = SidePanel(tabs)
        self._history = history
        self.fetch = Fetch(tabs, self.turn_view, self.composer)
        self._queue = WaitingPrompts()
        tabs.opened, tabs.selected = self._show_opened, self._show_tab
        tabs.queue_changed = self._queue_changed
        self._news: set[str] = set()
        """The texts about the set-up that were shown."""
        self._is_given_up = False
        self._is_second_press = False

    def compose(self) -> ComposeResult:
        yield self.panel
        yield self.tab_bar
        yield self.turn_view
        yield self.cards
        yield self.fetch
        yield self._queue
        yield self.composer_area
        yield self.status

    def on_mount(self) -> None:
        self.call_after_refresh(self._history.load)

    # -- the server comes and goes -----------------------------------------------------------

    def _state_changed(self) -> None:
        """Show the state of the conversations as it is now."""
        self.status.tell()
        self.tab_bar.tell()
        self.panel.tell()
        here = self.tabs.current
        self.attention.entitle(here.badge, "" if here.is_empty else here.title)

    @on(m.TurnEnded)
    def _call_at_end(self, event: m.TurnEnded) -> None:
        """Call a person who looks elsewhere, or has waited for long."""
        tab = self.tabs.find(event.session_id)
        if tab is None or event.payload.status == "interrupted":
            return
        if tab.conversation.lasted_s >= LONG_S or not app_of(self).app_focus:
            outcome = "failed" if event.payload.status == "error" else "finished"
            self.attention.call(f"{outcome}: {tab.title}")

    @on(m.ServerConnected)
    def _connected(self) -> None:
        self._is_given_up = False
        for tab in sorted(self.tabs.all, key=lambda tab: not tab.is_shown):
            self._open(tab)

    @on(m.ServerLost)
    async def _lost(self, event: m.ServerLost) -> None:
        here = self.tabs.current
        is_news = here.session.is_open and not self.tabs.is_ours
        self._is_given_up = event.delay_s is None
        for tab in self.tabs.all:
            tab.lose(event.reason)
            if not self._is_given_up:
                tab.conversation.activity = "reconnecting to the server"
        await self.cards.update_cards()
        if is_news:
            here.loss = Note(_SERVER_GONE, "warning")
            await here.transcript.add(here.loss)
        if self._is_given_up:
            fix = "Your text is kept. Press Ctrl+L to try again, or run `hermes doctor`."
            await here.add_note(f"The server failed to start: {event.reason}.", "error", fix)
        self._state_changed()

    def _open(self, tab: Tab) -> None:
        """Open a conversation as it was asked for, or again after a crash."""
        self.run_worker(self._open_at_last(tab), group=f"open {id(tab)}", exclusive=True)

    async def _open_at_last(self, tab: Tab) -> None:
        """Try until it is open; what is sent meanwhile waits, and a broken file can be corrected."""
        reported = ""
        while tab in self.tabs.all:
            try:
                await self._open_or_create(tab)
                return
            except ConnectionLostError:
                return
            except HermesError as error:
                if str(error) != reported:
                    await tab.add_error(error)
                reported = str(error)
            tab.session.connection_lost()
            tab.conversation.activity = "needs attention"
            self._state_changed()
            await asyncio.sleep(_TRY_AGAIN_S)

    async def _open_or_create(self, tab: Tab) -> None:
        """Open a conversation; at the start a new one when it is not to be had."""
        try:
            await tab.session.open(self.size.width)
        except CallError as error:
            if tab.conversation.has_spoken:
                raise
            await tab.session.create(self.size.width)
            note = Note(error.message, "error", error.fix)
            self.turn_view.post_message(TurnView.NoteRequested(tab, note))

    @work(exclusive=True, group="switch")
    async def switch(self, opening: Awaitable[None]) -> None:
        """Open another conversation, or this one anew, and say so when that fails."""
        tab = self.tabs.current
        try:
            await opening
        except HermesError as error:
            await tab.add_error(error)

    @work(group="refresh")
    async def _refresh(self, tab: Tab) -> None:
        """Show a conversation as it is now, after somebody else has rewritten it."""
        try:
            await tab.session.refresh()
        except HermesError as error:
            await tab.add_error(error)

    def _show_opened(self, tab: Tab, opened: results.Opened) -> None:
        """Show an opened conversation from its end, or what was missed of it after what is shown."""
        loss, tab.loss = tab.loss, None
        if not opened.events.replayed:
            self._load(tab, opened)
        elif loss is not None:
            tab.crash = ""
            self.run_worker(tab.transcript.remove(loss))
        if opened.running:
            tab.conversation.begin(time.monotonic())
        tab.prompts.load_queue(opened.queued)
        self._send_again(tab)
        self._show_notices(tab)
        self._state_changed()
        if opened.messages and tab.conversation.info.usage.cost_usd is None:
            self._learn_cost(tab)

    def _load(self, tab: Tab, opened: results.Opened) -> None:
        entries = entries_of(opened)
        if not entries:
            entries.append(tab.welcome)
            tab.update_welcome()
        if tab.crash:
            restart = f"The server stopped ({tab.crash}). It was started again; nothing is lost."
            entries.append(Note(restart if self.tabs.is_ours else _BACK, "warning"))
            tab.crash = ""
        entries += tab.notes
        tab.notes = []
        earlier = EarlierMessages(opened.messages, tab.session.page)
        has_more = len(opened.messages) < opened.message_count
        fetch = earlier.fetch if has_more else None
        self.turn_view.post_message(TurnView.Loaded(tab, entries, fetch))

    @work(group="cost")
    async def _learn_cost(self, tab: Tab) -> None:
        """A conversation that is opened again has cost something before its agent is made."""
        with contextlib.suppress(HermesError):
            usage = await tab.session.call("session.usage")
            tab.conversation.learn({"usage": usage})
            self._state_changed()

    @work(group="prompts")
    async def _send_again(self, tab: Tab) -> None:
        await self.cards.update_cards()
        try:
            await tab.prompts.send_again()
        except HermesError as error:
            await tab.add_error(error)

    # -- several conversations ---------------------------------------------------------------

    def _show_tab(self, before: Tab, tab: Tab) -> None:
        """Show another conversation, with its own draft."""
        self.composer_area.switch(before, tab)
        self._forget_press()
        self.turn_view.post_message(TurnView.SwitchRequested())
        if not tab.session.is_open:
            self._open(tab)
        self._queue_changed(tab)
        self._show_questions()
        self.composer.focus()

    @work(exclusive=True, group="questions")
    async def _show_questions(self) -> None:
        await self.cards.update_cards()
        await self.fetch.consider()

    @on(m.ToolEnded)
    def _show_todo(self) -> None:
        self.panel.tell()

    @on(TabBar.Selected)
    def _tab_clicked(self, event: TabBar.Selected) -> None:
        self.tabs.select(event.tab)

    def action_move(self, step: int) -> None:
        if len(self.tabs.all) > 1:
            self.tabs.move(step)
        else:
            self.notify(f"No other conversation is open. {keymap.keys_of('new')} starts one.")

    def action_close(self) -> None:
        """Close the conversation, unless a turn would be stopped by that."""
        if self.tabs.current.conversation.is_running:
            self.notify("A turn is running. Esc interrupts it.", severity="warning")
        else:
            self.switch(self.tabs.close(self.tabs.current))

    # -- what the server reports -------------------------------------------------------------

    @on(m.SessionChanged)
    @on(m.StatusChanged)
    async def _session_changed(self, event: m.SessionChanged | m.StatusChanged) -> None:
        is_waiting = isinstance(event, m.StatusChanged) and event.payload.kind == "waiting"
        tab = self.tabs.find(event.session_id)
        if tab is None or not (is_waiting or isinstance(event, m.SessionChanged)):
            return
        self._show_notices(tab)
        tab.update_welcome()
        await tab.transcript.changed(tab.welcome)
        if tab is self.tabs.current:
            await self.fetch.consider(again=is_waiting)

    @on(m.ModelProgress)
    def _fetching(self, event: m.ModelProgress) -> None:
        self.fetch.progress(event.payload)

    @on(Fetch.Declined)
    def _declined(self) -> None:
        """Without a model nobody answers what was sent; it stays in the history."""
        if self.tabs.current.conversation.is_running:
            self._stop(self.tabs.current)

    @on(Fetch.SetupRequested)
    async def run_setup(self) -> None:
        """Run `hermes setup` on this terminal; then the server answers with the model it set up."""
        tab = self.tabs.current
        with app_of(self).suspend():
            run_in_foreground(SETUP_COMMAND)
        try:
            outcome = await tab.session.call("setup.runtime_check")
        except HermesError as error:
            await tab.add_error(error)
            return
        if outcome.get("ok"):
            tab.conversation.learn({"offer": {}, "credential_warning": ""})
            await tab.add_note(f"{outcome.get('model')} answers now.")
        self._state_changed()
        await self.fetch.consider(again=True)

    @on(Fetch.Settled)
    def _write_on(self) -> None:
        self.composer.focus()

    def _show_notices(self, tab: Tab) -> None:
        """Say once what is known about the set-up only when the agent is made."""
        for note in news(tab.conversation.info):
            if note.text not in self._news:
                self._news.add(note.text)
                self.turn_view.post_message(TurnView.NoteRequested(tab, note))

    @on(m.TurnEnded)
    @on(m.RequestExpired)
    async def _settle_cards(self) -> None:
        await self.cards.update_cards()

    @on(m.SessionChanged)
    def _fill_gaps(self, event: m.SessionChanged) -> None:
        """Once nothing runs any more, show as it is stored what a dead process began."""
        tab = self.tabs.find(event.session_id)
        if tab is not None and tab.has_gaps and event.payload.running is False:
            tab.has_gaps = False
            tab.notes += tab.warnings
            self._refresh(tab)

    @on(m.HistoryChanged)
    def _rewritten(self, event: m.HistoryChanged) -> None:
        tab = self.tabs.find(event.session_id)
        if tab is not None and not tab.conversation.is_running:
            self._refresh(tab)

    @on(m.QueueChanged)
    def _give_back(self, event: m.QueueChanged) -> None:
        """Put what somebody else has stopped into the composer again."""
        tab = self.tabs.current
        if self.tabs.find(event.session_id) is tab and (returned := tab.draft.returned):
            tab.draft.returned = []
            self.composer_area.give_back(tab, returned)

    @on(m.ApprovalAsked)
    @on(m.QuestionAsked)
    async def _show_question(self, event: m.Event[Any]) -> None:
        tab = self.tabs.find(event.session_id)
        if tab is not None:
            self.attention.call(f"waiting for your answer: {tab.title}")
        if tab is self.tabs.current:
            await self.cards.update_cards()
        elif tab is not None:
            self.notify(
                f"{truncate(tab.title, _TITLE)}\n{keymap.keys_of('answer')} shows the question.",
                title="Waiting for your answer",
                severity="warning",
                markup=False,
            )

    @on(Cards.Settled)
    def _settled(self) -> None:
        if self.cards.current is None:
            self.composer.focus()
        self._state_changed()

    @on(m.Notified)
    async def _notified(self, event: m.Notified) -> None:
        is_grave = event.payload.level in ("warning", "error")
        tab = self.tabs.find(event.session_id) or self.tabs.current
        await tab.add_note(event.payload.text, "warning" if is_grave else "info")

    @on(m.BackgroundDone)
    async def _background_done(self, event: m.BackgroundDone) -> None:
        tab = self.tabs.find(event.session_id) or self.tabs.current
        await tab.add_note(f"Background result: {event.payload.text}")

    # -- what is written ---------------------------------------------------------------------

    def _queue_changed(self, tab: Tab) -> None:
        if tab is self.tabs.current:
            self._show_queue(tab)
        self._state_changed()

    @work(exclusive=True, group="waiting")
    async def _show_queue(self, tab: Tab) -> None:
        can_be_taken = tab.prompts.can_be_taken_back
        await self._queue.show(tab.conversation.waiting, can_be_taken=can_be_taken)

    # -- keys --------------------------------------------------------------------------------

    def action_stop_or_leave(self) -> None:
        """Clear the text, else interrupt the turn; a second press soon after that quits."""
        if self.composer.clear_text():
            return
        if self._is_second_press:
            app_of(self).run_worker(app_of(self).run_action("app.leave"))
            return
        self._stop_if_any()
        self._is_second_press = True
        self.status.hint = "Press Ctrl+C again to quit"
        self.status.tell()
        self.set_timer(_SECOND_PRESS_S, self._forget_press)

    async def action_stop(self) -> None:
        """Stop whatever is under way, and say so when nothing is."""
        if not self._stop_if_any():
            await self.tabs.current.add_note("Nothing is running.")

    def _stop_if_any(self) -> bool:
        tab = self.tabs.current
        if self.fetch.is_running:
            self.fetch.stop()
        elif tab.conversation.is_running or tab.prompts.are_under_way or tab.commands:
            self._stop(tab)
        else:
            return False
        return True

    def _forget_press(self) -> None:
        self._is_second_press = False
        self.status.hint = ""
        self.status.tell()

    @work(group="stop")
    async def _stop(self, tab: Tab) -> None:
        if tab.conversation.is_running:
            tab.conversation.stop()
            self._state_changed()
        self.composer_area.give_back(tab, tab.prompts.withdraw())
        tab.prompts.claim()
        if not tab.session.is_open:
            return
        try:
            await tab.session.stop()
            self.composer_area.give_back(tab, tab.prompts.give_up())
        except HermesError as error:
            await tab.add_error(error)

    def action_take_back(self) -> None:
        """Move the last queued prompt back to the composer, to change it or to drop it."""
        if self.turn_view.prompts.waiting:
            self._take_back()
        else:
            self.notify("No prompt is queued.")

    @on(WaitingPrompt.TakeBackRequested)
    def _queue_clicked(self, event: WaitingPrompt.TakeBackRequested) -> None:
        self._take_back(event.place)

    @work(exclusive=True, group="take-back")
    async def _take_back(self, place: int | None = None) -> None:
        tab = self.tabs.current
        try:
            self.composer_area.give_back(tab, [await tab.prompts.take_back(place)])
        except HermesError as error:
            self.notify(str(error), severity="warning", markup=False)
        self.composer.focus()

    def action_answer(self) -> None:
        """Go to what waits for an answer, here or in another conversation."""
        if (card := self.cards.current or self.fetch.card) is not None:
            self.composer.post_message(Composer.Answering(card))
        elif (tab := self.tabs.waiting()) is not None:
            self.tabs.select(tab)
        else:
            self.notify("There is no open question.")

    def action_page_up(self) -> None:
        self._read().scroll_page_up(animate=False)
        self.turn_view.transcript.look_further()

    def action_page_down(self) -> None:
        self._read().scroll_page_down(animate=False)

    def _read(self) -> VerticalScroll:
        """Return what scrolls: the text of the card that has the keys, else the transcript."""
        card = self.cards.current
        text = card.text if card is not None and card.has_keys else None
        return text if text is not None else self.turn_view.transcript

    def action_first(self) -> None:
        self.turn_view.transcript.to_first()

    async def action_last(self) -> None:
        await self.turn_view.transcript.to_end()

    def action_details(self) -> None:
        self.turn_view.toggle_details()

    def action_copy(self) -> None:
        self.notify(self.turn_view.copy_last(), timeout=2)

    def action_panel(self) -> None:
        """Show or hide the side panel, where there is room for it."""
        self.toggle_class("-without-panel")
        if not self.has_class("-wide"):
            self.notify("The side panel needs 140 columns.")

    def action_redraw(self) -> None:
        if self._is_given_up:
            self.tabs.client.retry()
        self.refresh(layout=True)

    def key_escape(self) -> None:
        """Go back to the text field, or interrupt the turn from there."""
        if self.composer.has_focus:
            self._stop_if_any()
        else:
            self.composer.focus()

    def prepare(self, event: events.Event) -> None:
        """Move the focus to the composer when a person starts to type or to paste."""
        if isinstance(event, events.Paste) or (
            isinstance(event, events.Key) and event.is_printable
        ):
            self.set_focus(self.composer)

    @on(Card.AnswerRequested)
    def _answer_requested(self) -> None:
        self.action_answer()

    @on(events.ScreenResume)
    def _seen_again(self) -> None:
        """Ignore keys that were typed in a dialog: they do not answer a card behind it."""
        if self.composer.answering is not None:
            self.composer.answering.take_focus_keys(is_sudden=True)

    @on(events.TextSelected)
    def _selected(self) -> None:
        """Copy what the mouse selects at once, so that Ctrl+C can mean interrupt."""
        if text := self.get_selected_text():
            app_of(self).copy_to_clipboard(text)
            self.notify("Copied.", timeout=1)

    @on(Composer.HelpRequested)
    async def _help(self) -> None:
        await self.run_action("app.help")

    @on(Composer.QuitRequested)
    async def _leave(self) -> None:
        await self.run_action("app.leave")

    def on_resize(self, event: events.Resize) -> None:
        self._resized(event.size.width)

    @work(exclusive=True, group="resize")
    async def _resized(self, columns: int) -> None:
        with contextlib.suppress(HermesError):
            for tab in self.tabs.all:
                await tab.session.call("terminal.resize", cols=columns)
