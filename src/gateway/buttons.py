"""Buttons of questions: taken off their messages when a question is over, where messages can be edited.

Which are still there is in the store, so that none stays for good: not when somebody answered elsewhere,
nor when the turn was stopped, nor when the process or the platform was away meanwhile.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from gateway.blocking import run_blocking
from gateway.outline import closed
from gateway.platforms.base import BasePlatformAdapter
from hermes_core import clock
from hermes_state.ledger import outbox, questions
from hermes_state.store import Store
from hermes_state.values import Row

logger = logging.getLogger(__name__)

_LOOKS = 20
_LOOK_AGAIN_S = 0.25
"""That a message was sent may be noted after the button on it was pressed."""
_TRIED_FOR_S = 86_400.0
_TOO_LATE = "⌛ Nobody answered in time."
_STOPPED = "⏹ This is not asked any more."
_WORDS = {
    "once": "✅ Allowed once.",
    "session": "✅ Allowed in this conversation.",
    "always": "✅ Allowed always.",
    "deny": "🚫 Denied.",
}


class Buttons:
    """Looks for buttons that are to go, whenever a question may be over."""

    def __init__(
        self, store: Store, adapters: Callable[[], Mapping[str, BasePlatformAdapter]]
    ) -> None:
        self._store = store
        self._adapters = adapters
        self.wanted = asyncio.Event()
        """Set when a question may be over, or a platform has come back."""

    async def run(self) -> None:
        while True:
            await self.wanted.wait()
            self.wanted.clear()
            try:
                await self._take_off_all()
            except Exception:
                logger.warning("the buttons of questions stay for now", exc_info=True)

    async def _take_off_all(self) -> None:
        for _ in range(_LOOKS):
            since = clock.now() - _TRIED_FOR_S
            rows = await run_blocking(
                lambda since=since: self._store.read(questions.still_shown, since)
            )
            are_off = [await self._take_off(row) for row in rows]
            if all(are_off):
                return
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _take_off(self, row: Row) -> bool:
        """Have a message say how its question came out instead; False when it is to be tried again."""
        adapter = self._adapters().get(row["platform"])
        if adapter is None:
            return True  # there is another look when the platform is back
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
    """The question with what became of it below, when there is room for it."""
    abilities, text = adapter.abilities, row["content"]
    longer = f"{closed(text)}\n\n{_outcome(row)}"
    return longer if abilities.measure(longer) <= abilities.text_limit else text


def _outcome(row: Row) -> str:
    if row["question_state"] == "withdrawn":
        return _STOPPED if row["is_turn_over"] else _TOO_LATE
    answer = row["answer"]
    return _WORDS.get("deny" if answer.startswith("deny:") else answer, f"→ {answer}")
