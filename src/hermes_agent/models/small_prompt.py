"""The prompt of a small model: a short head that never changes, and the history as steps and results."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from hermes_agent.models.base import MAX_SMALL_TOOLS, ToolSpec
from hermes_agent.models.small_step import REPLY, Step
from hermes_core.text import shorten_middle, truncate

MAX_HEAD = 2020
"""In characters, which makes fewer than 600 tokens."""
_MIN_SYSTEM = 300
"""Characters of the system text that are not cut for the sake of examples."""
_MAX_LINE = 110
_MAX_RESULT = 1600

_OPENING = """\
You act in steps. Each step is one JSON object {"name": "...", "arguments": {...}}, one of:"""

_ENDING = """\
- reply(text): Answer the user and finish."""

_ADVICE = """\
General knowledge needs no tool: reply at once.
Change a file only when asked to, and read it before.
When a step fails, try another way. When a result answers the request, reply with the answer."""


def head(system: str, tools: Sequence[ToolSpec]) -> str:
    """The beginning of every prompt.

    What differs from place to place, the system text, comes last, so that the rest of a saved prompt can
    be used everywhere. Where tools need many words, the examples give way.
    """
    lines = [f"- {_signature(tool)}: {truncate(tool.description, _MAX_LINE)}" for tool in tools]
    advice = [tool.advice for tool in tools if tool.advice]
    examples = [tool.examples for tool in tools if tool.examples]
    parts = [_OPENING, *lines[:MAX_SMALL_TOOLS], _ENDING, *advice]
    example_lines = ["Examples:", *examples] if examples else []
    fixed = "\n".join([*parts, _ADVICE, *example_lines])
    if len(fixed) + min(len(system), _MIN_SYSTEM) > MAX_HEAD:
        fixed = "\n".join([*parts, _ADVICE])
    return f"{fixed}\n\n{truncate(system, max(MAX_HEAD - len(fixed) - 2, 0))}"


def _signature(tool: ToolSpec) -> str:
    properties: Mapping[str, Any] = tool.parameters.get("properties") or {}
    required = tool.parameters.get("required") or ()
    named = [
        f"{name}{'' if name in required else '?'}{_kind(value)}"
        for name, value in properties.items()
    ]
    return f"{tool.name}({', '.join(named)})"


def _kind(schema: Mapping[str, Any]) -> str:
    if choices := schema.get("enum"):
        return ": " + "|".join(str(choice) for choice in choices)
    kind = schema.get("type", "string")
    return "" if kind == "string" else f": {kind}"


def written(step: Step) -> str:
    """A step as the model writes it."""
    return json.dumps({"name": step.name, "arguments": step.arguments}, ensure_ascii=False)


def history(messages: Sequence[Mapping[str, Any]], hint: str = "") -> list[dict[str, str]]:
    """The conversation as turns of user and assistant, which every chat template can show.

    A hint is put at the end, for this one request.
    """
    found: list[dict[str, str]] = []
    for role, text in (*_dialogue(messages), *([("user", hint)] if hint else ())):
        if found and found[-1]["role"] == role:
            found[-1]["content"] += f"\n\n{text}"
        else:
            found.append({"role": role, "content": text})
    return found


def _dialogue(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    results = {m["tool_call_id"]: m for m in messages if m["role"] == "tool"}
    for message in messages:
        if message["role"] == "assistant":
            text = text_of(message)
            calls = message.get("tool_calls") or ()
            if text and not calls:
                yield "assistant", written(Step(REPLY, {"text": text}))
            for call in calls:
                yield "assistant", written(step_of(call))
                yield "user", _result(call, results.get(call["id"]))
        elif message["role"] != "tool":
            yield "user", text_of(message)


def step_of(call: Mapping[str, Any]) -> Step:
    """A stored tool call as the step it was."""
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
    except json.JSONDecodeError:
        arguments = None
    is_object = isinstance(arguments, dict)
    return Step(function["name"], cast("dict[str, Any]", arguments) if is_object else {})


def _result(call: Mapping[str, Any], message: Mapping[str, Any] | None) -> str:
    text = text_of(message) if message is not None else "not run"
    result = shorten_middle(text, _MAX_RESULT) or "(nothing)"
    return f"Result of {call['function']['name']}:\n{result}"


def text_of(message: Mapping[str, Any]) -> str:
    """A message's text; what is not text is named."""
    content = message.get("content")
    if isinstance(content, str) or content is None:
        return content or ""
    parts = cast("list[Any]", content if isinstance(content, list) else [content])
    return "\n".join(_part_text(part) for part in parts)


def _part_text(part: Any) -> str:  # noqa: ANN401 -- wire data
    if isinstance(part, str):
        return part
    kind = part.get("type", "part")
    return part["text"] if kind == "text" else f"[{kind} left out: this model reads text only]"
