"""Takes the events of the server, in their order, and shows one of the transcripts.

Every event is passed on to the screen after its conversation has handled it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Static

from hermes_core import gc_tuning
from hermes_core.errors import HermesError
from hermes_tui import keymap
from hermes_tui import messages as m
from hermes_tui.catalog import Catalog
from hermes_tui.entries import Entry, Note, last_reply
from hermes_tui.host import app_of
from hermes_tui.prompts import Prompts
from hermes_tui.tabs import Tab, Tabs
from hermes_tui.transcript import Fetch
from hermes_tui.widgets.fold import Fold
from hermes_tui.widgets.transcript import TranscriptView

_SETTLE_AFTER_S = 0.1
"""So that a conversation is on the screen first."""


class NewsBelow(Static):
    """Says that there is new text below what is shown; a click leads there."""

    ALLOW_SELECT = False

    def __init__(self) -> None:
        text = f"▼ new text below · {keymap.keys_of('last')}"
        super().__init__(text, markup=False, id="news-below")

    def on_mount(self) -> None:
        self.display = False

    async def on_click(self) -> None:
        await self.run_action("screen.last")


class TurnView(Vertical):
    """The transcript of the conversation that is shown; every event of every conversation comes here."""

    @dataclass
    class Loaded(Message):
        """A conversation was opened and is to be shown from its end."""

        tab: Tab
        entries: list[Entry]
        fetch: Fetch | None

    class SwitchRequested(Message):
        """Another conversation is to be shown."""

    @dataclass
    class NoteRequested(Message):
        """A note is to be shown after what is shown by then."""

        tab: Tab
        note: Note

    def __init__(self, tabs: Tabs, state_changed: Callable[[], None]) -> None:
        super().__init__(id="turn-view")
        self.transcript = TranscriptView(tabs.current.transcript)
        self._below = NewsBelow()
        self._tabs = tabs
        self._state_changed = state_changed

    def compose(self) -> ComposeResult:
        yield self.transcript
        yield self._below

    def on_mount(self) -> None:
        self.watch(self.transcript, "has_news", self._tell_news)

    def _tell_news(self, has_news: bool) -> None:
        self._below.display = has_news

    def on_unmount(self) -> None:
        gc_tuning.unfreeze()

    @property
    def prompts(self) -> Prompts:
        """The prompts of the conversation that is shown."""
        return self._tabs.current.prompts

    @on(Loaded)
    async def _load(self, event: Loaded) -> None:
        event.stop()
        tab = event.tab
        tab.transcript.load(event.entries, event.fetch)
        tab.turn.begin(event.entries)
        if tab is self._tabs.current:
            await self.transcript.show(tab.transcript)
            self.set_timer(_SETTLE_AFTER_S, gc_tuning.freeze)
        if tab.welcome in event.entries:
            self._tell_unanswered(tab)

    @on(SwitchRequested)
    async def _switch(self, event: SwitchRequested) -> None:
        event.stop()
        transcript = self._tabs.current.transcript
        if transcript.view is None:
            await self.transcript.show(transcript)

    @work(exclusive=True, group="unanswered")
    async def _tell_unanswered(self, tab: Tab) -> None:
        """Say in the welcome that there are conversations which were left in the middle."""
        try:
            tab.welcome.unanswered = await Catalog(self._tabs).unanswered()
        except HermesError:
            return  # the list of conversations has it
        await tab.transcript.changed(tab.welcome)

    @on(NoteRequested)
    async def _noted(self, event: NoteRequested) -> None:
        event.stop()
        await event.tab.transcript.add(event.note)

    @on(m.Event)
    async def _take(self, event: m.Event[Any]) -> None:
        """Pass an event to its conversation; the screen gets it afterwards."""
        tab = self._tabs.find(event.session_id)
        if tab is None or event.connection < self._tabs.connection:
            event.stop()  # the conversation was closed, or the event comes again
        elif await tab.take(event, time.monotonic()):
            self._state_changed()

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
