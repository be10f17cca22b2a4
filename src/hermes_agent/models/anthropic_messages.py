"""Stored messages as Anthropic's format wants them: blocks, two roles in turn, results in one message.

Content is always a list of blocks, so that a cache mark changes nothing else about a message. Marks
stand at the end of the tools, of the system prompt, of the request before this one and of this one.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from hermes_agent.models import arguments
from hermes_agent.models.base import ToolSpec
from hermes_agent.models.openai_messages import parts_of

Block = dict[str, Any]
Turn = dict[str, Any]

THINKING_KEY = "thinking_blocks"
"""Under this key an assistant's message keeps its signed thoughts."""

_MARK: Block = {"type": "ephemeral"}
_GO_ON = "Go on."
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)", re.DOTALL)
_NOT_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_UNSEEN = "[Something is left out that this model cannot read.]"


def system_of(text: str) -> list[Block]:
    """The system prompt, marked for the cache."""
    return [{"type": "text", "text": text, "cache_control": _MARK}] if text.strip() else []


def tools_of(tools: Iterable[ToolSpec]) -> list[Block]:
    """The tools, of which the last is marked for the cache."""
    found: list[Block] = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
        for tool in tools
    ]
    if found:
        found[-1]["cache_control"] = _MARK
    return found


def messages_of(messages: Sequence[Mapping[str, Any]], *, takes_images: bool) -> list[Turn]:
    """Messages in turn, beginning and ending with the user, marked for the cache."""
    turns: list[Turn] = []
    for message in messages:
        role = "assistant" if message.get("role") == "assistant" else "user"
        blocks = _blocks(message, takes_images)
        if not blocks:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    if not turns or turns[0]["role"] != "user":
        turns.insert(0, _nudge())
    if turns[-1]["role"] != "user":
        turns.append(_nudge())
    for turn in [turn for turn in turns if turn["role"] == "user"][-2:]:
        turn["content"][-1] = {**turn["content"][-1], "cache_control": _MARK}
    return turns


def _nudge() -> Turn:
    return {"role": "user", "content": [{"type": "text", "text": _GO_ON}]}


def _blocks(message: Mapping[str, Any], takes_images: bool) -> list[Block]:
    if message.get("role") == "tool":
        return [_result(message, takes_images)]
    content = _content(message.get("content"), takes_images)
    if message.get("role") != "assistant":
        return content
    calls = cast("Sequence[Mapping[str, Any]]", message.get("tool_calls") or ())
    blocks = [*(block for block in content if block["type"] == "text"), *map(_use, calls)]
    thoughts = cast("list[Block]", message.get(THINKING_KEY) or [])
    return [*thoughts, *blocks] if blocks else []


def _use(call: Mapping[str, Any]) -> Block:
    function = cast("Mapping[str, Any]", call["function"])
    return {
        "type": "tool_use",
        "id": _id(call.get("id")),
        "name": function["name"],
        "input": arguments.readable(str(function.get("arguments") or "")),
    }


def _result(message: Mapping[str, Any], takes_images: bool) -> Block:
    result: Block = {"type": "tool_result", "tool_use_id": _id(message.get("tool_call_id"))}
    if content := _content(message.get("content"), takes_images):
        result["content"] = content
    return result


def _id(call_id: object) -> str:
    """Ids of other providers may have characters that are refused here."""
    return _NOT_IN_ID.sub("_", str(call_id or "")) or "unknown"


def _content(content: object, takes_images: bool) -> list[Block]:
    if content is None or isinstance(content, str):
        return _text(content or "")
    blocks: list[Block] = []
    for part in parts_of(content):
        if part.get("type") == "text":
            blocks += _text(str(part.get("text") or ""))
        else:
            image = _image(part) if takes_images else None
            blocks.append(image or {"type": "text", "text": _UNSEEN})
    return blocks


def _text(text: str) -> list[Block]:
    """A block that holds nothing but blanks is refused."""
    return [{"type": "text", "text": text}] if text.strip() else []


def _image(part: Block) -> Block | None:
    if part.get("type") == "image" and "source" in part:
        return part
    image = part.get("image_url")
    url = str(cast("Block", image).get("url") if isinstance(image, dict) else image or "")
    if found := _DATA_URL.fullmatch(url):
        source = {"type": "base64", "media_type": found[1], "data": found[2]}
        return {"type": "image", "source": source}
    if url.startswith(("https://", "http://")):
        return {"type": "image", "source": {"type": "url", "url": url}}
    return None
