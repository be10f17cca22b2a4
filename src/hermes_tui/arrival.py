"""What is shown of a conversation when it is opened: its end, what is being answered, a greeting."""

from collections.abc import Awaitable, Callable, Sequence

from hermes_core.version import VERSION
from hermes_tui import wire
from hermes_tui.entries import Entry, Note, Reply, Said, from_messages

_BETTER = (
    "The embedded model answers: small, private, free. For a better one choose it with F4, or set"
    " OPENAI_API_KEY or ANTHROPIC_API_KEY before you start."
)

Page = Callable[[int], Awaitable[wire.History]]
"""Gives the messages before the one with this id."""


def entries_of(opened: wire.Opened) -> list[Entry]:
    """The entries of an opened conversation, with the turn that runs in it."""
    entries = from_messages(opened.messages)
    running = opened.inflight
    if running is None:
        return entries
    last = next((entry for entry in reversed(entries) if isinstance(entry, Said)), None)
    if running.user and (last is None or not last.says(running.user)):
        entries.append(Said(running.user))
    entries += [e for e in from_messages(running.messages) if not isinstance(e, Said)]
    if running.assistant:
        entries.append(Reply(running.assistant, is_done=False))
    return entries


def greeting(info: wire.Info, *, is_new: bool) -> list[Entry]:
    """The first words: who answers, how to get a better one, and what is wrong with the set-up."""
    who = f"{info.model} answers." if info.model else "Welcome."
    where = f" It works in {info.cwd}." if info.cwd else ""
    first = [Note(f"Hermes {VERSION}. {who}{where}")] if is_new else []
    advice = info.advice or (_BETTER if info.provider == "embedded" and is_new else "")
    return [
        *first,
        *([Note(advice)] if advice else []),
        *(Note(text, "warning") for text in info.warnings),
    ]


class Earlier:
    """The messages of a conversation that have not been fetched yet, page by page."""

    def __init__(self, known: Sequence[wire.Message], page: Page) -> None:
        self._page = page
        self._first = _first_id(known)

    async def fetch(self) -> list[Entry]:
        """The entries before those that are known; none when there are no more."""
        if self._first is None:
            return []
        messages = (await self._page(self._first)).messages
        earlier = [one for one in messages if one.id is not None and one.id < self._first]
        self._first = _first_id(earlier)
        return from_messages(earlier)


def _first_id(messages: Sequence[wire.Message]) -> int | None:
    return next((message.id for message in messages if message.id is not None), None)
