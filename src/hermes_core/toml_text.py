"""Editor of TOML text: sets or removes one value and leaves every other line unchanged.

A file is a list of statements: a header, a key with its value, or a blank or comment line. An edit
changes one statement, so the order of tables does not matter. ADR 18 says why tomlkit is not enough.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

import tomlkit

Keys = tuple[str, ...]
Table = dict[str, Any]

REMOVED = object()
"""The value of a key to remove."""
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class _Statement(NamedTuple):
    """Lines of the file, and the path of the key they set; empty for blank and comment lines."""

    text: str
    path: Keys = ()
    table: Keys = ()
    """The table of the header above."""
    is_header: bool = False

    def holds(self, path: Keys) -> bool:
        """Return whether this statement sets a value: directly, or inside braces."""
        return bool(self.path) and not self.is_header and path[: len(self.path)] == self.path

    def is_in(self, table: Keys) -> bool:
        """Return whether a key of the table can follow this statement."""
        if self.is_header:
            return self.path == table
        return bool(self.path) and table == self.path[: max(len(table), len(self.table))]


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[Keys, object]]:
    """Return the edits that turn one table into the other."""
    found: list[tuple[Keys, object]] = [((key,), REMOVED) for key in old if key not in new]
    for key, value in new.items():
        before = old.get(key, REMOVED)
        if _is_table(value) and (_is_table(before) or (before is REMOVED and value)):
            inside = differences({} if before is REMOVED else before, value)
            found += [((key, *path), setting) for path, setting in inside]
        elif repr(before) != repr(value):  # 1 == 1.0 == True, but they differ in TOML
            found.append(((key,), value))
    return found


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def apply(text: str, edits: Iterable[tuple[Keys, object]]) -> str:
    """Apply edits to a text. The caller checks that the result parses to the wanted values."""
    for path, value in edits:
        statements = _statements(text)
        edited = _without(statements, path) if value is REMOVED else _with(statements, path, value)
        text = "".join(statement.text for statement in edited)
    return text


def _statements(text: str) -> list[_Statement]:
    found: list[_Statement] = []
    table: Keys = ()
    held = ""
    for line in text.removesuffix("\n").split("\n") if text else []:
        held += f"{line}\n"
        parsed = _parsed(held)
        if parsed is None:
            continue  # the value continues on the next line
        if held.lstrip().startswith("["):
            table = _path(parsed)
            found.append(_Statement(held, table, table, is_header=True))
        else:
            found.append(_Statement(held, (*table, *_keys(held)) if parsed else (), table))
        held = ""
    return found


def _parsed(text: str) -> Table | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _keys(text: str) -> Keys:
    """Return the keys before the equals sign; one inside a quoted key does not count."""
    for match in re.finditer("=", text):
        if document := _parsed(f"{text[: match.start()]}= 0"):
            return _path(document)
    raise AssertionError("A key with a value has an equals sign.")


def _path(parsed: Table) -> Keys:
    """Return the keys of a header, or of a key with a plain value."""
    path: Keys = ()
    inside: Any = parsed
    while isinstance(inside, dict) and inside:
        ((key, inside),) = cast("Table", inside).items()
        path += (key,)
    return path


def _without(statements: list[_Statement], path: Keys) -> list[_Statement]:
    """Remove a value, or a table with its content; comments stay."""
    remaining = [statement for statement in statements if statement.path[: len(path)] != path]
    return [
        statement._replace(text=_edited(statement, path, REMOVED))
        if statement.holds(path)
        else statement
        for statement in remaining
    ]


def _with(statements: list[_Statement], path: Keys, value: object) -> list[_Statement]:
    """Set a value: in place, else in its table, else in a new table at the end."""
    for place, statement in enumerate(statements):
        if statement.holds(path):
            edited = statement._replace(text=_edited(statement, path, value))
            return [*statements[:place], edited, *statements[place + 1 :]]
    if value == {}:
        return [*statements, _header(path, statements)]
    places = [place for place, statement in enumerate(statements, 1) if statement.is_in(path[:-1])]
    if not places:
        return [*statements, _header(path[:-1], statements), _line(path[-1:], value)]
    above, below = statements[: places[-1]], statements[places[-1] :]
    return [*above, _line(path[len(above[-1].table) :], value), *below]


def _edited(statement: _Statement, path: Keys, value: object) -> str:
    """Return the statement with a new value for one key, which may be inside braces."""
    document = tomlkit.parse(statement.text)
    *parents, last = path[len(statement.table) :]
    inside = cast("Table", document)
    for key in parents:
        inside = inside.setdefault(key, tomlkit.inline_table())
    if value is REMOVED:
        inside.pop(last, None)
    else:
        _set(inside, last, value)
    return tomlkit.dumps(document)


def _set(table: Table, key: str, value: object) -> None:
    """Assign a value; a list is edited item by item, which keeps comments between items."""
    present = table.get(key)
    if isinstance(present, list) and isinstance(value, list):
        members, values = cast("list[object]", present), cast("list[object]", value)
        for removed in [member for member in members if member not in values]:
            members.remove(removed)
        members.extend(member for member in values if member not in members)
        if members == values:
            return
    table[key] = value


def _header(path: Keys, above: list[_Statement]) -> _Statement:
    gap = "\n" if above else ""
    return _Statement(f"{gap}[{'.'.join(map(_key, path))}]\n")


def _line(keys: Keys, value: object) -> _Statement:
    return _Statement(f"{'.'.join(map(_key, keys))} = {tomlkit.item(value).as_string()}\n")


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else tomlkit.item(name).as_string()
