"""The journal: what the log says of messages, commands and turns. Ids and outcomes, never words."""

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any

from gateway.platforms.base import MessageEvent, Receipt
from gateway.reply_target import ReplyTarget
from hermes_agent.commands import Command, find

logger = logging.getLogger(__name__)


def of_message(event: MessageEvent) -> dict[str, Any]:
    """Which message it is."""
    place: dict[str, Any] = {}
    if event.source is not None:
        place = {"platform": event.source.platform.value, "chat": event.source.chat_id}
    return {**place, "message_id": event.message_id}


def of_turn(turn_id: str, session_id: str, target: ReplyTarget) -> dict[str, Any]:
    """Return the fields that name a turn."""
    place = target.source
    return {
        "platform": place.platform.value,
        "chat": place.chat_id,
        "turn_id": turn_id,
        "session_id": session_id,
    }


def take_in(take: Callable[[MessageEvent], Receipt], event: MessageEvent) -> Receipt:
    """Have a message taken in, and say what became of it."""
    receipt = take(event)
    fields = of_message(event) | {"outcome": receipt.outcome, "is_new": receipt.is_new}
    if receipt.turn_id is not None:
        fields |= {"turn_id": receipt.turn_id, "session_id": receipt.session_id}
    logger.info("message taken in", extra=fields)
    return receipt


def of_command(
    event: MessageEvent, table: Sequence[Command], plugins: Collection[str]
) -> dict[str, Any]:
    """Which command it is; the name of one that does not exist is somebody's words."""
    name = event.get_command() or ""
    command = find(name, table)
    known = command.name if command else name if name in plugins else "(unknown)"
    return of_message(event) | {"command": "(button)" if event.answers else known}


def ended(
    turn_id: str,
    session_id: str,
    target: ReplyTarget,
    status: str,
    reason: str = "",
    **fields: float,
) -> None:
    """Log the end of a turn; of one that failed also why."""
    is_failed = status == "failed"
    extra = of_turn(turn_id, session_id, target) | {"outcome": status, **fields}
    if is_failed:
        extra["reason"] = reason
    level = logging.WARNING if is_failed else logging.INFO
    logger.log(level, "turn %s", status, extra=extra)
