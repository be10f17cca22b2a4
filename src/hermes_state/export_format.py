"""The lines of an export: the kinds there are, and what a line of each may say.

A line comes from outside and is nothing but data. Its keys are compared with the columns of the store
before they get near any SQL, and its values with the types of those columns.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, cast

from hermes_core.errors import UsageError
from hermes_state.ledger import sessions
from hermes_state.ledger.records import decode
from hermes_state.store import Tx
from hermes_state.values import Row

FORMAT = "hermes-export"
VERSION = 1

TABLES = {
    "session": "sessions",
    "message": "messages",
    "turn": "turns",
    "effect": "effects",
    "usage": "usage",
    "partial": "partials",
}
"""The kinds of lines in the order in which a conversation has them, and where each belongs."""

NUMBERED_HERE = {"effect": "id", "usage": "id"}
"""Columns that only count rows of one store; no line has them."""

STEERING = ("cwd", "system_prompt")
"""Columns of a session that no line has, and that an import drops: a crafted file must not set them."""

_BELONGS_TO = {
    "message": ("session_id", "session"),
    "turn": ("session_id", "session"),
    "usage": ("session_id", "session"),
    "effect": ("turn_id", "turn"),
    "partial": ("turn_id", "turn"),
}
_JSON: Mapping[tuple[str, str], type] = {
    ("session", "extra"): dict,
    ("message", "parts"): object,
    ("message", "tool_calls"): object,
    ("message", "extra"): dict,
}
_INFINITE = {"inf": math.inf, "-inf": -math.inf}
"""Numbers that a store can hold and JSON cannot."""
_LARGEST = 2**63 - 1
LARGEST_AMOUNT = 2**53
"""Of what is added up: two of the largest numbers would be more than SQLite can count."""


class Line(NamedTuple):
    """A line whose keys are columns, and whose values fit into them."""

    number: int
    kind: str
    row: Row


class Column(NamedTuple):
    """What a table says of one of its columns."""

    type: str
    is_needed: bool


Shape = Mapping[str, Mapping[str, Column]]
"""The columns of each kind of line."""


def refusal(number: int, why: str) -> UsageError:
    """The error that stops an import at a line."""
    return UsageError(
        f"Line {number}: {why}.",
        fix="Of this conversation nothing was taken; those before it were. Make the export anew, or"
        " correct the line, and import again: what is here already is left alone.",
    )


def shape(tx: Tx) -> Shape:
    """The columns that lines may have, as this store has them."""
    found: dict[str, dict[str, Column]] = {}
    for kind, table in TABLES.items():
        info = tx.tuples(f"PRAGMA table_info({table})")
        found[kind] = {
            name: Column(type_, bool(not_null or key) and default is None)
            for _, name, type_, not_null, default, key in info
            if name != NUMBERED_HERE.get(kind)
        }
    return found


def _without_steering(kind: str, row: Row) -> Row:
    """Drop what would decide where the agent works and what it is told on the machine that imports."""
    if kind != "session":
        return row
    kept = {name: value for name, value in row.items() if name not in STEERING}
    if (config := kept.get("model_config")) is not None:
        kept["model_config"] = sessions.without_instructions(config)
    return kept


def written(kind: str, row: Row) -> Row:
    """A row as a line: what is not there is left out, and what JSON has no number for is a word."""
    line: Row = {"type": kind}
    for name, value in _without_steering(kind, row).items():
        if isinstance(value, float) and math.isinf(value):
            line[name] = "inf" if value > 0 else "-inf"
        elif value is not None:
            line[name] = value
    return line


def conversations(lines: Iterable[object], columns: Shape) -> Iterator[list[Line]]:
    """The checked lines of one conversation at a time; raises UsageError at one that is not right."""
    group: list[Line] = []
    known: set[tuple[str, str]] = set()
    current: str | None = None
    number = 0
    for number, line in enumerate(lines, 1):
        if number == 1:
            _check_header(line)
            continue
        one = _checked(number, line, columns)
        if one.kind == "session" and one.row["conversation_id"] != current:
            if group:
                yield group
            group, known, current = [], set(), one.row["conversation_id"]
        _check_place(one, known)
        group.append(one)
    if not number:
        raise _no_export("There is nothing in it")
    if group:
        yield group


def _check_header(line: object) -> None:
    said = cast("Row", line) if isinstance(line, dict) else {}
    version = said.get("version")
    if said.get("type") != FORMAT or type(version) is not int or version < 1:
        raise _no_export("Its first line does not say so")
    if version > VERSION:
        raise UsageError("The export was made by a newer Hermes.", fix="Upgrade Hermes.")


def _no_export(why: str) -> UsageError:
    return UsageError(
        f"This is not an export of Hermes. {why}.", fix="Make one with: hermes sessions export"
    )


def _check_place(line: Line, known: set[tuple[str, str]]) -> None:
    """Every line belongs to one before it in its own conversation, never to what is here already."""
    if line.kind in ("session", "turn"):
        known.add((line.kind, line.row["id"]))
    if line.kind == "session":
        return
    column, owner = _BELONGS_TO[line.kind]
    if (owner, line.row[column]) not in known:
        raise refusal(
            line.number, f"this {line.kind} belongs to no {owner} of the conversation it stands in"
        )


def _checked(number: int, line: object, columns: Shape) -> Line:
    said = cast("Row", line) if isinstance(line, dict) else {}
    kind = said.get("type")
    if not isinstance(kind, str) or kind not in columns:
        raise refusal(number, f"{_short(kind)} is no kind of line that an export has")
    row: Row = {}
    for name, value in said.items():
        if name == "type" or value is None:
            continue
        column = columns[kind].get(name)
        if column is None:
            raise refusal(number, f"a {kind} cannot have {_short(name)}")
        row[name] = _fitted(number, kind, name, column.type, value)
    for name, column in columns[kind].items():
        if column.is_needed and name not in row:
            raise refusal(number, f"the {name} of this {kind} is missing")
    return Line(number, kind, _without_steering(kind, row))


def _fitted(number: int, kind: str, name: str, type_: str, value: object) -> object:
    """The value as its column takes it."""
    if type_ == "REAL" and isinstance(value, str):
        value = _INFINITE.get(value, value)
    if type_ == "TEXT" and isinstance(value, str):
        _check_json(number, kind, name, value)
        return value
    is_summed = kind != "message" and name.endswith(("_tokens", "_count"))
    most = LARGEST_AMOUNT if is_summed else _LARGEST
    if type_ == "INTEGER" and isinstance(value, int) and -most - 1 <= value <= most:
        return int(value)
    if type_ == "REAL" and isinstance(value, int | float) and abs(value) <= math.inf:
        try:
            return float(value)
        except OverflowError:
            pass
    raise refusal(number, f"the {name} of a {kind} cannot be {_short(value)}")


def _check_json(number: int, kind: str, name: str, value: str) -> None:
    wanted = _JSON.get((kind, name))
    if wanted is None:
        return
    try:
        is_right = isinstance(decode(value), wanted)
    except (ValueError, RecursionError):
        is_right = False
    if not is_right:
        raise refusal(number, f"the {name} of a {kind} is JSON, and this is not: {_short(value)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
