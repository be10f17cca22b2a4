"""The view of an opened conversation: its end, the running turn, warnings."""

from collections.abc import Awaitable, Callable, Sequence

from hermes_protocol import results
from hermes_tui.entries import Call, Entry, Note, Reply, UserMessage, from_messages

_STEP_UP = "Using a small model. Better: set OPENAI_API_KEY or ANTHROPIC_API_KEY."
"""One line of 80 columns; docs/guide/models.md has the rest."""

Page = Callable[[int, int], Awaitable[results.History]]
"""Gives, before the message with this id, so many."""


def entries_of(opened: results.Opened) -> list[Entry]:
    """The entries of an opened conversation, with the turn that runs in it."""
    entries = from_messages(opened.messages)
    running = opened.inflight
    if running is None:
        return entries
    if running.user or running.images:
        entries.append(UserMessage(running.user or "", list(running.images)))
    entries += [e for e in from_messages(running.messages) if not isinstance(e, UserMessage)]
    entries += [
        Call(item.tool_id, item.name, item.context or "", output=item.text or "")
        for item in running.tools
    ]
    if running.assistant:
        entries.append(Reply(running.assistant, is_done=False))
    return entries


def news(info: results.Info) -> list[Note]:
    """Return notes about the set-up: how to get a better model, and warnings."""
    notes = [Note(_STEP_UP)] if info.advice else []
    notes += [Note(text, "warning") for text in (info.config_warning, info.install_warning) if text]
    if info.credential_warning and not info.offer.name:
        notes.append(Note(info.credential_warning, "error"))
    return notes


class EarlierMessages:
    """The messages of a conversation that have not been fetched yet, page by page."""

    def __init__(self, messages: Sequence[results.Message], page: Page) -> None:
        self._page = page
        self._first = _first_id(messages)

    async def fetch(self, count: int) -> list[Entry]:
        """The entries of so many messages before those that are known; none when there are no more."""
        if self._first is None:
            return []
        messages = (await self._page(self._first, count)).messages
        earlier = [item for item in messages if item.id is not None and item.id < self._first]
        self._first = _first_id(earlier)
        return from_messages(earlier)


def _first_id(messages: Sequence[results.Message]) -> int | None:
    return next((message.id for message in messages if message.id is not None), None)
