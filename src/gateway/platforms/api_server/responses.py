"""The format of responses: one object, or named events. Its id leads back into the conversation."""

import hashlib
import re
from typing import Any

from gateway.platforms.api_server.parsing import AgentRequest
from gateway.platforms.api_server.replies import DEFAULT_MODEL, Reply, encode
from gateway.platforms.base import ToolCall
from gateway.platforms.refusal import RefusedRequest
from hermes_core import clock

_PREFIX = "resp_"
_COMMAND_ID = re.compile(r"resp_session_([\w-]*)\.[0-9a-f]{16}", re.ASCII)
_INCOMPLETE_REASONS = {"length": "max_output_tokens", "refusal": "content_filter"}


def command_name(session_id: str | None, message_id: str) -> str:
    """Name the output of a command, which has no turn, after the session that it was about.

    The session is empty when the command was about none, and None when it is unknown. A repeat of a
    command has the same name; other commands have others.
    """
    digest = hashlib.sha256(message_id.encode()).hexdigest()[:16]
    return digest if session_id is None else f"session_{session_id}.{digest}"


def session_in(response_id: str) -> str | None:
    """Return the session that the id of a command's output names; None for the id of a turn."""
    found = _COMMAND_ID.fullmatch(response_id)
    return found[1] if found else None


def turn_in(response_id: str) -> str:
    """Return the turn of a response; empty when the id cannot be that of a turn."""
    turn_id = response_id.removeprefix(_PREFIX)
    return turn_id if turn_id != response_id and turn_id.isalnum() else ""


