"""Pruning: cut messages without a model to their beginning, their end, and the id of the original."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from hermes_agent.compaction.transcript import Block, Entry, entries, original_id, text_of
from hermes_agent.tokens import Estimator

MAX_OUTPUT_TOKENS = 200
"""What an old tool output, or a long argument of an old call, may keep."""
_MIN_TOKENS = 24
"""A message cut below this is no longer readable."""


def cut_text(text: str, tokens: int, sizes: Estimator, message_id: int) -> str:
    """Return as much of the beginning and the end of a text as fits, with a note between them."""
    size = sizes.text(text)
    if size <= tokens:
        return text
    note = f"\n[… left out here to save room; message {message_id} has all of it …]\n"
    length = len(text) * max(tokens - sizes.text(note), 0) // size
    while length >= 3:
        cut = text[: length - length // 3] + note + text[-(length // 3) :]
        if sizes.text(cut) <= tokens:
            return cut
        length = length * 3 // 4
    note = f"[message {message_id}]"
    return note if sizes.text(note) <= tokens else ""


def prune(block: Block, sizes: Estimator) -> Block:
    """Cut the tool outputs and the long call arguments of a block to a few lines."""
    return Block(tuple(_pruned(entry, sizes) for entry in block.entries))


def _pruned(entry: Entry, sizes: Estimator) -> Entry:
    message = entry.message
    if message["role"] == "tool" and sizes.message(message) > 2 * MAX_OUTPUT_TOKENS:
        text = text_of(message.get("content"))
        return entry.changed(
            content=cut_text(text, MAX_OUTPUT_TOKENS, sizes, original_id(entry.row))
        )
    if message.get("tool_calls") and sizes.message(message) > 2 * MAX_OUTPUT_TOKENS:
        calls = [
            _cut_call(call, MAX_OUTPUT_TOKENS, sizes, original_id(entry.row))
            for call in message["tool_calls"]
        ]
        return entry if calls == message["tool_calls"] else entry.changed(tool_calls=calls)
    return entry


def fit(blocks: Sequence[Block], budget: int, sizes: Estimator) -> list[Block] | None:
    """Cut blocks to a number of tokens: tool outputs first, then any large message.

    Returns None when the messages are too many for each to stay readable.
    """
    messages = entries(blocks)
    if sum(sizes.message(entry.message) for entry in messages) <= budget:
        return list(blocks)
    outputs = {i for i, entry in enumerate(messages) if entry.message["role"] == "tool"}
    for cuttable in (outputs, set(range(len(messages)))):
        fitted = _fit(messages, cuttable, budget, sizes)
        if fitted is not None:
            remaining = iter(fitted)
            return [Block(tuple(next(remaining) for _ in block.entries)) for block in blocks]
    return None


def _fit(
    messages: Sequence[Entry], cuttable: set[int], budget: int, sizes: Estimator
) -> list[Entry] | None:
    """Cut the messages at some positions to one level; smaller messages stay whole."""
    tokens = [sizes.message(entry.message) for entry in messages]
    level = level_of(
        [tokens[i] for i in cuttable],
        budget - sum(size for i, size in enumerate(tokens) if i not in cuttable),
    )
    if level < _MIN_TOKENS:
        return None
    fitted = [
        cut_entry(entry, level, sizes) if i in cuttable and tokens[i] > level else entry
        for i, entry in enumerate(messages)
    ]
    fits = sum(sizes.message(entry.message) for entry in fitted) <= budget
    return fitted if fits else None


def level_of(tokens: Sequence[int], budget: int) -> int:
    """Return the size to which larger messages must be cut for all to fit; 0: no cut is needed."""
    remaining = budget
    for position, size in enumerate(sorted(tokens)):
        share = remaining // (len(tokens) - position)
        if size > share:
            return share
        remaining -= size
    return 0


def cut_entry(entry: Entry, tokens: int, sizes: Estimator) -> Entry:
    """Cut a message to about a number of tokens; a provider's own additions go first."""
    message = entry.message
    bare = entry.plain()
    if sizes.message(bare.message) <= tokens:
        return bare
    message_id = original_id(entry.row)
    text, calls = text_of(message.get("content")), list(message.get("tool_calls") or ())
    frame = bare.changed(content="", tool_calls=[_without_arguments(c) for c in calls] or None)
    room = max(tokens - sizes.message(frame.message), 0)
    if calls:
        each = (room * 2 // 3 if text else room) // len(calls)
        cut = [_cut_call(call, each, sizes, message_id, strict=True) for call in calls]
        frame = frame.changed(tool_calls=cut)
        room = max(tokens - sizes.message(frame.message), 0)
    return frame.changed(content=cut_text(text, room, sizes, message_id))


def _without_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    return {**call, "function": {**(call.get("function") or {}), "arguments": "{}"}}


def _cut_call(
    call: Mapping[str, Any], tokens: int, sizes: Estimator, message_id: int, *, strict: bool = False
) -> Mapping[str, Any]:
    """Cut the long arguments of a call; strict: to the number of tokens, even by dropping them all."""
    function: Mapping[str, Any] = call.get("function") or {}
    arguments = function.get("arguments")
    if not isinstance(arguments, str) or sizes.text(arguments) <= tokens:
        return call
    try:
        values: Any = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        values = None
    if isinstance(values, dict):
        cut = msgspec.json.encode(_cut_values(values, tokens, sizes, message_id)).decode()
        if not strict or sizes.text(cut) <= tokens:
            return {**call, "function": {**function, "arguments": cut}}
    return _without_arguments(call) if strict else call


def _cut_values(value: Any, tokens: int, sizes: Estimator, message_id: int) -> Any:  # noqa: ANN401 -- JSON
    if isinstance(value, str):
        return cut_text(value, tokens * 2 // 3, sizes, message_id)
    if isinstance(value, dict):
        return {
            key: _cut_values(item, tokens, sizes, message_id)
            for key, item in cast("dict[str, Any]", value).items()
        }
    if isinstance(value, list):
        return [_cut_values(item, tokens, sizes, message_id) for item in cast("list[Any]", value)]
    return value
