"""The arguments of a tool call: reading what models write, mending what can be mended safely.

Valid JSON is never touched. Mended is what leaves no doubt: a code fence around it, a comma too many,
control characters in a text, Python's way of writing, brackets missing at the very end. A text that
breaks off is never completed: half a file would be written.
"""

import ast
import json
import re
from typing import Any, cast

import msgspec

from hermes_core.errors import ToolError

Arguments = dict[str, Any]

_FENCE = re.compile(r"\s*```(?:json)?\s*\n?(.*?)\n?\s*```\s*", re.DOTALL)
_CLOSERS = {"{": "}", "[": "]"}
_COMPLETE = frozenset('"}]')
"""What a text may end with for missing brackets to be the only thing that is missing."""
_MAX_CHARACTERS = 1_000_000
"""Beyond this many characters nothing is mended."""

_decode = msgspec.json.Decoder().decode


def parse(text: str, *, is_cut: bool = False) -> Arguments:
    """The arguments in a text; raises ToolError, which tells the model what is wrong with them.

    With `is_cut` the model ran out of tokens while it wrote them, so no bracket is added.
    """
    try:
        return _object(_decode(text))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        repaired = _repaired(text, is_cut=is_cut)
        if repaired is not None:
            return repaired
        raise ToolError(
            f"The arguments are not a JSON object: {error}.",
            fix="Write them again as one JSON object, all of it.",
        ) from error


def sendable(text: str) -> str:
    """Arguments to send back to a server, which may insist on an object even where a model failed."""
    try:
        if isinstance(_decode(text), dict):
            return text
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    return json.dumps(readable(text), ensure_ascii=False)


def readable(text: str) -> Arguments:
    """The arguments, or an object that carries what could not be read."""
    try:
        return parse(text)
    except ToolError:
        return {"unreadable": text}


def _object(value: object) -> Arguments:
    if isinstance(value, dict):
        return cast("Arguments", value)
    if value is None:  # how some models say "no arguments"
        return {}
    if isinstance(value, str):  # encoded twice
        inner = _decode(value)
        if isinstance(inner, dict):
            return cast("Arguments", inner)
    raise ValueError(f"it is a {type(value).__name__}")


def _repaired(text: str, *, is_cut: bool) -> Arguments | None:
    if not text.strip():
        return {}
    if len(text) > _MAX_CHARACTERS:
        return None
    if fenced := _FENCE.fullmatch(text):
        text = fenced[1]
    candidates = [text, _without_trailing_commas(text)]
    if not is_cut and (closed := _closed(candidates[1])) is not None:
        candidates.append(closed)
    for candidate in candidates:
        for read in (_lenient, _python):
            if (found := read(candidate)) is not None:
                return found
    return None


def _lenient(text: str) -> Arguments | None:
    """JSON that may hold line breaks and tabs in its texts."""
    try:
        value = json.loads(text, strict=False, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    return cast("Arguments", value) if isinstance(value, dict) else None


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _python(text: str) -> Arguments | None:
    try:
        value = ast.literal_eval(text.strip())
        encoded = json.dumps(value, allow_nan=False) if isinstance(value, dict) else "null"
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    # Tuples become lists and numbers as keys become texts, or it would not be what JSON can say.
    return cast("Arguments | None", json.loads(encoded))


def _without_trailing_commas(text: str) -> str:
    pieces: list[str] = []
    for piece, is_text in _pieces(text):
        pieces.append(piece if is_text else re.sub(r",(\s*[}\]])", r"\1", piece))
    return "".join(pieces)


def _closed(text: str) -> str | None:
    """The text with the brackets that are missing at its end; None when more than that is missing."""
    text = text.rstrip()
    open_brackets: list[str] = []
    for piece, is_text in _pieces(text):
        if is_text:
            if len(piece) < 2 or not piece.endswith('"'):
                return None  # the last text breaks off
            continue
        for character in piece:
            if character in _CLOSERS:
                open_brackets.append(_CLOSERS[character])
            elif character in "}]" and (not open_brackets or open_brackets.pop() != character):
                return None
    if not open_brackets or text[-1] not in _COMPLETE:
        return None
    return text + "".join(reversed(open_brackets))


_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"?|[^"]+', re.DOTALL)


def _pieces(text: str) -> list[tuple[str, bool]]:
    """The text as quoted pieces and what is between them."""
    return [(piece, piece.startswith('"')) for piece in _PIECE.findall(text)]
