"""Replies of the scripted server without a script: repeat the text, and call the tools it names."""

import re
from collections.abc import Sequence
from typing import Any, Protocol, cast

from hermes_agent.testing.scripted import Step, raw_call, say

_ORDER = re.compile(r"\bcall\s+(\w+)\s*(\{.*\})", re.DOTALL)
_MAX_ECHO = 400


class RecordedRequest(Protocol):
    """A request with a JSON body."""

    @property
    def json(self) -> dict[str, Any]: ...


def step(request: RecordedRequest) -> Step:
    """Do what the last message says: `call NAME {…}` calls a tool, all else is repeated."""
    messages = cast("Sequence[dict[str, Any]]", request.json.get("messages") or [])
    last = messages[-1] if messages else {}
    if (result := _result(last)) is not None:
        return say(f"The tool says: {result[:_MAX_ECHO]}")
    text = _text(last.get("content"))
    if (order := _ORDER.search(text)) and order[1] in _tools(request.json):
        return raw_call(order[1], order[2])
    return say(
        f"You said: {text[:_MAX_ECHO]}\n\nI am the scripted server, not a model: I only repeat."
        ' Write `call read_file {"path": "README.md"}` and I call that tool.'
    )


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = cast("list[dict[str, Any]]", content) if isinstance(content, list) else []
    return " ".join(str(part["text"]) for part in parts if part.get("type") == "text")


def _result(message: dict[str, Any]) -> str | None:
    if message.get("role") == "tool":
        return _text(message.get("content"))
    content = message.get("content")
    parts = cast("list[dict[str, Any]]", content) if isinstance(content, list) else []
    results = [part for part in parts if part.get("type") == "tool_result"]
    return " ".join(_text(part.get("content")) for part in results) if results else None


def _tools(body: dict[str, Any]) -> set[str]:
    offered = cast("Sequence[dict[str, Any]]", body.get("tools") or [])
    return {str((tool.get("function") or tool).get("name")) for tool in offered}
