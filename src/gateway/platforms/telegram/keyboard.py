"""Buttons under a message, and the question and choice that a pressed one stands for.

Everything that a press needs travels with the button, so that it can be answered after any restart. A
choice that is too long for that is the button's label instead, which comes back with the message.
"""

from collections.abc import Sequence

from telegram import CallbackQuery, InlineKeyboardButton, InlineKeyboardMarkup, Message

from gateway.platforms.base import Button
from hermes_core.text import without_surrogates

_DATA_LIMIT = 64
_ROW_WIDTH = 30


def keyboard(question: str, buttons: Sequence[Button]) -> InlineKeyboardMarkup | None:
    """Put short buttons into one row, others into one row each; None when there are none."""
    keys = [_button(question, number, button) for number, button in enumerate(buttons)]
    if not keys:
        return None
    is_short = sum(len(key.text) for key in keys) <= _ROW_WIDTH
    return InlineKeyboardMarkup([keys] if is_short else [[key] for key in keys])


def _button(question: str, number: int, button: Button) -> InlineKeyboardButton:
    choice = without_surrogates(button.choice)
    label = without_surrogates(button.label).strip() or choice
    data = f"c:{question}:{choice}"
    if len(data.encode()) <= _DATA_LIMIT:
        return InlineKeyboardButton(label, callback_data=data)
    return InlineKeyboardButton(choice, callback_data=f"n:{question}:{number}")


def pressed(query: CallbackQuery) -> tuple[str, str] | None:
    """Return the question and the choice; None when the button is not ours or not readable."""
    kind, _, rest = (query.data or "").partition(":")
    question, found, choice = rest.partition(":")
    if kind not in ("c", "n") or not found or not question:
        return None
    if kind == "c":
        return question, choice
    label = _label(query)
    return (question, label) if label else None


def _label(query: CallbackQuery) -> str | None:
    markup = query.message.reply_markup if isinstance(query.message, Message) else None
    keys = [key for row in markup.inline_keyboard for key in row] if markup else []
    return next((key.text for key in keys if key.callback_data == query.data), None)
