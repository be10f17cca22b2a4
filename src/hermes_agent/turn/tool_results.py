"""Tool results: a request holds one right behind every tool call, whatever state the store is in.

Strict providers refuse a request with an unanswered call. Turns are completed in order, so that none is
left; this is the second line of defense, and it logs what the first one missed.
"""

import logging
from collections.abc import Sequence
from typing import Any

from hermes_agent.compaction.transcript import call_id, results
from hermes_state.values import Row

logger = logging.getLogger(__name__)

_LOST = (
    "The result of this call was lost. Whether it took effect is unknown:"
    " check before you repeat it."
)


def paired(messages: Sequence[Row]) -> Sequence[Row]:
    """Return the messages with a result behind every tool call, and without results of no call."""
    if _are_paired(messages):
        return messages
    found = results(messages)
    repaired: list[Row] = []
    for position, message in enumerate(messages):
        if message["role"] == "tool":
            continue
        repaired.append(message)
        answered = found.get(position, {})
        calls: Sequence[Row] = message.get("tool_calls") or ()
        repaired += [answered.get(call_id(call)) or _missing_result(call) for call in calls]
    return repaired


def _are_paired(messages: Sequence[Row]) -> bool:
    unanswered = list[str]()
    for message in messages:
        if message["role"] != "tool":
            if unanswered:
                return False
            unanswered = [call_id(call) for call in message.get("tool_calls") or ()]
        elif message.get("tool_call_id") in unanswered:
            unanswered.remove(message["tool_call_id"])
        else:
            return False
    return not unanswered


def _missing_result(call: Row) -> Row:
    logger.error("tool call %s has no result; the request says so instead", call_id(call))
    function: dict[str, Any] = call.get("function") or {}
    return {
        "role": "tool",
        "tool_call_id": call_id(call),
        "tool_name": function.get("name"),
        "content": _LOST,
        "is_error": True,
    }
