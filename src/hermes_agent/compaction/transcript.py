"""The transcript of a session: its messages in blocks that stay together or go together.

Messages come as `get_messages_as_conversation` returns them, in the order in which a model sees them.

A block is one message, or an assistant's step with the results of all its calls. Blocks contain nothing
that a provider would refuse: no results without a call, and no calls without a result, except in the
last step, which may still be running.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from hermes_state.values import Carried, Row

_PLAIN_KEYS = (
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "tool_name",
    "timestamp",
    "message_id",
    "observed",
    "answers",
)
"""The keys of a message that are not a provider's own additions."""
_ROW_KEYS = ("id", "kind", "origin_id")
"""The keys of a stored row that a changed copy must not inherit."""


def original_id(row: Mapping[str, Any]) -> int:
    """Return the id of a message's original, which names it through every compaction."""
    origin = row.get("origin_id")
    return row["id"] if origin is None else origin


def text_of(content: Any) -> str:  # noqa: ANN401 -- text or parts
    """Return the text of a message's content; parts without text appear as their type."""
    if isinstance(content, list):
        return "\n".join(_part_text(part) for part in cast("list[Any]", content))
    if content is None or isinstance(content, str):
        return content or ""
    return msgspec.json.encode(content).decode()


def _part_text(part: Any) -> str:  # noqa: ANN401 -- whatever a surface put there
    if isinstance(part, Mapping):
        fields = cast("Mapping[str, Any]", part)
        text = fields.get("text")
        return text if isinstance(text, str) else f"[{fields.get('type') or 'attachment'}]"
    return str(part)


def calls_of(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the tool calls of a message: the name of each tool and its arguments as text."""
    calls: list[tuple[str, str]] = []
    for call in message.get("tool_calls") or ():
        function: Mapping[str, Any] = call.get("function") or {}
        calls.append((str(function.get("name") or ""), str(function.get("arguments") or "")))
    return calls


def full_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message, its tool calls included."""
    calls = [f"→ {name}({arguments})" for name, arguments in calls_of(message)]
    return "\n".join([text_of(message.get("content")), *calls]).strip()


class Entry(NamedTuple):
    """A stored message, and the fields in which its copy in the new session differs."""

    row: Row
    change: dict[str, Any] | None = None

    @property
    def message(self) -> Mapping[str, Any]:
        """Return the message as a model will see it."""
        if self.change is None:
            return self.row
        return {key: value for key, value in self.row.items() if key not in _ROW_KEYS} | self.change

    @property
    def carried(self) -> Carried:
        """Return the message as `rotate_session` takes it: its id, or a changed copy."""
        return self.row["id"] if self.change is None else self.copied

    @property
    def copied(self) -> dict[str, Any]:
        """Return a copy of the message that names its original."""
        fields = self.changed().message
        return {
            **{key: value for key, value in fields.items() if value is not None},
            "origin_id": original_id(self.row),
        }

    def changed(self, **change: Any) -> "Entry":  # noqa: ANN401 -- keys of a message
        """Return the message with other contents."""
        return Entry(self.row, {**(self.change or {}), **change})

    def plain(self) -> "Entry":
        """Return the message without a provider's own additions."""
        keys = (*_PLAIN_KEYS, *_ROW_KEYS)
        return self.changed(**{key: None for key in self.message if key not in keys})


class Block(NamedTuple):
    """Messages that stay together or go together."""

    entries: tuple[Entry, ...]

    @property
    def first(self) -> Row:
        """Return the stored row of the first message."""
        return self.entries[0].row

    @property
    def is_summary(self) -> bool:
        """True for the summary of an earlier compaction."""
        return self.first.get("kind") == "summary"

    @property
    def is_request(self) -> bool:
        """True for a message of a person."""
        return self.first["role"] == "user" and not self.is_summary

    @property
    def is_step(self) -> bool:
        """True for a model's step with tool calls."""
        return bool(self.entries[0].message.get("tool_calls"))

    @property
    def is_answer(self) -> bool:
        """True for a model's final answer."""
        return self.first["role"] == "assistant" and not self.is_step


def entries(blocks: Iterable[Block]) -> list[Entry]:
    """Return the messages of some blocks."""
    return [entry for block in blocks for entry in block.entries]


def blocks(rows: Sequence[Row]) -> list[Block]:
    """Group the messages of a session into blocks, in order.

    A message that came between a call and its result is placed after the result, as models require.
    """
    results_of_step = results(rows)
    last_step = max((i for i, row in enumerate(rows) if row.get("tool_calls")), default=-1)
    found: list[Block] = []
    for position, row in enumerate(rows):
        if row["role"] == "tool":
            continue
        if row["role"] != "assistant" or not row.get("tool_calls"):
            found.append(Block((Entry(row),)))
            continue
        answered = results_of_step.get(position, {})
        step = _valid_step(row, None if position == last_step else answered)
        if step is not None:
            found.append(Block((step, *(Entry(result) for result in answered.values()))))
    return found


def results(rows: Sequence[Row]) -> dict[int, dict[str, Row]]:
    """Map the position of each step to the results of its calls.

    A call id may occur again; a result then belongs to the nearest step before it.
    """
    step_of_call: dict[str, int] = {}
    found: dict[int, dict[str, Row]] = {}
    for position, row in enumerate(rows):
        if row["role"] == "assistant":
            for call in row.get("tool_calls") or ():
                step_of_call[call_id(call)] = position
        elif row["role"] == "tool":
            id_ = str(row.get("tool_call_id") or "")
            step = step_of_call.pop(id_, None)  # popped: a call has one result, the first
            if step is not None:
                found.setdefault(step, {})[id_] = row
    return found


def _valid_step(row: Row, answered: Mapping[str, Row] | None) -> Entry | None:
    """Return a step with each call once; with `answered`, only the calls that have a result."""
    calls = {call_id(call): call for call in reversed(row["tool_calls"])}
    valid = [call for id_, call in reversed(calls.items()) if answered is None or id_ in answered]
    if len(valid) == len(row["tool_calls"]):
        return Entry(row)
    if not valid and not text_of(row.get("content")).strip():
        return None
    return Entry(row).changed(tool_calls=valid or None)


def call_id(call: Mapping[str, Any]) -> str:
    """Return the id that a model gave to a call."""
    return str(call.get("id") or "")
