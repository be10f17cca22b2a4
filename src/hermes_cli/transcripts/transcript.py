"""A conversation as its exports show it: messages, each with its tool calls and their results."""

import base64
import binascii
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import msgspec

from hermes_core import clock, pictures
from hermes_core.secrets import redact
from hermes_core.text import counted, human_size, one_line, visible, without_surrogates
from hermes_state.ledger import lineage, messages, partials, sessions, titles, usage
from hermes_state.store import Tx
from hermes_state.values import Row

_MAX_PICTURE_BYTES = 5_000_000


class Picture(NamedTuple):
    """A picture of a message."""

    media_type: str
    data: bytes


@dataclass
class Call:
    """A tool call and its result."""

    id: str
    name: str
    arguments: dict[str, Any]
    result: str = ""
    is_answered: bool = False

    def arguments_text(self) -> str:
        """Return the arguments as JSON."""
        return msgspec.json.encode(self.arguments).decode()

    def summary(self) -> str:
        """Return the arguments on one line: the value of the only one, else JSON."""
        values = list(self.arguments.values())
        only = values[0] if len(values) == 1 and isinstance(values[0], str) else None
        return one_line(only if only is not None else self.arguments_text())


@dataclass
class Entry:
    """A message."""

    role: str
    text: str
    at: float
    pictures: list[Picture] = field(default_factory=list[Picture])
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list[Call])
    is_partial: bool = False
    """Whether the reply was cut off."""
    is_copy: bool = False
    """Whether a branch began with it."""


class Transcript(NamedTuple):
    """A conversation in the order in which it happened."""

    session: Row
    title: str
    entries: list[Entry]
    usage: Row

    @property
    def facts(self) -> list[str]:
        """Return its length, surface, model and beginning in words, as far as they are known."""
        row = self.session
        facts = (
            counted(len(self.entries), "message"),
            row["source"],
            row["model"],
            f"started {clock.local(row['started_at'])}",
        )
        return [str(fact) for fact in facts if fact]


def load(tx: Tx, session_id: str) -> Transcript:
    """Read a conversation from its beginning, including what was compacted."""
    tip = lineage.tip(tx, session_id)
    session = sessions.fetch(tx, tip)
    rows = messages.originals(tx, tip) + partials.of_session(tx, tip)
    title = titles.title_of(tx, tip) or session["preview"] or "Untitled conversation"
    return Transcript(session, one_line(clean(title)), _entries(rows), usage.totals(tx, tip))


def clean(value: object) -> str:
    """Return text without secrets, control characters and invisible marks."""
    return redact(visible(without_surrogates(str(value)))).replace("\r", "")


def _cleaned(value: Any) -> Any:  # noqa: ANN401 -- whatever JSON is
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {clean(name): _cleaned(member) for name, member in items}
    return (
        [_cleaned(member) for member in cast("list[Any]", value)]
        if isinstance(value, list)
        else value
    )


def _entries(rows: list[Row]) -> list[Entry]:
    entries: list[Entry] = []
    waiting: dict[str, Call] = {}
    for row in rows:
        text, found = _content(row["content"])
        if row["role"] == "tool":
            call = waiting.pop(str(row.get("tool_call_id")), None)
            if call is None:
                call = Call("", clean(row.get("tool_name") or "tool"), {})
                entries.append(Entry("assistant", "", row["timestamp"], calls=[call]))
            call.result, call.is_answered = text, True
            entries[-1].pictures += found
            continue
        calls = [_call(value) for value in _as_list(row.get("tool_calls"))]
        waiting = {call.id: call for call in calls}
        entries.append(
            Entry(
                str(row["role"]),
                text,
                row["timestamp"],
                found,
                clean(row.get("reasoning") or ""),
                calls,
                row.get("kind") == "partial",
                row.get("kind") == "copy",
            )
        )
    return entries


def _as_list(value: Any) -> list[Any]:  # noqa: ANN401 -- an import may hold any JSON
    if value is None:
        return []
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _call(value: Any) -> Call:  # noqa: ANN401 -- as above
    fields = cast("Row", value) if isinstance(value, dict) else {}
    function: Any = fields.get("function", fields)
    named = cast("Row", function) if isinstance(function, dict) else {}
    arguments: Any = named.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, RecursionError):
            arguments = {"arguments": arguments}
    if not isinstance(arguments, dict):
        arguments = {"arguments": arguments}
    return Call(
        str(fields.get("id") or ""), clean(named.get("name") or "tool"), _cleaned(arguments)
    )


def _content(content: Any) -> tuple[str, list[Picture]]:  # noqa: ANN401 -- as above
    """Return the text and the pictures of a message."""
    texts: list[str] = []
    found: list[Picture] = []
    for part in _as_list(content):
        if not isinstance(part, dict):
            texts.append(clean(part))
            continue
        fields = cast("Row", part)
        if fields.get("text") is not None:
            texts.append(clean(fields["text"]))
        elif (address := _address(fields)) is not None:
            picture = _decoded(address)
            if picture is None:
                texts.append(f"[Picture that is not included: {clean(address[:200])}]")
            elif len(picture.data) > _MAX_PICTURE_BYTES:
                size = human_size(len(picture.data))
                texts.append(f"[Picture that is not included: {picture.media_type}, {size}]")
            else:
                found.append(picture)
        else:
            texts.append(f"[{clean(fields.get('type') or 'part')}]")
    return "\n".join(texts), found


def _address(part: Row) -> str | None:
    """Return the URL of a picture in either wire format, or None for another part."""
    source: Any = part.get("image_url", part.get("source"))
    if isinstance(source, dict):
        fields = cast("Row", source)
        if fields.get("data") is not None:
            return f"data:{fields.get('media_type')};base64,{fields['data']}"
        source = fields.get("url")
    return source if isinstance(source, str) else None


def _decoded(address: str) -> Picture | None:
    """Decode a data URL; None unless its bytes are a picture in a known format."""
    head, comma, data = address.partition(",")
    if not (comma and head.startswith("data:") and head.endswith(";base64")):
        return None
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    kind = pictures.kind_of(content)
    return Picture(kind, content) if kind else None
