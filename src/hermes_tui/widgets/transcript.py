"""Shows a transcript: widgets for the stretch of it that is near the screen."""

import asyncio
import contextlib
import importlib
from inspect import isawaitable
from typing import Any, cast

from textual import work
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from hermes_core.errors import HermesError
from hermes_tui.entries import (
    Call,
    Divider,
    Entry,
    Note,
    Reply,
    Thought,
    UserMessage,
    Welcome,
    lines_of,
)
from hermes_tui.host import app_of
from hermes_tui.transcript import Transcript

_SHOWN_SCREENS = 1.5
"""How much has widgets when the newest is in sight: all of it is laid out with every piece of text."""
_PAGE_SCREENS = 1.5
_MAX_SCREENS = 6.0
"""How much has widgets when somebody reads far back."""
_FEWEST_LINES = 24
_FETCHED, _FETCHED_FAR = 60, 1000
"""Messages that are asked for by who scrolls, and by who wants to go far back."""
_NEAR = 2

_VIEWS: dict[type[Any], tuple[str, str]] = {
    UserMessage: ("messages_view", "UserMessageView"),
    Note: ("messages_view", "NoteView"),
    Divider: ("messages_view", "DividerView"),
    Welcome: ("welcome", "WelcomeView"),
    Thought: ("reasoning", "Reasoning"),
    Call: ("tool", "ToolCall"),
    Reply: ("reply", "ReplyView"),
}


