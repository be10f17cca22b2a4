"""Small-model mode: tools for a model that is too weak for a provider's way of calling them.

The tools stand in a short prompt, and each answer is held to one JSON object: a tool with its arguments,
or a reply. A turn has few steps, and a step that was taken before is not taken again.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hermes_agent.models import small_prompt, small_step
from hermes_agent.models.base import (
    MAX_SMALL_TOOLS,
    Facts,
    Model,
    Reply,
    Request,
    ToolSpec,
    Usage,
)
from hermes_agent.models.small_step import REPLY, Listener, Step
from hermes_agent.turn.events import Sink
from hermes_agent.turn.stop import Stop
from hermes_core.text import without_surrogates
from hermes_core.types import ToolCall

MAX_STEPS = 6
_MAX_TOKENS = 700

_REPEATED = "You have done exactly that already; its result is above. Take another step, or reply."
_CUT = "Your step was too long and broke off. Write it again, shorter."
_UNSEEN = "You have not looked at {} yet. If the answer depends on it, look first; otherwise reply."
_LAST = "No more steps. Reply now with what you know."


class SmallModel:
    """Gives a weak model tools, one step at a time."""

    def __init__(self, inner: Model) -> None:
        self._inner = inner

    @property
    def facts(self) -> Facts:
        return msgspec.structs.replace(self._inner.facts, is_small=True)

    def ask(self, request: Request, stop: Stop, report: Sink) -> Reply:
        """One step: a reply, or one tool call. A request without tools is passed on as it is."""
        if not request.tools:
            return self._inner.ask(request, stop, report)
        return _StepRequest(self._inner, request, stop, report).run()

    def close(self) -> None:
        self._inner.close()


class _StepRequest:
    """The attempts at one step."""

    def __init__(self, inner: Model, request: Request, stop: Stop, report: Sink) -> None:
        self._inner = inner
        self._request = request
        self._stop = stop
        self._report = report
        tools = request.tools[:MAX_SMALL_TOOLS]
        self._system = small_prompt.head(request.system, tools)
        self._tools = _read_only(tools) if _is_question(_last_said(request.messages)) else tools
        self._steps = _steps_since_user(request.messages)
        self._usage = Usage()

    def run(self) -> Reply:
        if len(self._steps) + 1 >= MAX_STEPS:
            return self._reply_at_last()
        unseen = "" if self._steps else _file_named(_last_said(self._request.messages))
        step, listener = self._once(is_patient=bool(unseen))
        if hint := self._objection(step, listener, unseen):
            step, listener = self._once(hint)
        if step is not None and step.name != REPLY and step not in self._steps:
            return self._call(step)
        if listener.text or (step is not None and step.name == REPLY):
            return self._answer(step, listener)
        return self._reply_at_last()

    def _objection(self, step: Step | None, listener: Listener, unseen: str) -> str:
        """Find what is wrong with a step, so that it is asked for once more; empty when it will do."""
        if step is None:
            return "" if listener.text else _CUT
        if step in self._steps:
            return _REPEATED
        if unseen and step.name == REPLY:
            return _UNSEEN.format(unseen)
        return ""

    def _reply_at_last(self) -> Reply:
        return self._answer(*self._once(_LAST, tools=()))

    def _once(
        self,
        hint: str = "",
        *,
        tools: Sequence[ToolSpec] | None = None,
        is_patient: bool = False,
    ) -> tuple[Step | None, Listener]:
        """Ask once; the step is None when it breaks off."""
        listener = Listener(self._report, is_patient=is_patient)
        request = Request(
            self._system,
            (),
            small_prompt.history(self._request.messages, hint),
            max_output_tokens=min(self._request.max_output_tokens or _MAX_TOKENS, _MAX_TOKENS),
            json_schema=small_step.schema(self._tools if tools is None else tools),
        )
        reply = self._inner.ask(request, self._stop, listener.receive)
        self._usage = Usage(*(a + b for a, b in zip(self._usage, reply.usage, strict=True)))
        return small_step.read(reply.text), listener

    def _answer(self, step: Step | None, listener: Listener) -> Reply:
        """The reply; of one that breaks off, what there is."""
        text = listener.text
        if step is not None:
            text = without_surrogates(str(step.arguments.get("text", "")))
        listener.tell_rest(text)
        return Reply(text=text, finish="length" if step is None else "stop", usage=self._usage)

    def _call(self, step: Step) -> Reply:
        call: ToolCall = {
            "id": f"call_{os.urandom(8).hex()}",
            "type": "function",
            "function": {
                "name": step.name,
                "arguments": without_surrogates(json.dumps(step.arguments, ensure_ascii=False)),
            },
        }
        return Reply(text="", tool_calls=[call], finish="tool_calls", usage=self._usage)


_FILE_NAME = re.compile(r"[\w/-]*\w\.[a-z]\w{0,4}\b", re.IGNORECASE)
_QUESTION_START = re.compile(
    r"\W*(?:please\s+)?(?:what|which|who|where|when|why|how|show|tell|read|list|find|count|search|"
    r"summari[sz]e|explain|describe)\b|.*\?\s*$",
    re.IGNORECASE | re.DOTALL,
)
_CHANGING = re.compile(
    r"\b(?:add|append|change|copy|correct|create|delete|edit|fix|insert|make|move|put|remove|rename|"
    r"replace|rewrite|save|set|sort|store|update|write)\b",
    re.IGNORECASE,
)


def _last_said(messages: Sequence[Mapping[str, Any]]) -> str:
    last = next((message for message in reversed(messages) if message["role"] == "user"), None)
    return small_prompt.text_of(last) if last else ""


def _file_named(text: str) -> str:
    """The first file that a text names, for all one can tell."""
    named = _FILE_NAME.search(text)
    return named[0] if named else ""


def _is_question(text: str) -> bool:
    """Tell whether a text asks for information and for no changes."""
    return bool(_QUESTION_START.match(text)) and not _CHANGING.search(text)


def _read_only(tools: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
    """Leave out the tools that change files: after reading one, a small model tends to edit it."""
    return [tool for tool in tools if not tool.writes]


def _steps_since_user(messages: Sequence[Mapping[str, Any]]) -> list[Step]:
    """The calls of the turn that is under way."""
    steps: list[Step] = []
    for message in messages:
        if message["role"] == "user":
            steps.clear()
        elif message["role"] == "assistant":
            steps += [small_prompt.step_of(call) for call in message.get("tool_calls") or ()]
    return steps
