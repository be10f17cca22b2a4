"""The form of responses: one object, or named events; its id is the way back into the conversation."""

import hashlib
import re
from typing import Any

from gateway.platforms.api_server.form import DEFAULT_MODEL, Reply, encode
from gateway.platforms.api_server.translate import Asked
from gateway.platforms.refusal import RefusedRequest
from hermes_core import clock

_OF_TURN = "resp_"
_OF_COMMAND = re.compile(r"resp_session_([\w-]*)\.[0-9a-f]{16}", re.ASCII)
_INCOMPLETE = {"length": "max_output_tokens", "refusal": "content_filter"}
"""Why a response is not all that there is to say."""


def name_of(session_id: str | None, message_id: str) -> str:
    """The name of an answer that no turn made, but a command in this session.

    The session is empty when the command was about none, and None when that is not known. The answer to
    a repeat has the same name, that of another command not.
    """
    told_apart = hashlib.sha256(message_id.encode()).hexdigest()[:16]
    return told_apart if session_id is None else f"session_{session_id}.{told_apart}"


def session_in(response_id: str) -> str | None:
    """The session that a command's answer named, empty when it was about none; None for all others."""
    found = _OF_COMMAND.fullmatch(response_id)
    return found[1] if found else None


def turn_in(response_id: str) -> str:
    """The turn that made a response; empty when it cannot be one."""
    turn_id = response_id.removeprefix(_OF_TURN)
    return turn_id if turn_id != response_id and turn_id.isalnum() else ""


class ResponseForm:
    """One response."""

    def __init__(self, name: str, asked: Asked) -> None:
        self._id, self._item_id = _OF_TURN + name, f"msg_{name}"
        self._asked = asked
        self._created = int(clock.now())
        self._number = 0

    def whole(self, reply: Reply) -> dict[str, Any]:
        status = _status(reply)
        said = self._response(status, output=[self._item(status, reply.text)])
        said["model"] = reply.model or said["model"]
        said["usage"] = _usage(reply)
        if reason := _INCOMPLETE.get(reply.finish):
            said["incomplete_details"] = {"reason": reason}
        return said

    def begin(self) -> bytes:
        return (
            self._event("created", response=self._response("in_progress"))
            + self._event("in_progress", response=self._response("in_progress"))
            + self._event("output_item.added", output_index=0, item=self._item("in_progress"))
            + self._part_event("content_part.added", part=_part(""))
        )

    def think(self, text: str) -> bytes:
        """Nothing: what the model thinks is no part of a response."""
        del text
        return b""

    def say(self, text: str) -> bytes:
        return self._part_event("output_text.delta", delta=text, logprobs=[])

    def end(self, reply: Reply) -> bytes:
        item = self._item(_status(reply), reply.text)
        return (
            self._part_event("output_text.done", text=reply.text, logprobs=[])
            + self._part_event("content_part.done", part=_part(reply.text))
            + self._event("output_item.done", output_index=0, item=item)
            + self._event(_status(reply), response=self.whole(reply))
        )

    def fail(self, error: RefusedRequest) -> bytes:
        said = self._response("failed")
        said["error"] = {"code": "server_error", "message": str(error)}
        return self._event("failed", response=said)

    def _event(self, kind: str, **fields: Any) -> bytes:  # noqa: ANN401 -- JSON
        kind = f"response.{kind}"
        said = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return b"event: " + kind.encode() + b"\ndata: " + encode(said) + b"\n\n"

    def _part_event(self, kind: str, **fields: Any) -> bytes:  # noqa: ANN401 -- JSON
        return self._event(kind, item_id=self._item_id, output_index=0, content_index=0, **fields)

    def _item(self, status: str, text: str | None = None) -> dict[str, Any]:
        return {
            "id": self._item_id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [] if text is None else [_part(text)],
        }

    def _response(self, status: str, output: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": self._asked.instructions or None,
            "metadata": self._asked.metadata,
            "model": self._asked.model or DEFAULT_MODEL,
            "output": output or [],
            "parallel_tool_calls": True,
            "previous_response_id": self._asked.previous or None,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "usage": None,
        }


def _status(reply: Reply) -> str:
    return "incomplete" if reply.finish in _INCOMPLETE else "completed"


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(reply: Reply) -> dict[str, Any]:
    given, written = reply.spent("input"), reply.spent("output")
    return {
        "input_tokens": given,
        "input_tokens_details": {
            "cached_tokens": reply.spent("cache_read"),
            "cache_write_tokens": reply.spent("cache_write"),
        },
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": reply.spent("reasoning")},
        "total_tokens": given + written,
    }
