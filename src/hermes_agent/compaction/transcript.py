"""The transcript of a session: its messages in blocks that are kept together or not at all.

Messages come as `get_messages_as_conversation` gives them: in the order a model is shown them.

A block is one message, or an assistant's step with the results of all its calls. What could not be sent
to a model is left out of the blocks: results nobody asked for, and calls nobody answered, except in
the last step, which may still be running.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from hermes_state.values import Carried, Row

_PLAIN = (
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
"""What a message says and where it belongs, without what providers put beside it."""
_OWN = ("id", "kind", "origin_id")
"""What belongs to the stored row and not to a changed copy of it."""


def number(row: Mapping[str, Any]) -> int:
    """The name of a message that stays through every compaction: the id of its original."""
    origin = row.get("origin_id")
    return row["id"] if origin is None else origin


def text_of(content: Any) -> str:  # noqa: ANN401 -- text or parts
    """The words of a message; what is no text is named."""
    if isinstance(content, list):
        return "\n".join(_part_text(part) for part in cast("list[Any]", content))
    if content is None or isinstance(content, str):
        return content or ""
    return msgspec.json.encode(content).decode()


def calls_of(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The calls a message asks for: the name of the tool and the arguments as text."""
    found: list[tuple[str, str]] = []
    for call in message.get("tool_calls") or ():
        function: Mapping[str, Any] = call.get("function") or {}
        found.append((str(function.get("name") or ""), str(function.get("arguments") or "")))
    return found


def words_of(message: Mapping[str, Any]) -> str:
    """Everything a message says, its calls included."""
    calls = [f"→ {name}({arguments})" for name, arguments in calls_of(message)]
    return "\n".join([text_of(message.get("content")), *calls]).strip()


def _part_text(part: Any) -> str:  # noqa: ANN401 -- whatever a surface put there
    if isinstance(part, Mapping):
        known = cast("Mapping[str, Any]", part)
        text = known.get("text")
        return text if isinstance(text, str) else f"[{known.get('type') or 'attachment'}]"
    return str(part)


class Entry(NamedTuple):
    """A stored message, and what of it is to be different in the new session."""

    row: Row
    change: dict[str, Any] | None = None

    @property
    def message(self) -> Mapping[str, Any]:
        """The message as a model will see it."""
        if self.change is None:
            return self.row
        return {key: value for key, value in self.row.items() if key not in _OWN} | self.change

    @property
    def carried(self) -> Carried:
        """The message as the store takes it over."""
        return self.row["id"] if self.change is None else self.copied

    @property
    def copied(self) -> dict[str, Any]:
        """The message as a copy that names its original."""
        changed = self.changed().message
        said = {key: value for key, value in changed.items() if value is not None}
        return {**said, "origin_id": number(self.row)}

    def changed(self, **change: Any) -> "Entry":  # noqa: ANN401 -- keys of a message
        """The same message with other contents."""
        return Entry(self.row, {**(self.change or {}), **change})

    def plain(self) -> "Entry":
        """The same message without what providers put beside it."""
        return self.changed(**{key: None for key in self.message if key not in (*_PLAIN, *_OWN)})


class Block(NamedTuple):
    """What is kept together or not at all."""

    entries: tuple[Entry, ...]

    @property
    def first(self) -> Row:
        return self.entries[0].row

    @property
    def is_summary(self) -> bool:
        return self.first.get("kind") == "summary"

    @property
    def is_request(self) -> bool:
        """Whether a person says something here."""
        return self.first["role"] == "user" and not self.is_summary

    @property
    def is_step(self) -> bool:
        """Whether a model asks for tools here."""
        return bool(self.entries[0].message.get("tool_calls"))

    @property
    def is_answer(self) -> bool:
        """Whether a model says here what it has to say."""
        return self.first["role"] == "assistant" and not self.is_step


def entries(blocks: Iterable[Block]) -> list[Entry]:
    """The messages of some blocks."""
    return [entry for block in blocks for entry in block.entries]


def blocks(rows: Sequence[Row]) -> list[Block]:
    """The messages of a session in blocks, in order.

    What somebody said between a call and its result comes after the result: models take it no other way.
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
        step = _sendable(row, None if position == last_step else answered)
        if step is not None:
            found.append(Block((step, *(Entry(result) for result in answered.values()))))
    return found


def results(rows: Sequence[Row]) -> dict[int, dict[str, Row]]:
    """For each step, the result of each call. An id may come again; the nearest step before counts."""
    asked_by: dict[str, int] = {}
    found: dict[int, dict[str, Row]] = {}
    for position, row in enumerate(rows):
        if row["role"] == "assistant":
            for call in row.get("tool_calls") or ():
                asked_by[call_id(call)] = position
        elif row["role"] == "tool":
            asked = str(row.get("tool_call_id") or "")
            step = asked_by.pop(
                asked, None
            )  # popped: a second result of the same call is one too many
            if step is not None:
                found.setdefault(step, {})[asked] = row
    return found


def _sendable(row: Row, answered: Mapping[str, Row] | None) -> Entry | None:
    """A step with each call once, and only those that were answered when that is known."""
    calls = {call_id(call): call for call in reversed(row["tool_calls"])}
    kept = [call for id_, call in reversed(calls.items()) if answered is None or id_ in answered]
    if len(kept) == len(row["tool_calls"]):
        return Entry(row)
    if not kept and not text_of(row.get("content")).strip():
        return None
    return Entry(row).changed(tool_calls=kept or None)


def call_id(call: Mapping[str, Any]) -> str:
    """The name a model gave to a call."""
    return str(call.get("id") or "")
