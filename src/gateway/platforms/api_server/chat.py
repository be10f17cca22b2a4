"""The format of chat completions: one object, or chunks."""

from typing import Any

from gateway.platforms.api_server.parsing import AgentRequest
from gateway.platforms.api_server.replies import DEFAULT_MODEL, DONE, Reply, encode
from gateway.platforms.base import Finish, ToolCall
from gateway.platforms.refusal import RefusedRequest
from hermes_core import clock


class ChatFormat:
    """Encodes one chat completion."""

    has_tool_calls = False

    def __init__(self, name: str, request: AgentRequest) -> None:
        self._wants_usage = request.wants_usage
        self._head: dict[str, Any] = {
            "id": f"chatcmpl-{name}",
            "object": "chat.completion.chunk",
            "created": int(clock.now()),
        }
        self.model = request.model or DEFAULT_MODEL
        self._has_begun = False

    def whole(self, reply: Reply) -> dict[str, Any]:
        message = {"role": "assistant", "content": reply.text, "refusal": None}
        return self._head | {
            "object": "chat.completion",
            "model": reply.model or self.model,
            "choices": [_choice(reply.finish, message=message)],
            "usage": _usage(reply),
        }

    def begin(self) -> bytes:
        """Return nothing yet: every chunk names the model, which is known with the first event."""
        return b""

    def reasoning(self, text: str) -> bytes:
        return self._chunk({"reasoning_content": text})

    def text(self, text: str) -> bytes:
        return self._chunk({"content": text})

    def tool_call(self, call: ToolCall) -> bytes:
        """Return nothing: clients would run a tool call that a chat completion contains."""
        del call
        return b""

    def end(self, reply: Reply) -> bytes:
        last = self._chunk({}, reply.finish)
        if not self._wants_usage:
            return last + DONE
        return last + _event(self._headed(choices=[], usage=_usage(reply))) + DONE

    def fail(self, error: RefusedRequest) -> bytes:
        return _event(error.body) + DONE

    def _chunk(self, delta: dict[str, Any], finish: Finish | None = None) -> bytes:
        first = b""
        if not self._has_begun:
            self._has_begun = True
            first = self._chunk({"role": "assistant", "content": ""})
        chunk = self._headed(choices=[_choice(finish, delta=delta)])
        return first + _event(chunk | {"usage": None} if self._wants_usage else chunk)

    def _headed(self, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 -- JSON
        return self._head | {"model": self.model, **fields}


def _choice(finish: Finish | None, **content: dict[str, Any]) -> dict[str, Any]:
    reason = "content_filter" if finish == "refusal" else finish
    return {"index": 0, **content, "finish_reason": reason, "logprobs": None}


def _event(payload: dict[str, Any]) -> bytes:
    return b"data: " + encode(payload) + b"\n\n"


def _usage(reply: Reply) -> dict[str, Any]:
    prompt, completion = reply.tokens("input"), reply.tokens("output")
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": reply.tokens("cache_read")},
        "completion_tokens_details": {"reasoning_tokens": reply.tokens("reasoning")},
    }
