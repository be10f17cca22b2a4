"""The gateway's index of hermes-agent, from its database and from sessions.json, made into routes."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, cast

from hermes_state.foreign import mark
from hermes_state.foreign.rows import fields, number, text
from hermes_state.foreign.source import reading
from hermes_state.ledger import lineage, routes, sessions
from hermes_state.ledger.records import encode
from hermes_state.store import Transactional, Tx
from hermes_state.values import Route, Row

_SLICE = 500

TAKEN = "taken"
KEPT = "kept"
LOST = "its session is not here"
OLDER = "the same chat has a newer entry"
UNREADABLE = "the entry cannot be read"


Fates = defaultdict[str, list[str]]
"""The chats, by their keys, that had each fate."""


class Entry(NamedTuple):
    """Where hermes-agent says that a chat's conversation is."""

    session_key: str
    session_id: str
    said: Row
    updated_at: float


def take(database: Transactional, stored: Iterable[Row], file: Path | None) -> Fates:
    """Take the routes in; says which had which fate. The database's word counts before the file's."""
    fates: Fates = defaultdict(list)
    entries: dict[str, Entry] = {}
    for row in stored:
        entry = _entry(row["session_key"], fields(row["entry_json"]), number(row["updated_at"]))
        _sort_in(row["session_key"], entry, entries, fates)
    known = set(entries)
    for key, said in _in_file(file, fates):
        if key not in known:
            _sort_in(key, _entry(key, said, None), entries, fates)
    waiting = list(entries.values())
    for start in range(0, len(waiting), _SLICE):
        portion = waiting[start : start + _SLICE]
        found = database.write(_take_all, portion)
        for one, fate in zip(portion, found, strict=True):
            fates[fate].append(one.session_key)
    return fates


def _in_file(file: Path | None, fates: Fates) -> list[tuple[str, Any]]:
    if file is None:
        return []
    with reading(file):
        index = fields(file.read_bytes())
    if index is None:
        fates[UNREADABLE].append(file.name)
        return []
    return [(key, said) for key, said in index.items() if not key.startswith("_")]


def _entry(key: object, said: object, updated_at: float | None) -> Entry | None:
    if not isinstance(key, str) or not isinstance(said, dict):
        return None
    entry = cast("Row", said)
    session_id = entry.get("session_id")
    if not isinstance(session_id, str):
        return None
    if updated_at is None:
        updated_at = _seconds(entry.get("updated_at"))
    return Entry(key, session_id, entry, updated_at)


def _seconds(written: object) -> float:
    """A point in time as the file has it: ISO 8601, in local time."""
    try:
        return datetime.fromisoformat(text(written) or "").timestamp()
    except ValueError:
        return 0.0


def _sort_in(key: object, entry: Entry | None, entries: dict[str, Entry], fates: Fates) -> None:
    """Keep the newest entry of each chat; hermes-agent has one for each folder it ran from."""
    if entry is None:
        fates[UNREADABLE].append(str(key))
    elif (other := entries.get(entry.session_key)) is None:
        entries[entry.session_key] = entry
    else:
        entries[entry.session_key] = max(entry, other, key=lambda one: one.updated_at)
        fates[OLDER].append(entry.session_key)


def _take_all(tx: Tx, entries: list[Entry]) -> list[str]:
    return [_take_one(tx, entry) for entry in entries]


def _take_one(tx: Tx, entry: Entry) -> str:
    if not sessions.exists(tx, entry.session_id):
        return LOST
    tip = lineage.tip(tx, entry.session_id)
    present = routes.find(tx, entry.session_key)
    if present is not None and not _is_outdated(tx, present, tip, entry):
        return KEPT
    is_over = entry.said.get("expiry_finalized") is True
    route = Route(entry.session_key, encode({**entry.said, "session_id": tip}), expired=is_over)
    routes.save(tx, route, tip)
    return TAKEN


def _is_outdated(tx: Tx, present: Row, tip: str, entry: Entry) -> bool:
    """A route that is here gives way only when nobody has used here what it leads to."""
    target = present["session_id"]
    if target == tip:
        return False
    if lineage.tip(tx, target) == tip:  # compacted over there since
        return True
    return entry.updated_at > present["updated_at"] and mark.is_untouched(tx, target)
