"""Messages made smaller without a model: the beginning and the end stay, and where the whole is."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from hermes_agent.compaction.transcript import Block, Entry, number, text_of
from hermes_agent.tokens import Estimator

OUTPUT = 200
"""Tokens an old tool output, or a long argument of an old call, may keep."""
_LEAST = 24
"""Tokens below which what is left of a message says nothing."""


def cut_text(text: str, tokens: int, sizes: Estimator, message: int) -> str:
    """The beginning and the end of a text, as much as fits, with a note between them."""
    size = sizes.text(text)
    if size <= tokens:
        return text
    note = f"\n[… left out here to save room; message {message} has all of it …]\n"
    keep = len(text) * max(tokens - sizes.text(note), 0) // size
    while keep >= 3:
        cut = text[: keep - keep // 3] + note + text[-(keep // 3) :]
        if sizes.text(cut) <= tokens:
            return cut
        keep = keep * 3 // 4
    note = f"[message {message}]"
    return note if sizes.text(note) <= tokens else ""


def shrink_outputs(blocks: Sequence[Block], sizes: Estimator) -> list[Block]:
    """The blocks with what their tools put out, and what they were given, cut to a few lines."""
    return [Block(tuple(_shrunk(entry, sizes) for entry in block.entries)) for block in blocks]


def _shrunk(entry: Entry, sizes: Estimator) -> Entry:
    message = entry.message
    if message["role"] == "tool" and sizes.message(message) > 2 * OUTPUT:
        text = cut_text(text_of(message.get("content")), OUTPUT, sizes, number(entry.row))
        return entry.changed(content=text)
    if message.get("tool_calls") and sizes.message(message) > 2 * OUTPUT:
        calls = [
            _cut_call(call, OUTPUT, sizes, number(entry.row)) for call in message["tool_calls"]
        ]
        return entry if calls == message["tool_calls"] else entry.changed(tool_calls=calls)
    return entry


def fit(blocks: Sequence[Block], budget: int, sizes: Estimator) -> list[Block] | None:
    """The blocks in at most so many tokens: tool outputs give way first, then whatever is large.

    None when there are too many messages to leave a few words of each.
    """
    entries = [entry for block in blocks for entry in block.entries]
    total = sum(sizes.message(entry.message) for entry in entries)
    if total <= budget:
        return list(blocks)
    outputs = {i for i, entry in enumerate(entries) if entry.message["role"] == "tool"}
    for chosen in (outputs, set(range(len(entries)))):
        fitted = _fit(entries, chosen, budget, sizes)
        if fitted is not None:
            remaining = iter(fitted)
            return [Block(tuple(next(remaining) for _ in block.entries)) for block in blocks]
    return None


def _fit(
    entries: Sequence[Entry], chosen: set[int], budget: int, sizes: Estimator
) -> list[Entry] | None:
    """Cut the chosen messages to one level: none is cut that is smaller than what the others keep."""
    tokens = [sizes.message(entry.message) for entry in entries]
    level = level_of(
        [tokens[i] for i in chosen],
        budget - sum(size for i, size in enumerate(tokens) if i not in chosen),
    )
    if level < _LEAST:
        return None
    fitted = [
        cut_entry(entry, level, sizes) if i in chosen and tokens[i] > level else entry
        for i, entry in enumerate(entries)
    ]
    fits = sum(sizes.message(entry.message) for entry in fitted) <= budget
    return fitted if fits else None


def level_of(tokens: Sequence[int], budget: int) -> int:
    """To how many tokens all that is larger must be cut for everything to fit; 0: nothing must be."""
    left = budget
    for position, size in enumerate(sorted(tokens)):
        share = left // (len(tokens) - position)
        if size > share:
            return share
        left -= size
    return 0


def cut_entry(entry: Entry, tokens: int, sizes: Estimator) -> Entry:
    """A message in about so many tokens; what providers put beside it goes first."""
    message = entry.message
    bare = entry.plain()
    if sizes.message(bare.message) <= tokens:
        return bare
    text, calls = text_of(message.get("content")), list(message.get("tool_calls") or ())
    frame = bare.changed(content="", tool_calls=[_emptied(call) for call in calls] or None)
    left = max(tokens - sizes.message(frame.message), 0)
    if calls:
        each = (left * 2 // 3 if text else left) // len(calls)
        cut = [_cut_call(call, each, sizes, number(entry.row), strict=True) for call in calls]
        frame = frame.changed(tool_calls=cut)
        left = max(tokens - sizes.message(frame.message), 0)
    return frame.changed(content=cut_text(text, left, sizes, number(entry.row)))


def _emptied(call: Mapping[str, Any]) -> dict[str, Any]:
    return {**call, "function": {**(call.get("function") or {}), "arguments": "{}"}}


def _cut_call(
    call: Mapping[str, Any], tokens: int, sizes: Estimator, message: int, *, strict: bool = False
) -> Mapping[str, Any]:
    """A call whose long arguments are cut; strict: within so many tokens, whatever that costs."""
    function: Mapping[str, Any] = call.get("function") or {}
    arguments = function.get("arguments")
    if not isinstance(arguments, str) or sizes.text(arguments) <= tokens:
        return call
    try:
        values: Any = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        values = None
    if isinstance(values, dict):
        cut = msgspec.json.encode(_cut_values(values, tokens, sizes, message)).decode()
        if not strict or sizes.text(cut) <= tokens:
            return {**call, "function": {**function, "arguments": cut}}
    return _emptied(call) if strict else call


def _cut_values(value: Any, tokens: int, sizes: Estimator, message: int) -> Any:  # noqa: ANN401 -- JSON
    if isinstance(value, str):
        return cut_text(value, tokens * 2 // 3, sizes, message)
    if isinstance(value, dict):
        return {
            key: _cut_values(item, tokens, sizes, message)
            for key, item in cast("dict[str, Any]", value).items()
        }
    if isinstance(value, list):
        return [_cut_values(item, tokens, sizes, message) for item in cast("list[Any]", value)]
    return value
