"""Encode a step in each wire format for the scripted server, whole or as a stream of events."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, Protocol, cast

import msgspec

from hermes_agent.models.base import Usage
from hermes_agent.testing.faults import Break, Refuse
from hermes_agent.testing.scripted import Step, words
from hermes_core.types import ToolCall

_FRAGMENT = 7
"""Characters of a tool call's arguments in one event."""

_created = 1_700_000_000
_numbers = count(1)

Body = Mapping[str, Any]


class Frame(NamedTuple):
    """One event of a stream."""

    name: str
    """Empty: it has none."""
    payload: Body
    is_chunk: bool = False
    """Carries a piece of the reply: scripted delays come before it."""


class Wording(Protocol):
    """One wire format, from the server's side."""

    def whole(self, step: Step, body: Body, usage: Usage) -> Body: ...
    def opening(self, step: Step, body: Body, usage: Usage) -> Iterator[Frame]:
        """Everything up to a silence in the middle, one event a chunk."""
        ...

    def closing(self, step: Step, body: Body, usage: Usage) -> Iterator[Frame]:
        """The rest."""
        ...

    def refusal(self, refusal: Refuse) -> Body: ...
    def break_(self, broken: Break) -> Frame: ...


def _fragments(text: str) -> list[str]:
    return [text[at : at + _FRAGMENT] for at in range(0, len(text), _FRAGMENT)]


def _identified(call: ToolCall, prefix: str) -> str:
    return call["id"] or f"{prefix}_{next(_numbers)}"


class OpenAIWording:
    """Chat completions."""

    _finish = {"tool_calls": "tool_calls", "length": "length", "refusal": "content_filter"}  # noqa: RUF012 -- constant

    def whole(self, step: Step, body: Body, usage: Usage) -> Body:
        message: dict[str, Any] = {"role": "assistant", "content": step.text or None}
        if step.reasoning:
            message["reasoning"] = step.reasoning
        if step.calls:
            message["tool_calls"] = [
                {**call, "type": "function", "id": _identified(call, "call")} for call in step.calls
            ]
        choice = {"index": 0, "message": message, "finish_reason": self._reason(step)}
        return {
            **self._head(body, "chat.completion"),
            "choices": [choice],
            "usage": self._usage(usage),
        }

    def opening(self, step: Step, body: Body, usage: Usage) -> Iterator[Frame]:
        del usage
        head = self._head(body, "chat.completion.chunk")
        yield _delta(head, {"role": "assistant", "content": ""})
        for part in words(step.reasoning):
            yield _delta(head, {"reasoning": part})
        for part in step.chunks:
            yield _delta(head, {"content": part})

    def closing(self, step: Step, body: Body, usage: Usage) -> Iterator[Frame]:
        head = self._head(body, "chat.completion.chunk")
        for part in step.rest:
            yield _delta(head, {"content": part})
        for index, call in enumerate(step.calls):
            function = {"name": call["function"]["name"], "arguments": ""}
            entry = {"index": index, "id": _identified(call, "call"), "type": "function"}
            yield _delta(head, {"tool_calls": [{**entry, "function": function}]})
            for part in _fragments(call["function"]["arguments"]):
                more = {"index": index, "function": {"arguments": part}}
                yield _delta(head, {"tool_calls": [more]})
        yield _delta(head, {}, self._reason(step))
        if cast("Body", body.get("stream_options") or {}).get("include_usage"):
            yield Frame("", {**head, "choices": [], "usage": self._usage(usage)})

    def refusal(self, refusal: Refuse) -> Body:
        kind = refusal.kind or ("invalid_request_error" if refusal.status < 500 else "server_error")
        error = {"message": refusal.message, "type": kind, "param": None, "code": refusal.code}
        return {"error": {**error, **refusal.more}}

    def break_(self, broken: Break) -> Frame:
        return Frame("", {"error": {"message": broken.message, "type": broken.kind}})

    def _head(self, body: Body, kind: str) -> dict[str, Any]:
        head = {"id": f"chatcmpl-{next(_numbers)}", "object": kind, "created": _created}
        return {**head, "model": body.get("model", "")}

    def _reason(self, step: Step) -> str:
        finish = step.finish or ("tool_calls" if step.calls else "stop")
        return self._finish.get(finish, "stop")

    def _usage(self, usage: Usage) -> dict[str, Any]:
        return {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        }


def _delta(head: Body, delta: Body, finish: str | None = None) -> Frame:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return Frame(
        "", {**head, "choices": [choice]}, is_chunk=any(delta.values()) and "role" not in delta
    )


