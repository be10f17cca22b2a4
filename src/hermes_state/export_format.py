"""Define and validate the lines of an export.

Lines are untrusted data: their keys are checked against the columns of the store before they are used in
SQL, and their values against the types of these columns.
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
"""The table of each kind of line, in the order of a conversation."""

NUMBERED_HERE = {"effect": "id", "usage": "id"}
"""Local row ids, which are not exported."""

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
"""Numbers that SQLite can store and JSON cannot."""
_LARGEST = 2**63 - 1
LARGEST_AMOUNT = 2**53
"""The maximum of numbers that are summed, so that sums do not overflow in SQLite."""


class Line(NamedTuple):
    """A validated line."""

    number: int
    kind: str
    row: Row


class Column(NamedTuple):
    """The definition of a column."""

    type: str
    is_needed: bool


Shape = Mapping[str, Mapping[str, Column]]
"""The columns of each kind of line."""


def refusal(number: int, why: str) -> UsageError:
    """Return the error that stops an import at a line."""
    return UsageError(
        f"Line {number}: {why}.",
        fix="The conversations before this one were imported. Export again or correct the line, then"
        " import again; conversations that exist already are skipped.",
    )


def shape(tx: Tx) -> Shape:
    """Return the columns of each kind of line in this store."""
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
    checked_row = {name: value for name, value in row.items() if name not in STEERING}
    if (config := checked_row.get("model_config")) is not None:
        checked_row["model_config"] = sessions.without_instructions(config)
    return checked_row


def written(kind: str, row: Row) -> Row:
    """Convert a row to a line: omit NULL and write infinite numbers as text."""
    line: Row = {"type": kind}
    for name, value in _without_steering(kind, row).items():
        if isinstance(value, float) and math.isinf(value):
            line[name] = "inf" if value > 0 else "-inf"
        elif value is not None:
            line[name] = value
    return line


def conversations(lines: Iterable[object], columns: Shape) -> Iterator[list[Line]]:
    """Yield the validated lines per conversation; raise UsageError at an invalid one."""
    group: list[Line] = []
    owners: set[tuple[str, str]] = set()
    current: str | None = None
    number = 0
    for number, line in enumerate(lines, 1):
        if number == 1:
            _check_header(line)
            continue
        checked = _checked(number, line, columns)
        if checked.kind == "session" and checked.row["conversation_id"] != current:
            if group:
                yield group
            group, owners, current = [], set(), checked.row["conversation_id"]
        _check_place(checked, owners)
        group.append(checked)
    if not number:
        raise _no_export("It is empty")
    if group:
        yield group


def _check_header(line: object) -> None:
    data = cast("Row", line) if isinstance(line, dict) else {}
    version = data.get("version")
    if data.get("type") != FORMAT or type(version) is not int or version < 1:
        raise _no_export("Its first line is not the header of an export")
    if version > VERSION:
        raise UsageError("The export was made by a newer Hermes.", fix="Upgrade Hermes.")


def _no_export(why: str) -> UsageError:
    return UsageError(
        f"This is not an export of Hermes. {why}.", fix="Make one with: hermes sessions export"
    )


def _check_place(line: Line, owners: set[tuple[str, str]]) -> None:
    """Raise UsageError unless a line refers to an earlier one of its conversation."""
    if line.kind in ("session", "turn"):
        owners.add((line.kind, line.row["id"]))
    if line.kind == "session":
        return
    column, owner = _BELONGS_TO[line.kind]
    if (owner, line.row[column]) not in owners:
        raise refusal(
            line.number, f"this {line.kind} does not belong to a {owner} of its conversation"
        )


def _checked(number: int, line: object, columns: Shape) -> Line:
    data = cast("Row", line) if isinstance(line, dict) else {}
    kind = data.get("type")
    if not isinstance(kind, str) or kind not in columns:
        raise refusal(number, f"{_short(kind)} is not a kind of line of an export")
    row: Row = {}
    for name, value in data.items():
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
    """Return a value converted to the type of its column."""
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
    expected_type = _JSON.get((kind, name))
    if expected_type is None:
        return
    try:
        is_right = isinstance(decode(value), expected_type)
    except (ValueError, RecursionError):
        is_right = False
    if not is_right:
        raise refusal(number, f"the {name} of a {kind} is JSON, and this is not: {_short(value)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
