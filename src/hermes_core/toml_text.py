"""TOML as people wrote it: one value is set or taken out, and every other line stays as it is.

A file is a row of statements: a header, a key with its value, or a line that says nothing. A change is
made to the statement that it is about, so it does not matter in which order the tables are.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

import tomlkit

Keys = tuple[str, ...]
Table = dict[str, Any]

GONE = object()
"""The value of a key that is taken out."""
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class _Statement(NamedTuple):
    """Some lines, and the keys that they are about; lines that say nothing are about none."""

    text: str
    path: Keys = ()
    table: Keys = ()
    """The table of the header above."""
    is_header: bool = False

    def holds(self, path: Keys) -> bool:
        """Return whether a value is set here: as the whole, or inside braces."""
        return bool(self.path) and not self.is_header and path[: len(self.path)] == self.path

    def is_in(self, table: Keys) -> bool:
        """Return whether a key of the table can follow: after its header or another of its keys."""
        if self.is_header:
            return self.path == table
        return bool(self.path) and table == self.path[: max(len(table), len(self.table))]


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[Keys, object]]:
    """Return what to set and to take out to come from one table to the other."""
    found: list[tuple[Keys, object]] = [((key,), GONE) for key in old if key not in new]
    for key, value in new.items():
        before = old.get(key, GONE)
        if _is_table(value) and (_is_table(before) or (before is GONE and value)):
            inside = differences({} if before is GONE else before, value)
            found += [((key, *path), setting) for path, setting in inside]
        elif repr(before) != repr(value):  # 1, 1.0 and true are equal, and not the same
            found.append(((key,), value))
    return found


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def changed(text: str, edits: Iterable[tuple[Keys, object]]) -> str:
    """The text with these values; whether it says what was wanted is for the caller to check."""
    for path, value in edits:
        statements = _statements(text)
        edited = _without(statements, path) if value is GONE else _with(statements, path, value)
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
            continue  # a value that goes on in the next line
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
    """The keys before the equals sign: the first one that is not inside a quoted key."""
    for match in re.finditer("=", text):
        if document := _parsed(f"{text[: match.start()]}= 0"):
            return _path(document)
    raise AssertionError("A key with a value has an equals sign.")


def _path(parsed: Table) -> Keys:
    """The keys of a header, or of a key whose value is no table."""
    path: Keys = ()
    inside: Any = parsed
    while isinstance(inside, dict) and inside:
        ((key, inside),) = cast("Table", inside).items()
        path += (key,)
    return path


def _without(statements: list[_Statement], path: Keys) -> list[_Statement]:
    """Take out a value, or a table with all that is in it; comments stay."""
    remaining = [statement for statement in statements if statement.path[: len(path)] != path]
    return [
        statement._replace(text=_edited(statement, path, GONE))
        if statement.holds(path)
        else statement
        for statement in remaining
    ]


def _with(statements: list[_Statement], path: Keys, value: object) -> list[_Statement]:
    """Set a value: where it is, else in its table, else in a new one at the end."""
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
    """The text of one key with another value, or with another one inside its braces."""
    document = tomlkit.parse(statement.text)
    *parents, last = path[len(statement.table) :]
    inside = cast("Table", document)
    for key in parents:
        inside = inside.setdefault(key, tomlkit.inline_table())
    if value is GONE:
        inside.pop(last, None)
    else:
        _set(inside, last, value)
    return tomlkit.dumps(document)


def _set(table: Table, key: str, value: object) -> None:
    """Assign a value; a list is changed member by member, so that comments between them stay."""
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
