"""Whether a transcript is one that model servers accept: every call has its result, right behind it."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from hermes_agent.models import anthropic_messages, openai_messages
from hermes_agent.models.base import Request


def problems(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is wrong with a transcript in the stored form; nothing, for a valid one."""
    found: list[str] = []
    open_calls: list[str] = []
    for position, message in enumerate(messages):
        if message["role"] == "tool":
            if message.get("tool_call_id") in open_calls:
                open_calls.remove(message["tool_call_id"])
            else:
                found.append(f"message {position} is a result of no call")
            continue
        if open_calls:
            found.append(f"before message {position} there is no result for {open_calls}")
        open_calls = [call["id"] for call in message.get("tool_calls") or ()]
        if len(set(open_calls)) < len(open_calls):
            found.append(f"message {position} has two calls with one id")
        if message["role"] not in ("user", "assistant"):
            found.append(f"message {position} has the role {message['role']}")
        if not message.get("content") and not open_calls:
            found.append(f"message {position} says nothing")
    if open_calls:
        found.append(f"at the end there is no result for {open_calls}")
    return found


def problems_on_the_wire(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The same for what the two wire formats make of it."""
    openai = openai_messages.messages_of(Request("", (), messages), takes_images=True)
    found = [
        f"chat: {problem}" for problem in problems([m for m in openai if m["role"] != "system"])
    ]
    turns = anthropic_messages.messages_of(messages, takes_images=True)
    end: dict[str, Any] = {"role": "user", "content": []}
    for position, (turn, following) in enumerate(pairwise([*turns, end])):
        expected = "assistant" if position % 2 else "user"
        if turn["role"] != expected:
            found.append(f"messages: turn {position} is of {turn['role']}, not {expected}")
        wanted = {block["id"] for block in turn["content"] if block["type"] == "tool_use"}
        given = {b["tool_use_id"] for b in following["content"] if b["type"] == "tool_result"}
        if wanted != given:
            found.append(f"messages: turn {position} wants {wanted} and is given {given}")
    return found
