"""The form of chat completions: one object, or chunks."""

from typing import Any

from gateway.platforms.api_server.form import DEFAULT_MODEL, DONE, Reply, encode
from gateway.platforms.api_server.translate import Asked
from gateway.platforms.refusal import RefusedRequest
from hermes_core import clock


class ChatForm:
    """One completion."""

    def __init__(self, name: str, asked: Asked) -> None:
        self._wants_usage = asked.wants_usage
        self._head: dict[str, Any] = {
            "id": f"chatcmpl-{name}",
            "object": "chat.completion.chunk",
            "created": int(clock.now()),
            "model": asked.model or DEFAULT_MODEL,
        }

    def whole(self, reply: Reply) -> dict[str, Any]:
        message = {"role": "assistant", "content": reply.text, "refusal": None}
        return self._head | {
            "object": "chat.completion",
            "model": reply.model or self._head["model"],
            "choices": [
                {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
            ],
            "usage": _usage(reply),
        }

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def think(self, text: str) -> bytes:
        return self._chunk({"reasoning_content": text})

    def say(self, text: str) -> bytes:
        return self._chunk({"content": text})

    def end(self, reply: Reply) -> bytes:
        last = self._chunk({}, "stop")
        if not self._wants_usage:
            return last + DONE
        return last + _event(self._head | {"choices": [], "usage": _usage(reply)}) + DONE

    def fail(self, error: RefusedRequest) -> bytes:
        return _event(error.body) + DONE

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        said = self._head | {"choices": [choice]}
        return _event(said | {"usage": None} if self._wants_usage else said)


def _event(said: dict[str, Any]) -> bytes:
    return b"data: " + encode(said) + b"\n\n"


def _usage(reply: Reply) -> dict[str, Any]:
    prompt, completion = reply.spent("input"), reply.spent("output")
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": reply.spent("cache_read")},
        "completion_tokens_details": {"reasoning_tokens": reply.spent("reasoning")},
    }
