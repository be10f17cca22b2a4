"""A step of a small model: the one JSON object it may write, and reading it while it is written."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from hermes_agent.models.base import ToolSpec
from hermes_agent.turn.events import Event, FellBack, Retrying, Sink, TextDelta, ToolCallBegun
from hermes_core.text import without_surrogates

REPLY = "reply"
"""The step that answers the user and ends the turn."""

_LONG, _SHORT, _REPLY_LENGTH = 2000, 300, 1500
_LONG_NAMES = frozenset({"content", "text", "code", "command", "old", "new"})
_MAX_ITEMS = 8
_COPIED_KEYS = ("type", "enum", "const", "minimum", "maximum", "minLength")


class Step(NamedTuple):
    """The next step of the model."""

    name: str
    arguments: dict[str, Any]


# -- what may be written ----------------------------------------------------------------------------


def schema(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """The shape of a step: one of these tools, or a reply. Without tools, a reply alone."""
    text = {"type": "string", "minLength": 1, "maxLength": _REPLY_LENGTH}
    reply = _choice(REPLY, {"properties": {"text": text}, "required": ["text"]})
    choices = [_choice(tool.name, tool.parameters) for tool in tools]
    return {"anyOf": [*choices, reply]} if choices else reply


def _choice(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    arguments = _bounded("arguments", {**parameters, "type": "object"})
    return {
        "type": "object",
        "properties": {"name": {"type": "string", "const": name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _bounded(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema without words and with an end: a small model runs on inside a text that has none."""
    found: dict[str, Any] = {key: schema[key] for key in _COPIED_KEYS if key in schema}
    kind = found["type"] = _kind(found.get("type", "string"))
    if "enum" in found:
        return found
    if kind == "object":
        properties: Mapping[str, Any] = schema.get("properties") or {}
        found["properties"] = {key: _bounded(key, value) for key, value in properties.items()}
        found["required"] = [key for key in schema.get("required", ()) if key in properties]
        found["additionalProperties"] = False
    elif kind == "array":
        found["items"] = _bounded(name, schema.get("items") or {})
        found["maxItems"] = min(schema.get("maxItems", _MAX_ITEMS), _MAX_ITEMS)
    elif kind == "string":
        words = set(name.split("_"))
        usual = _LONG if words & _LONG_NAMES else _SHORT
        found["maxLength"] = min(schema.get("maxLength", usual), usual)
    return found


def _kind(kind: str | Sequence[str]) -> str:
    """The type that a schema names, the first where it names several."""
    return kind if isinstance(kind, str) else kind[0]


# -- what was written -------------------------------------------------------------------------------

_FENCED = re.compile(r"```(?:json)?\s*(\{.*?\})\s*```", re.DOTALL)


def read(text: str) -> Step | None:
    """Read a written step, from a server that enforces the schema or one that does not.

    None when it breaks off; a text that is not a step at all is a reply.
    """
    candidate = text.strip()
    if fenced := _FENCED.search(candidate):
        candidate = fenced[1]
    try:
        value = json.loads(candidate, strict=False)
    except json.JSONDecodeError:
        return None if candidate.startswith("{") else Step(REPLY, {"text": candidate})
    found = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    name, arguments = found.get("name"), found.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return Step(REPLY, {"text": candidate})
    return Step(name, cast("dict[str, Any]", arguments))


_NAME = re.compile(r'\s*\{\s*"name"\s*:\s*"([^"]*)"')
_TEXT = re.compile(r'\s*\{\s*"name"\s*:\s*"reply"\s*,\s*"arguments"\s*:\s*\{\s*"text"\s*:\s*"')
_PIECE = re.compile(r'[^"\\]+|\\u[0-9a-fA-F]{4}|\\[^u]')


class Listener:
    """Follows a step while it is written: passes the reply's text on, and says which tool it will be."""

    def __init__(self, report: Sink, *, is_patient: bool = False) -> None:
        """A patient one keeps the text until it is asked for."""
        self._report = report
        self._is_patient = is_patient
        self._begin()

    def _begin(self) -> None:
        self._written = ""
        self._at = 0
        """Where the next piece of the reply's text begins; 0 before it has begun."""
        self._is_named = False
        self._half = ""
        """The first half of a character that JSON writes as two."""
        self.text = ""
        """What was written of the reply's text."""

    def receive(self, event: Event) -> None:
        if isinstance(event, Retrying | FellBack):
            self._begin()
        if not isinstance(event, TextDelta):
            self._report(event)
            return
        self._written += event.text
        self._look_for_name()
        if not self._at and (match := _TEXT.match(self._written)):
            self._at = match.end()
        if self._at:
            self._take_pieces()

    def tell_rest(self, text: str) -> None:
        """Report what was not passed on yet of the text that the reply came to."""
        if rest := text if self._is_patient else text.removeprefix(self.text):
            self._report(TextDelta(rest))

    def _look_for_name(self) -> None:
        if self._is_named or not (named := _NAME.match(self._written)):
            return
        self._is_named = True
        if named[1] != REPLY:
            self._report(ToolCallBegun(named[1]))

    def _take_pieces(self) -> None:
        pieces: list[str] = []
        while piece := _PIECE.match(self._written, self._at):
            self._at = piece.end()
            pieces.append(self._decoded(piece[0]))
        if text := without_surrogates("".join(pieces)):
            self.text += text
            if not self._is_patient:
                self._report(TextDelta(text))

    def _decoded(self, piece: str) -> str:
        if not piece.startswith("\\"):
            return piece
        character = str(json.loads(f'"{self._half}{piece}"', strict=False))
        if len(piece) == len("\\u0000") and "\ud800" <= character <= "\udbff":
            self._half = piece
            return ""
        self._half = ""
        return character