class ResponseFormat:
    """Encodes one response.

    A tool call is an `mcp_call` item, the type for calls that the server itself has run: clients
    display it. A `function_call` would ask them to run the tool.
    """

    has_tool_calls = True

    def __init__(self, name: str, request: AgentRequest, created_at: float = 0.0) -> None:
        self._name, self._id = name, _PREFIX + name
        self._request = request
        self._created_at = int(created_at or clock.now())
        self.model = request.model or DEFAULT_MODEL
        self._number = 0
        self._items: list[dict[str, Any]] = []
        """The output as far as it was streamed."""
        self._calls: dict[str, int] = {}
        """The position of each tool call in the output."""
        self._text: list[str] = []
        """The text of the message item that is open."""

    def whole(self, reply: Reply) -> dict[str, Any]:
        calls = [_call_item(f"mcp_{self._name}_{i}", c) for i, c in enumerate(reply.tool_calls)]
        message = self._message(_status(reply), reply.text, len(calls))
        return self._ended(reply, [*calls, message])

    def begin(self) -> bytes:
        return self._event("created", response=self._response("in_progress")) + self._event(
            "in_progress", response=self._response("in_progress")
        )

    def reasoning(self, text: str) -> bytes:
        """Return nothing: the reasoning of the model is not part of a response."""
        del text
        return b""

    def text(self, text: str) -> bytes:
        opening = b""
        if not self._text:
            text = text.lstrip("\n")
            opening = self._add_item(self._message("in_progress", None, len(self._items)))
            opening += self._text_event("content_part.added", part=_text_part(""))
        self._text.append(text)
        return opening + self._text_event("output_text.delta", delta=text, logprobs=[])

    def tool_call(self, call: ToolCall) -> bytes:
        data, index = b"", self._calls.get(call.call_id)
        if index is None:
            data += self._close_message("completed")
            index = self._calls[call.call_id] = len(self._items)
            item = _call_item(f"mcp_{self._name}_{index}", call._replace(output=""))
            item["status"] = "in_progress"
            data += self._add_item(item)
            data += self._call_event("in_progress", index)
            data += self._call_event("arguments.done", index, arguments=call.arguments)
        if call.status == "in_progress" or self._items[index]["status"] != "in_progress":
            return data
        item = self._items[index] = _call_item(self._items[index]["id"], call)
        data += self._call_event("completed" if call.status == "completed" else "failed", index)
        return data + self._event("output_item.done", output_index=index, item=item)

    def end(self, reply: Reply) -> bytes:
        data = b"" if self._text else self.text("")
        data += self._close_message(_status(reply))
        return data + self._event(_status(reply), response=self._ended(reply, self._items))

    def fail(self, error: RefusedRequest) -> bytes:
        return self._event("failed", response=self.failed(str(error)))

    def failed(self, reason: str) -> dict[str, Any]:
        """Return a response whose turn failed."""
        error = {"code": "server_error", "message": reason}
        return self._response("failed", self._items) | {"error": error}

    def pending(self, status: str) -> dict[str, Any]:
        """Return a response without a reply: `in_progress` or `cancelled`."""
        return self._response(status, self._items)

    def _ended(self, reply: Reply, output: list[dict[str, Any]]) -> dict[str, Any]:
        response = self._response(_status(reply), output)
        response["model"] = reply.model or self.model
        response["usage"] = _usage(reply)
        if reason := _INCOMPLETE_REASONS.get(reply.finish):
            response["incomplete_details"] = {"reason": reason}
        return response

    def _add_item(self, item: dict[str, Any]) -> bytes:
        self._items.append(item)
        return self._event("output_item.added", output_index=len(self._items) - 1, item=item)

    def _close_message(self, status: str) -> bytes:
        if not self._text:
            return b""
        text = "".join(self._text)
        self._text.clear()
        index = len(self._items) - 1  # a tool call closes the message before it
        self._items[index] |= {"status": status, "content": [_text_part(text)]}
        where = {"item_id": self._items[index]["id"], "output_index": index, "content_index": 0}
        return (
            self._event("output_text.done", **where, text=text, logprobs=[])
            + self._event("content_part.done", **where, part=_text_part(text))
            + self._event("output_item.done", output_index=index, item=self._items[index])
        )

    def _event(self, kind: str, **fields: Any) -> bytes:  # noqa: ANN401 -- JSON
        kind = f"response.{kind}"
        payload = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return b"event: " + kind.encode() + b"\ndata: " + encode(payload) + b"\n\n"

    def _text_event(self, kind: str, **fields: Any) -> bytes:  # noqa: ANN401 -- JSON
        index = len(self._items) - 1
        item_id = self._items[index]["id"]
        return self._event(kind, item_id=item_id, output_index=index, content_index=0, **fields)

    def _call_event(self, kind: str, index: int, **fields: Any) -> bytes:  # noqa: ANN401 -- JSON
        kind = f"mcp_call_{kind}" if kind.startswith("arguments") else f"mcp_call.{kind}"
        return self._event(kind, item_id=self._items[index]["id"], output_index=index, **fields)

    def _message(self, status: str, text: str | None, index: int) -> dict[str, Any]:
        return {
            "id": f"msg_{self._name}_{index}",
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [] if text is None else [_text_part(text)],
        }

    def _response(self, status: str, output: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created_at,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": self._request.instructions or None,
            "metadata": self._request.metadata,
            "model": self.model,
            "output": output or [],
            "parallel_tool_calls": True,
            "previous_response_id": self._request.previous_response_id or None,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "usage": None,
        }


def _call_item(item_id: str, call: ToolCall) -> dict[str, Any]:
    return {
        "id": item_id,
        "type": "mcp_call",
        "server_label": DEFAULT_MODEL,
        "name": call.name,
        "arguments": call.arguments,
        "output": None if call.status == "in_progress" else call.output,
        "status": call.status,
        "error": None,
        "approval_request_id": None,
    }


def _status(reply: Reply) -> str:
    return "incomplete" if reply.finish in _INCOMPLETE_REASONS else "completed"


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(reply: Reply) -> dict[str, Any]:
    sent, received = reply.tokens("input"), reply.tokens("output")
    return {
        "input_tokens": sent,
        "input_tokens_details": {
            "cached_tokens": reply.tokens("cache_read"),
            "cache_write_tokens": reply.tokens("cache_write"),
        },
        "output_tokens": received,
        "output_tokens_details": {"reasoning_tokens": reply.tokens("reasoning")},
        "total_tokens": sent + received,
    }
