"""Buttons of a question: taken off its message when it has its answer, where messages can be edited."""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial

from gateway import questions, replies
from gateway.platforms.base import BasePlatformAdapter
from gateway.threads import run_blocking
from hermes_agent.events import QuestionAnswered
from hermes_state.protocol import Store
from hermes_state.records import Row

logger = logging.getLogger(__name__)

_LOOKS = 20
_LOOK_AGAIN_S = 0.25
"""That a message was sent may be noted after the button on it was pressed."""
_WORDS = {
    "": "⌛ Nobody answered in time.",
    "once": "✅ Allowed once.",
    "session": "✅ Allowed in this conversation.",
    "always": "✅ Allowed always.",
    "deny": "🚫 Denied.",
}


async def take_off(
    store: Store, adapters: Mapping[str, BasePlatformAdapter], answered: QuestionAnswered
) -> None:
    """Have the message of a question say its answer instead; when that fails it stays as it is."""
    try:
        row = await _shown(store, answered.question_id)
        adapter = adapters.get(row["platform"]) if row is not None else None
        if row is None or adapter is None or not adapter.abilities.can_edit:
            return
        text = _with_answer(row["content"], answered.answer, adapter)
        await adapter.edit_message(row["chat_id"], row["platform_message_id"], text)
    except Exception:
        logger.warning("the buttons of a question stay", exc_info=True)


async def _shown(store: Store, question_id: str) -> Row | None:
    """The message with the buttons of a question, when its platform has given it an id."""
    for _ in range(_LOOKS):
        row = await run_blocking(partial(_piece, store, question_id))
        if row is None or row["platform_message_id"] is not None:
            return row
        await asyncio.sleep(_LOOK_AGAIN_S)
    return None


def _piece(store: Store, question_id: str) -> Row | None:
    """The piece of a question that has its buttons."""
    rows = questions.pieces(store, question_id)
    return next((row for row in rows if replies.decode(row["extra"]).buttons), None)


def _with_answer(text: str, answer: str, adapter: BasePlatformAdapter) -> str:
    """The question with its answer below, when there is room for it."""
    abilities = adapter.abilities
    word = "deny" if answer.startswith("deny:") else answer
    longer = f"{text}\n\n{_WORDS.get(word, f'→ {answer}')}"
    return longer if abilities.measure(longer) <= abilities.text_limit else text
