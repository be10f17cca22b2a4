"""Stored messages as OpenAI's chat format wants them.

Every message is translated by itself, so that a longer conversation begins with the same bytes. Keys we
do not know are left out; what a provider wants back word for word is put in where it was.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from hermes_agent.models import arguments
from hermes_agent.models.base import Request, ToolSpec

Wire = dict[str, Any]

WANTED_BACK = ("reasoning_content", "reasoning_details")
"""Keys of an assistant's message that the server which wrote them expects to see again."""

_UNSEEN = "[An image is left out: this model cannot see.]"
_IMAGES_BELOW = "The images that belong to the results above:"


def tools_of(tools: Iterable[ToolSpec]) -> list[Wire]:
    """Tools as functions."""
    return [{"type": "function", "function": _function(tool)} for tool in tools]


def _function(tool: ToolSpec) -> Wire:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def messages_of(
    request: Request, *, takes_images: bool, wanted_back: Sequence[str] = WANTED_BACK
) -> list[Wire]:
    """The system prompt and the messages of a request."""
    system = [{"role": "system", "content": request.system}] if request.system else []
    return [*system, *_translated(request.messages, takes_images, wanted_back)]


def _translated(
    messages: Sequence[Mapping[str, Any]], takes_images: bool, wanted_back: Sequence[str]
) -> Iterator[Wire]:
    images: list[Wire] = []
    for message in messages:
        role = message.get("role")
        if role == "tool":
            text, found = _split(message.get("content"))
            images += found
            yield {
                "role": "tool",
                "tool_call_id": message.get("tool_call_id") or "",
                "content": text,
            }
            continue
        # A tool's message holds no images in this format, and results may not be parted.
        if images:
            yield from _image_message(images, takes_images)
            images = []
        if role == "assistant":
            if (translated := _assistant(message, wanted_back)) is not None:
                yield translated
        else:
            yield {"role": role, "content": _content(message.get("content"), takes_images)}
    yield from _image_message(images, takes_images)


def _image_message(images: list[Wire], takes_images: bool) -> Iterator[Wire]:
    if images and takes_images:
        yield {"role": "user", "content": [{"type": "text", "text": _IMAGES_BELOW}, *images]}


def _assistant(message: Mapping[str, Any], wanted_back: Sequence[str]) -> Wire | None:
    """None when nothing was said: some servers refuse a message that is empty."""
    text, _ = _split(message.get("content"))
    calls = cast("Sequence[Mapping[str, Any]]", message.get("tool_calls") or ())
    if not text and not calls:
        return None
    translated: Wire = {"role": "assistant", "content": text or None}
    if calls:
        translated["tool_calls"] = [_call(call) for call in calls]
    for key in wanted_back:
        if message.get(key):
            translated[key] = message[key]
    return translated


def _call(call: Mapping[str, Any]) -> Wire:
    function = cast("Mapping[str, Any]", call["function"])
    written = arguments.sendable(str(function.get("arguments") or ""))
    named = {"name": function["name"], "arguments": written}
    return {"id": call.get("id") or "", "type": "function", "function": named}


def _content(content: object, takes_images: bool) -> str | list[Wire]:
    if content is None or isinstance(content, str):
        return content or ""
    parts = parts_of(content)
    if takes_images and any(part.get("type") != "text" for part in parts):
        return parts
    return "\n".join(_readable(part) for part in parts)


def _readable(part: Wire) -> str:
    return str(part.get("text") or "") if part.get("type") == "text" else _UNSEEN


def _split(content: object) -> tuple[str, list[Wire]]:
    """The text of a message, and its other parts."""
    if content is None or isinstance(content, str):
        return content or "", []
    parts = parts_of(content)
    texts = [str(part.get("text") or "") for part in parts if part.get("type") == "text"]
    return "\n".join(texts), [part for part in parts if part.get("type") != "text"]


def parts_of(content: object) -> list[Wire]:
    """Translate the parts of a message that is not plain text; anything else becomes JSON text."""
    entries = cast("list[object]", content) if isinstance(content, list) else [content]
    return [_part(entry) for entry in entries]


def _part(entry: object) -> Wire:
    if isinstance(entry, dict) and "type" in entry:
        return cast("Wire", entry)
    text = entry if isinstance(entry, str) else msgspec.json.encode(entry).decode()
    return {"type": "text", "text": text}
