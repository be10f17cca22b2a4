"""Log fields of messages, commands and turns: ids and outcomes, never text."""

import logging
from collections.abc import Collection, Sequence
from typing import Any

from gateway.platforms.base import MessageEvent, Receipt
from gateway.reply_target import ReplyTarget
from hermes_agent.commands import Command, find

logger = logging.getLogger(__name__)


def of_message(event: MessageEvent) -> dict[str, Any]:
    """Return the fields that name a message."""
    chat: dict[str, Any] = {}
    if event.source is not None:
        chat = {"platform": event.source.platform.value, "chat": event.source.chat_id}
    return {**chat, "message_id": event.message_id}


def of_receipt(event: MessageEvent, receipt: Receipt) -> dict[str, Any]:
    """Return the fields of a message with what became of it."""
    fields = of_message(event) | {"outcome": receipt.outcome, "is_new": receipt.is_new}
    if receipt.turn_id is not None:
        fields |= {"turn_id": receipt.turn_id, "session_id": receipt.session_id}
    return fields


def of_turn(turn_id: str, session_id: str, target: ReplyTarget) -> dict[str, Any]:
    """Return the fields that name a turn."""
    source = target.source
    return {
        "platform": source.platform.value,
        "chat": source.chat_id,
        "turn_id": turn_id,
        "session_id": session_id,
    }


def of_command(
    event: MessageEvent, table: Sequence[Command], plugins: Collection[str]
) -> dict[str, Any]:
    """Return the fields that name a command; one that does not exist is somebody's text."""
    name = event.get_command() or ""
    command = find(name, table)
    shown_name = command.name if command else name if name in plugins else "(unknown)"
    return of_message(event) | {"command": "(button)" if event.answers else shown_name}


def log_end(
    turn_id: str,
    session_id: str,
    target: ReplyTarget,
    status: str,
    reason: str = "",
    **fields: float,
) -> None:
    """Log the end of a turn, and the reason of a failure."""
    is_failed = status == "failed"
    extra = of_turn(turn_id, session_id, target) | {"outcome": status, **fields}
    if is_failed:
        extra["reason"] = reason
    level = logging.WARNING if is_failed else logging.INFO
    logger.log(level, "turn %s", status, extra=extra)
