"""Buttons of questions: removed from their messages when a question is closed.

The store knows which are left, so that none stays forever: also when somebody answered elsewhere, the
turn was stopped, or the process or the platform was away meanwhile.
"""

import asyncio
from collections.abc import Callable, Mapping

from gateway.adapter_calls import attempted
from gateway.blocking import run_blocking
from gateway.outline import closed
from gateway.platforms.base import BasePlatformAdapter
from hermes_core import clock
from hermes_state.ledger import outbox, questions
from hermes_state.store import Store
from hermes_state.transitions import QuestionState
from hermes_state.values import Row

_MAX_ATTEMPTS = 20
_RETRY_INTERVAL_S = 0.25
"""A message may be recorded as sent only after its button was pressed."""
_MAX_AGE_S = 86_400.0
_TOO_LATE = "⌛ Nobody answered in time."
_STOPPED = "⏹ This question is closed."
_WORDS = {
    "once": "✅ Allowed once.",
    "session": "✅ Allowed for this conversation.",
    "always": "✅ Always allowed.",
    "deny": "🚫 Denied.",
}


class Buttons:
    """Removes the buttons of closed questions."""

    def __init__(
        self, store: Store, adapters: Callable[[], Mapping[str, BasePlatformAdapter]]
    ) -> None:
        self._store = store
        self._adapters = adapters
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def check(self) -> None:
        """Look for closed questions soon, or for a platform that is back; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    async def run(self) -> None:
        """Remove the buttons of closed questions until cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            await attempted("Removing buttons", self._remove_all)

    async def _remove_all(self) -> None:
        for _ in range(_MAX_ATTEMPTS):
            since = clock.now() - _MAX_AGE_S
            rows = await run_blocking(
                lambda since=since: self._store.read(questions.with_stale_buttons, since)
            )
            are_removed = [await self._remove(row) for row in rows]
            if all(are_removed):
                return
            await asyncio.sleep(_RETRY_INTERVAL_S)

    async def _remove(self, row: Row) -> bool:
        """Replace the buttons of a message by the outcome; return False to retry."""
        adapter = self._adapters().get(row["platform"])
        if adapter is None:
            return True  # retried when the platform is back
        if row["platform_message_id"] is None:
            return False
        if adapter.abilities.can_edit:
            text = _with_outcome(row, adapter)
            result = await adapter.edit_message(row["chat_id"], row["platform_message_id"], text)
            if result.retryable:
                return False
        await run_blocking(lambda: self._store.write(outbox.without_buttons, row["id"]))
        return True


def _with_outcome(row: Row, adapter: BasePlatformAdapter) -> str:
    """Return the question with its outcome below, if that fits."""
    abilities, text = adapter.abilities, row["content"]
    longer = f"{closed(text)}\n\n{_outcome(row)}"
    return longer if abilities.measure(longer) <= abilities.text_limit else text


def _outcome(row: Row) -> str:
    if row["question_state"] == QuestionState.CANCELLED:
        return _STOPPED if row["is_turn_over"] else _TOO_LATE
    answer = row["answer"]
    return _WORDS.get("deny" if answer.startswith("deny:") else answer, f"→ {answer}")
