"""The form of chat completions: one object, or chunks."""

from typing import Any

from gateway.platforms.api_server.form import DEFAULT_MODEL, DONE, Reply, encode
from gateway.platforms.api_server.translate import Asked
from gateway.platforms.base import Finish
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
            "choices": [_choice(reply.finish, message=message)],
            "usage": _usage(reply),
        }

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def think(self, text: str) -> bytes:
        return self._chunk({"reasoning_content": text})

    def say(self, text: str) -> bytes:
        return self._chunk({"content": text})

    def end(self, reply: Reply) -> bytes:
        last = self._chunk({}, reply.finish)
        if not self._wants_usage:
            return last + DONE
        return last + _event(self._head | {"choices": [], "usage": _usage(reply)}) + DONE

    def fail(self, error: RefusedRequest) -> bytes:
        return _event(error.body) + DONE

    def _chunk(self, delta: dict[str, Any], finish: Finish | None = None) -> bytes:
        said = self._head | {"choices": [_choice(finish, delta=delta)]}
        return _event(said | {"usage": None} if self._wants_usage else said)


def _choice(finish: Finish | None, **said: dict[str, Any]) -> dict[str, Any]:
    reason = "content_filter" if finish == "refusal" else finish
    return {"index": 0, **said, "finish_reason": reason, "logprobs": None}


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
