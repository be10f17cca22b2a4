"""Check a transcript as model servers do: every call has its result, right behind it."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol, cast

from hermes_agent.models import anthropic_messages, openai_messages
from hermes_agent.models.base import Request


def problems(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """List what is wrong with a transcript in the stored form; empty for a valid one."""
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
    for position, turn in enumerate(turns):
        expected = "assistant" if position % 2 else "user"
        if turn["role"] != expected:
            found.append(f"messages: turn {position} is of {turn['role']}, not {expected}")
    return found + _unmatched_blocks(turns)


class ModelRequest(Protocol):
    """A request to a model server, with its JSON body."""

    @property
    def wire(self) -> str: ...
    @property
    def json(self) -> dict[str, Any]: ...


def problems_of_request(request: ModelRequest) -> list[str]:
    """Return what is wrong with the tool calls and results of a request to a model server."""
    messages = request.json["messages"]
    if request.wire == "anthropic":
        return _unmatched_blocks(messages)
    return [problem for problem in problems(_spoken(messages)) if "result" in problem]


def _spoken(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [message for message in messages if message["role"] not in ("system", "developer")]


def _unmatched_blocks(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the messages whose tool calls are not answered by the message right behind them."""
    found: list[str] = []
    end: dict[str, Any] = {"content": []}
    for position, (message, following) in enumerate(pairwise([*messages, end])):
        expected = _ids(message, "tool_use", "id")
        found_ids = _ids(following, "tool_result", "tool_use_id")
        if expected != found_ids:
            found.append(f"messages: message {position} wants {expected} and is given {found_ids}")
    return found


def _ids(message: Mapping[str, Any], kind: str, name: str) -> set[str]:
    content: object = message["content"]
    blocks = cast("list[dict[str, Any]]", content) if isinstance(content, list) else []
    return {block[name] for block in blocks if block["type"] == kind}
