"""The transcript of a conversation as values; a view shows it while it is on the screen."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from hermes_tui.entries import Entry

Fetch = Callable[[int], Awaitable[list[Entry]]]
"""Gives the entries of so many messages before the first one, or none when there are no more."""


class View(Protocol):
    """Shows a transcript; is called after each change."""

    async def entry_added(self) -> None: ...

    async def entry_removed(self, entry: Entry, place: int) -> None: ...

    async def entry_changed(self, entry: Entry) -> None: ...

    def text_added(self, entry: Entry) -> None: ...


class Transcript:
    """The entries of one conversation, the oldest first."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.fetch: Fetch | None = None
        """Gives what came before; None: everything is here."""
        self.view: View | None = None
        """The view, while this conversation is on the screen."""

    def load(self, entries: Sequence[Entry], fetch: Fetch | None = None) -> None:
        """Replace everything; the view has to show it anew."""
        self.entries, self.fetch = list(entries), fetch

    async def add(self, entry: Entry) -> None:
        """Put an entry at the end."""
        self.entries.append(entry)
        if self.view is not None:
            await self.view.entry_added()

    async def remove(self, entry: Entry) -> None:
        """Remove an entry, if it is there."""
        if entry in self.entries:
            place = self.entries.index(entry)
            del self.entries[place]
            if self.view is not None:
                await self.view.entry_removed(entry, place)

    async def changed(self, entry: Entry) -> None:
        """Show an entry as it is now."""
        if self.view is not None:
            await self.view.entry_changed(entry)

    def text_added(self, entry: Entry) -> None:
        """Show a growing text soon; what comes faster than the eye reads is drawn together."""
        if self.view is not None:
            self.view.text_added(entry)

    async def fetch_earlier(self, count: int) -> int:
        """Put so many messages before the first; returns how many entries that were.

        Raises HermesError when they cannot be had now.
        """
        fetch = self.fetch
        earlier = await fetch(count) if fetch is not None else []
        if self.fetch is not fetch:
            return 0  # another state of the conversation was loaded meanwhile
        self.fetch = fetch if earlier else None
        self.entries[:0] = earlier
        return len(earlier)
