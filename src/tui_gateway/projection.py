"""Stored messages as clients are shown them."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from hermes_agent.turn.call_summary import summary_of
from hermes_core.text import truncate
from hermes_protocol.results import Message
from tui_gateway.mentions import without_files

_ATTACHED = re.compile(r"^\[Attached image: (.+)\]$", re.MULTILINE)
_MAX_RESULT_CHARS = 4_000

TURN_END = "turn_end"
"""Under this key the last message of a turn that was not answered has the turn's status and error."""


def projected(messages: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Return a transcript as clients show it; steps that only call tools are shown by their results."""
    contexts: dict[str, str] = {}
    items: list[Message] = []
    for message in messages:
        for call in message.get("tool_calls") or ():
            contexts[call["id"]] = summary_of(_arguments(call["function"].get("arguments")))
        if (item := _item(message, contexts)) is not None:
            items.append(item)
    return items


def _item(message: Mapping[str, Any], contexts: Mapping[str, str]) -> Message | None:
    role, text = message["role"], text_of(message.get("content"))
    images = images_of(message.get("content")) or None
    fields = {key: message.get(key) for key in ("id", "timestamp", "kind", "reasoning")}
    fields |= message.get(TURN_END, {})
    if role == "tool":
        call_id = message.get("tool_call_id") or ""
        return Message(
            role=role,
            name=message.get("tool_name") or "tool",
            context=contexts.get(call_id, ""),
            tool_id=call_id,
            result_text=truncate(text, _MAX_RESULT_CHARS),
            is_error=bool(message.get("is_error")),
            exit_code=message.get("exit_code") or None,
            inline_diff=str(message.get("inline_diff") or "") or None,
            refusal=message.get("refusal") or None,
            duration_s=message.get("seconds"),
            images=images,
            **fields,
        )
    if not text and not message.get("reasoning") and TURN_END not in message:
        return None
    text = without_images(text)[0] if images else text
    text, files = without_files(text) if role == "user" else (text, [])
    return Message(role=role, text=text, images=images, files=files or None, **fields)


def text_of(content: Any) -> str:  # noqa: ANN401 -- text or parts
    """The words of a message."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(str(part["text"]) for part in _parts(content) if part.get("text"))


def images_of(content: Any) -> list[str]:  # noqa: ANN401 -- as above
    """The pictures of a message: where they lie, else what they are."""
    others = [str(part.get("type")) for part in _parts(content) if part.get("type") != "text"]
    return (_ATTACHED.findall(text_of(content)) or others) if others else []


def without_images(text: str) -> tuple[str, list[str]]:
    """The words of a prompt without what stands for its pictures at their end, and where these lie."""
    lines, images = text.split("\n"), list[str]()
    while lines and (found := _ATTACHED.fullmatch(lines[-1])):
        images.insert(0, found[1])
        lines.pop()
    return "\n".join(lines), images


def _parts(content: Any) -> list[dict[str, Any]]:  # noqa: ANN401 -- as above
    entries = cast("list[object]", content) if isinstance(content, list) else [content]
    return [cast("dict[str, Any]", entry) for entry in entries if isinstance(entry, dict)]


def _arguments(text: object) -> Mapping[str, Any]:
    try:
        decoded: object = msgspec.json.decode(text) if isinstance(text, str) else None
    except msgspec.DecodeError:
        return {}
    return cast("dict[str, Any]", decoded) if isinstance(decoded, dict) else {}