class AnthropicWording:
    """Messages."""

    _finish = {"tool_calls": "tool_use", "length": "max_tokens", "refusal": "refusal"}  # noqa: RUF012 -- constant
    _kinds = {  # noqa: RUF012 -- constant
        401: "authentication_error",
        402: "billing_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        529: "overloaded_error",
    }

    def whole(self, step: Step, body: Body, usage: Usage) -> Body:
        blocks = [{**block, **filled} for block, _, filled in self._blocks(step)]
        reason = self._reason(step)
        return {
            **self._head(body),
            "content": blocks,
            "stop_reason": reason,
            "usage": _counted(usage),
        }

    def opening(self, step: Step, body: Body, usage: Usage) -> Iterator[Frame]:
        message: Body = {**self._head(body), "content": [], "stop_reason": None}
        started = {**_counted(usage), "output_tokens": 1}
        yield _event("message_start", message={**message, "usage": started})
        yield _event("ping")
        for index, (block, deltas, _) in enumerate(self._blocks(step, only_opening=True)):
            yield from _streamed(index, block, deltas)

    def closing(self, step: Step, body: Body, usage: Usage) -> Iterator[Frame]:
        del body
        done = len(list(self._blocks(step, only_opening=True)))
        for index, (block, deltas, _) in list(enumerate(self._blocks(step)))[done:]:
            yield from _streamed(index, block, deltas)
        ended = {"stop_reason": self._reason(step), "stop_sequence": None}
        yield _event("message_delta", delta=ended, usage={"output_tokens": usage.output_tokens})
        yield _event("message_stop")

    def refusal(self, refusal: Refuse) -> Body:
        default = "invalid_request_error" if refusal.status < 500 else "api_error"
        kind = refusal.kind or self._kinds.get(refusal.status, default)
        error = {"type": kind, "message": refusal.message, **refusal.more}
        return {"type": "error", "error": error, "request_id": f"req_{next(_numbers)}"}

    def break_(self, broken: Break) -> Frame:
        return _event("error", error={"type": broken.kind, "message": broken.message})

    def _blocks(
        self, step: Step, *, only_opening: bool = False
    ) -> Iterator[tuple[Body, Sequence[Body], Body]]:
        """Each block as it starts, its deltas, and what it is filled with at the end."""
        if step.reasoning:
            signature = f"signed-{len(step.reasoning)}"
            thought = [{"type": "thinking_delta", "thinking": p} for p in words(step.reasoning)]
            signed = {"type": "signature_delta", "signature": signature}
            start = {"type": "thinking", "thinking": "", "signature": ""}
            yield start, [*thought, signed], {"thinking": step.reasoning, "signature": signature}
        for chunks in (step.chunks,) if only_opening else (step.chunks, step.rest):
            if chunks:
                deltas = [{"type": "text_delta", "text": part} for part in chunks]
                yield {"type": "text", "text": ""}, deltas, {"text": "".join(chunks)}
        for call in () if only_opening else step.calls:
            arguments = call["function"]["arguments"]
            parts = [{"type": "input_json_delta", "partial_json": p} for p in _fragments(arguments)]
            block: Body = {"type": "tool_use", "id": _identified(call, "toolu"), "input": {}}
            filled = {"input": _decoded(arguments)}
            yield {**block, "name": call["function"]["name"]}, parts, filled

    def _head(self, body: Body) -> dict[str, Any]:
        head = {"id": f"msg_{next(_numbers)}", "type": "message", "role": "assistant"}
        return {**head, "model": body.get("model", ""), "stop_sequence": None}

    def _reason(self, step: Step) -> str:
        finish = step.finish or ("tool_calls" if step.calls else "stop")
        return self._finish.get(finish, "end_turn")


def _decoded(arguments: str) -> object:
    try:
        return msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return {}  # a whole reply cannot carry broken arguments; a stream can


def _counted(usage: Usage) -> dict[str, Any]:
    fresh = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
    return {
        "input_tokens": fresh,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "output_tokens": usage.output_tokens,
    }


def _event(kind: str, **fields: object) -> Frame:
    return Frame(kind, {"type": kind, **fields}, is_chunk=kind == "content_block_delta")


def _streamed(index: int, block: Body, deltas: Sequence[Body]) -> Iterator[Frame]:
    yield _event("content_block_start", index=index, content_block=block)
    for delta in deltas:
        yield _event("content_block_delta", index=index, delta=delta)
    yield _event("content_block_stop", index=index)
