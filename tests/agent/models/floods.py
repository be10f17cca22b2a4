"""Floods of a hostile model server: replies, lines and headers without end, and bytes that trickle."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from hermes_agent.testing.faults import Flood

Format = Literal["openai", "anthropic"]

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
_PIECE = "z" * 4000


def endless_text(format_: Format, piece: str = _PIECE) -> Flood:
    """Text without end, as fast as it is read."""
    return _events(lambda _number: _text(format_, piece))


def endless_reasoning(format_: Format, piece: str = _PIECE) -> Flood:
    """Reasoning without end."""
    start = b"" if format_ == "openai" else _block({"type": "thinking", "thinking": ""})
    return _events(lambda _number: _reasoning(format_, piece), start)


def endless_details(piece: str = _PIECE) -> Flood:
    """Reasoning details without end, as OpenRouter sends them."""
    detail = {"type": "reasoning.text", "index": 0, "text": piece}
    return _events(lambda _number: _delta({"reasoning_details": [detail]}))


def endless_arguments(format_: Format, piece: str = _PIECE) -> Flood:
    """One tool call whose arguments have no end."""
    return _events(lambda _number: _arguments(format_, piece), _call(format_, 0, "call_0"))


def many_calls(format_: Format) -> Flood:
    """Tool calls without end, each with an id of its own."""
    return _events(lambda number: _call(format_, number, f"call_{number}"))


def endless_line() -> Flood:
    """One event whose line has no end."""
    return Flood(_HEAD + b'data: {"choices": "', lambda _number: _PIECE.encode())


def endless_event() -> Flood:
    """One event whose lines have no end."""
    return Flood(_HEAD, lambda _number: b"data: " + _PIECE.encode() + b"\n")


def endless_headers() -> Flood:
    """Headers without end, as fast as they are read."""
    return Flood(b"HTTP/1.1 200 OK\r\n", lambda number: b"X-%d: %b\r\n" % (number, b"y" * 4000))


def endless_body() -> Flood:
    """A response that is not a stream and has no end."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[0"
    return Flood(head, lambda _number: b", 0" * 2000)


def dripping_headers(pause_s: float) -> Flood:
    """Headers that are always soon followed by the next."""
    return Flood(b"HTTP/1.1 200 OK\r\n", lambda number: b"X-%d: y\r\n" % number, pause_s, 4000)


def dripping_bytes(pause_s: float) -> Flood:
    """An event of which one byte comes after the other."""
    text = _delta({"content": _PIECE})
    return Flood(_HEAD, lambda number: text[number : number + 1], pause_s, len(text))


def dripping_comments(pause_s: float) -> Flood:
    """Signs of life without end, and nothing else."""
    return Flood(_HEAD, lambda _number: b": still here\n\n", pause_s, 40_000)


def _events(make: Callable[[int], bytes], first: bytes = b"") -> Flood:
    return Flood(_HEAD + first, make)


def _event(payload: Mapping[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(payload) + b"\n\n"


def _delta(delta: Mapping[str, Any]) -> bytes:
    return _event({"choices": [{"index": 0, "delta": delta}]})


def _block(block: Mapping[str, Any]) -> bytes:
    return _event({"type": "content_block_start", "index": 0, "content_block": block})


def _block_delta(delta: Mapping[str, Any]) -> bytes:
    return _event({"type": "content_block_delta", "index": 0, "delta": delta})


def _text(format_: Format, text: str) -> bytes:
    if format_ == "openai":
        return _delta({"content": text})
    return _block_delta({"type": "text_delta", "text": text})


def _reasoning(format_: Format, text: str) -> bytes:
    if format_ == "openai":
        return _delta({"reasoning": text})
    return _block_delta({"type": "thinking_delta", "thinking": text})


def _call(format_: Format, index: int, call_id: str) -> bytes:
    if format_ == "openai":
        function = {"name": "read", "arguments": ""}
        return _delta({"tool_calls": [{"index": index, "id": call_id, "function": function}]})
    return _block({"type": "tool_use", "id": call_id, "name": "read", "input": {}})


def _arguments(format_: Format, text: str) -> bytes:
    if format_ == "openai":
        return _delta({"tool_calls": [{"index": 0, "function": {"arguments": text}}]})
    return _block_delta({"type": "input_json_delta", "partial_json": text})
