"""Import the routes of hermes-agent from its database and from sessions.json."""

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

_BATCH = 500

IMPORTED = "taken"
UNCHANGED = "kept"
LOST = "its session was not imported"
OLDER = "the same chat has a newer entry"
UNREADABLE = "the entry cannot be read"


Fates = defaultdict[str, list[str]]
"""The session keys by outcome."""


class Entry(NamedTuple):
    """A route of hermes-agent."""

    session_key: str
    session_id: str
    data: Row
    updated_at: float


def take(database: Transactional, stored: Iterable[Row], file: Path | None) -> Fates:
    """Import routes and return their outcomes; the database takes precedence over the file."""
    fates: Fates = defaultdict(list)
    entries: dict[str, Entry] = {}
    for row in stored:
        entry = _entry(row["session_key"], fields(row["entry_json"]), number(row["updated_at"]))
        _sort_in(row["session_key"], entry, entries, fates)
    in_database = set(entries)
    for key, data in _in_file(file, fates):
        if key not in in_database:
            _sort_in(key, _entry(key, data, None), entries, fates)
    pending = list(entries.values())
    for start in range(0, len(pending), _BATCH):
        batch = pending[start : start + _BATCH]
        found = database.write(_import_all, batch)
        for item, fate in zip(batch, found, strict=True):
            fates[fate].append(item.session_key)
    return fates


def _in_file(file: Path | None, fates: Fates) -> list[tuple[str, Any]]:
    if file is None:
        return []
    with reading(file):
        index = fields(file.read_bytes())
    if index is None:
        fates[UNREADABLE].append(file.name)
        return []
    return [(key, data) for key, data in index.items() if not key.startswith("_")]


def _entry(key: object, data: object, updated_at: float | None) -> Entry | None:
    if not isinstance(key, str) or not isinstance(data, dict):
        return None
    entry = cast("Row", data)
    session_id = entry.get("session_id")
    if not isinstance(session_id, str):
        return None
    if updated_at is None:
        updated_at = _seconds(entry.get("updated_at"))
    return Entry(key, session_id, entry, updated_at)


def _seconds(written: object) -> float:
    """Parse a time of the file: ISO 8601 in local time."""
    try:
        return datetime.fromisoformat(text(written) or "").timestamp()
    except ValueError:
        return 0.0


def _sort_in(key: object, entry: Entry | None, entries: dict[str, Entry], fates: Fates) -> None:
    """Keep the newest entry per chat; hermes-agent has one per folder in which it ran."""
    if entry is None:
        fates[UNREADABLE].append(str(key))
    elif (other := entries.get(entry.session_key)) is None:
        entries[entry.session_key] = entry
    else:
        entries[entry.session_key] = max(entry, other, key=lambda item: item.updated_at)
        fates[OLDER].append(entry.session_key)


def _import_all(tx: Tx, entries: list[Entry]) -> list[str]:
    return [_import_one(tx, entry) for entry in entries]


def _import_one(tx: Tx, entry: Entry) -> str:
    if not sessions.exists(tx, entry.session_id):
        return LOST
    tip = lineage.tip(tx, entry.session_id)
    present = routes.find(tx, entry.session_key)
    if present is not None and not _is_outdated(tx, present, tip, entry):
        return UNCHANGED
    is_over = entry.data.get("expiry_finalized") is True
    route = Route(entry.session_key, encode({**entry.data, "session_id": tip}), expired=is_over)
    routes.save(tx, route, tip)
    return IMPORTED


def _is_outdated(tx: Tx, present: Row, tip: str, entry: Entry) -> bool:
    """Return whether an existing route may be replaced: its conversation was not used here."""
    target = present["session_id"]
    if target == tip:
        return False
    if lineage.tip(tx, target) == tip:  # compacted in hermes-agent since
        return True
    return entry.updated_at > present["updated_at"] and mark.is_untouched(tx, target)