class TranscriptView(VerticalScroll):
    """A transcript with the newest at the bottom; stays there unless somebody scrolls back.

    Events, keys and scrolling change it side by side. So code that changes the part with widgets does
    it in one step, its ends, its views and their places, and waits for the screen only afterwards.
    """

    has_news = reactive(False)
    """Whether something came below what a person reads who has scrolled back."""

    def __init__(self, source: Transcript) -> None:
        super().__init__(id="transcript")
        self._source, source.view = source, self
        self._views: dict[int, Widget] = {}
        self._first = self._last = 0
        """The stretch that has widgets: from the first one up to, but without, the last one."""
        self._reaching = asyncio.Lock()
        """Held while earlier ones are fetched and shown."""
        self._hint = Static("", id="earlier")

    def compose(self) -> ComposeResult:
        yield self._hint

    def on_mount(self) -> None:
        self._hint.display = False
        self.anchor()

    @property
    def entries(self) -> list[Entry]:
        """The entries of the transcript that is shown."""
        return self._source.entries

    async def show(self, transcript: Transcript) -> None:
        """Show a transcript from its end, also one that is shown already and was loaded anew."""
        self._source.view = None
        self._source, transcript.view = transcript, self
        with app_of(self).batch_update():
            old = list(self._views.values())
            self._views.clear()
            self._last = len(self.entries)
            self._first = self._back_from(self._last, _SHOWN_SCREENS)
            views = self._make_all(self._first, self._last)
            self._tell_earlier()
            removal, arrival = self.remove_children(old), self.mount_all(views)
            await removal
            await arrival
        self.anchor()
        self.has_news = False
        self.call_after_refresh(self._load_nearby)

    async def entry_added(self) -> None:
        """Show the entry at the end, if the end is in sight."""
        self._note_news()
        if self._last == len(self.entries) - 1:
            self._last += 1
            await self.mount_all(self._make_all(self._last - 1, self._last))
            if self.is_following:
                await self._forget_earlier()

    async def entry_removed(self, entry: Entry, place: int) -> None:
        """Remove the widget of an entry that was at a place."""
        view = self._views.pop(id(entry), None)
        self._first -= place < self._first
        self._last -= place < self._last
        await self.remove_children([] if view is None else [view])

    async def entry_changed(self, entry: Entry) -> None:
        """Show an entry as it is now, if it is on the screen at all."""
        view = self._views.get(id(entry))
        if view is not None:
            result = cast("Any", view).follow()
            if isawaitable(result):
                await result

    def text_added(self, entry: Entry) -> None:
        """Show soon what was added to a reply."""
        self._note_news()
        if (view := self._views.get(id(entry))) is not None:
            cast("Any", view).follow_soon()  # a reply's view, whose module is loaded late

    def view_of(self, entry: Entry) -> Widget | None:
        """The widget of an entry, unless it is too far away to have one."""
        return self._views.get(id(entry))

    @property
    def has_earlier(self) -> bool:
        """Return whether there is more before what has widgets."""
        return self._first > 0 or self._source.fetch is not None

    @property
    def is_following(self) -> bool:
        """Return whether the newest entry is in sight and new ones scroll it up."""
        return self.scroll_offset.y >= self.max_scroll_y - 1

    @property
    def _is_held_at_end(self) -> bool:
        return self.is_anchored and not self._anchor_released

    def _note_news(self) -> None:
        self.has_news |= not (self._is_held_at_end or self.is_following)

    async def to_end(self) -> None:
        """Go to the newest and stay there."""
        if self._last < len(self.entries):
            await self.show(self._source)
        self.anchor()
        self.scroll_end(animate=False)

    @work(exclusive=True, group="first")
    async def to_first(self) -> None:
        """Go to the first there is here, with much of what was before it: again and again."""
        self.release_anchor()
        async with self._reaching:
            if not await self._fetch_more(_FETCHED_FAR):
                return
            with app_of(self).batch_update():
                removed = self._take_views(self._first, self._last)
                self._first, self._last = 0, self._forward_from(0, _SHOWN_SCREENS)
                views = self._make_all(0, self._last)
                self._tell_earlier()
                removal, arrival = self.remove_children(removed), self.mount_all(views)
                await removal
                await arrival
        self.scroll_home(animate=False, force=True, immediate=True)

    def look_further(self) -> None:
        """Load more when somebody scrolls back at the top, where nothing moves."""
        self.call_later(self._load_nearby)

    # -- the stretch that has widgets --------------------------------------------------------

    def _back_from(self, place: int, screens: float) -> int:
        """The first entry of so many screens that end before a place."""
        room = max(self.size.height, _FEWEST_LINES) * screens
        while place > 0 and room > 0:
            place -= 1
            room -= self._height_of(self.entries[place])
        return place

    def _forward_from(self, place: int, screens: float) -> int:
        """The end of so many screens that begin at a place."""
        room = max(self.size.height, _FEWEST_LINES) * screens
        while place < len(self.entries) and room > 0:
            room -= self._height_of(self.entries[place])
            place += 1
        return place

    def _height_of(self, entry: Entry) -> int:
        """Return the number of lines of an entry: those of its widget, or an estimate."""
        view = self._views.get(id(entry))
        drawn = view.outer_size.height if view is not None else 0
        return drawn or lines_of(entry, self.size.width)

    async def _forget_earlier(self) -> None:
        """Give up the widgets of what has scrolled far away."""
        first = self._back_from(self._last, _SHOWN_SCREENS)
        # In larger steps: what is above the screen moves when something goes.
        if first > self._first and self._back_from(self._last, _SHOWN_SCREENS + 0.5) > self._first:
            removed = self._take_views(self._first, first)
            self._first = first
            self._tell_earlier()
            await self.remove_children(removed)

    def _make_all(self, first: int, last: int) -> list[Widget]:
        return [self._make(entry) for entry in self.entries[first:last]]

    def _make(self, entry: Entry) -> Widget:
        module, name = _VIEWS[type(entry)]
        # By name: the Markdown parser is loaded with the first reply, not with the first frame.
        kind = getattr(importlib.import_module(f"hermes_tui.widgets.{module}"), name)
        view = cast("Widget", kind(entry))
        self._views[id(entry)] = view
        return view.add_class("entry")

    def _take_views(self, first: int, last: int) -> list[Widget]:
        """The widgets of what is to have none any more."""
        views = (self._views.pop(id(entry), None) for entry in self.entries[first:last])
        return [view for view in views if view is not None]

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self.is_following:
            self.has_news = False
        if self.is_mounted and self.entries:
            self.call_later(self._load_nearby)

    async def _load_nearby(self) -> None:
        if self.scroll_offset.y <= _NEAR and self.has_earlier:
            if not self._reaching.locked():
                self.run_worker(self._reach_back, group="earlier")
        elif self._last < len(self.entries) and self.is_following:
            await self._reach_forward()

    async def _reach_back(self) -> None:
        async with self._reaching:
            await self._show_earlier()

    async def _show_earlier(self) -> None:
        if self._first == 0 and not await self._fetch_more(_FETCHED):
            return
        start, seen = self._back_from(self._first, _PAGE_SCREENS), self._first_view()
        if start == self._first:
            self._tell_earlier()
            return
        is_held_at_end = seen is None or self._is_held_at_end
        distance = 0 if seen is None else self.scroll_offset.y - seen.virtual_region.y
        page = self._make_all(start, self._first)
        self._first = start
        self._tell_earlier()
        last, removed = self._forward_from(self._first, _MAX_SCREENS), list[Widget]()
        if last < self._last and not (is_held_at_end or self.is_following):
            removed = self._take_views(last, self._last)
            self._last = last
        arrival, removal = self.mount_all(page, after=self._hint), self.remove_children(removed)
        await arrival
        await removal
        self.call_after_refresh(self._keep_place, None if is_held_at_end else seen, distance)

    def _first_view(self) -> Widget | None:
        """The widget of the first entry that has one; None: none has."""
        has_any = self._first < self._last
        return self._views[id(self.entries[self._first])] if has_any else None

    async def _fetch_more(self, count: int) -> bool:
        """Fetch what came before, if anything did; False: another transcript is shown by now."""
        source, length = self._source, 0
        with contextlib.suppress(HermesError):  # who scrolls on asks again
            length = await source.fetch_earlier(count)
        if self._source is not source:
            self.call_later(self._load_nearby)
            return False
        self._first += length
        self._last += length
        return True

    def _keep_place(self, seen: Widget | None, distance: int) -> None:
        """Keep the same lines on the screen when there are more above them; None: the end."""
        if seen is None:
            self.anchor()
        elif not seen.is_attached:
            return
        elif self.max_scroll_y > 0:
            self.scroll_to(
                y=seen.virtual_region.y + distance, animate=False, force=True, immediate=True
            )
        if self.scroll_offset.y <= _NEAR:
            self.call_later(self._load_nearby)

    async def _reach_forward(self) -> None:
        last = self._forward_from(self._last, _PAGE_SCREENS)
        page = self._make_all(self._last, last)
        self._last = last
        await self.mount_all(page)

    def _tell_earlier(self) -> None:
        self._hint.display = self.has_earlier
        if self.has_earlier:
            self._hint.update(f"▲ {self._first} earlier" if self._first else "▲ earlier")
