"""Export and import as JSON Lines: conversations as they are, every row that belongs to them.

The first line says what the file is. Then, conversation by conversation, parents before branches:
sessions, messages, turns, effects, usage. Message ids are numbered anew in the file, so an export of
an import is the same file.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import apsw

from hermes_core.errors import StoreError, UsageError
from hermes_state import sessions, titles
from hermes_state.database import Database
from hermes_state.records import Row, encode, rows

FORMAT = "hermes-export"
VERSION = 1

_TABLES = ("session", "message", "turn", "effect", "usage")
_QUERIES = {
    "session": "SELECT * FROM sessions WHERE conversation_id = ?1 ORDER BY depth, started_at, id",
    "message": "SELECT messages.* FROM messages JOIN sessions ON sessions.id = messages.session_id"
    " WHERE conversation_id = ?1 ORDER BY messages.id",
    "turn": "SELECT turns.* FROM turns JOIN sessions ON sessions.id = turns.session_id"
    " WHERE conversation_id = ?1 ORDER BY turns.accepted_at, turns.id",
    "effect": "SELECT effects.* FROM effects JOIN turns ON turns.id = effects.turn_id"
    " JOIN sessions ON sessions.id = turns.session_id WHERE conversation_id = ?1 ORDER BY effects.id",
    "usage": "SELECT usage.* FROM usage JOIN sessions ON sessions.id = usage.session_id"
    " WHERE conversation_id = ?1 ORDER BY usage.id",
}
_MESSAGE_REFERENCES = {
    "message": ("id", "origin_id", "answers"),
    "turn": ("user_message_id", "final_message_id"),
    "effect": ("step_message_id", "result_message_id"),
}
_OWN_NUMBERS = {"effect": "id", "usage": "id"}
_TABLE_NAMES = {
    "session": "sessions",
    "message": "messages",
    "turn": "turns",
    "effect": "effects",
    "usage": "usage",
}
_DERIVED = (
    "message_count",
    "tool_call_count",
    "preview",
    "api_call_count",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cost_usd",
)


class Report(NamedTuple):
    """What an import took and what it left."""

    imported: list[str]
    skipped: list[str]
    detached: list[str]
    retitled: dict[str, str]
    messages: int


def export_lines(database: Database, session_ids: Iterable[str] | None = None) -> Iterator[Row]:
    """The lines of an export: of the conversations of these sessions, or of all."""
    yield {"type": FORMAT, "version": VERSION}
    wanted = None if session_ids is None else list(session_ids)
    numbers: dict[int, int] = {}
    for conversation in database.read(lambda c: _conversations(c, wanted)):
        yield from database.read(lambda c, id_=conversation: _lines(c, id_, numbers))


def _conversations(conn: apsw.Connection, session_ids: list[str] | None) -> list[str]:
    where, bindings = "1", tuple[str, ...]()
    if session_ids is not None:
        for session_id in session_ids:
            sessions.fetch(conn, session_id)
        where, bindings = "id IN (SELECT value FROM json_each(?))", (encode(session_ids),)
    found = conn.execute(
        "SELECT chosen.conversation_id, parent.conversation_id FROM"
        f" (SELECT conversation_id, min(started_at) AS began FROM sessions WHERE {where} GROUP BY 1)"
        " AS chosen JOIN sessions AS root ON root.id = chosen.conversation_id"
        " LEFT JOIN sessions AS parent ON parent.id = root.parent_session_id ORDER BY began, 1",
        bindings,
    )
    return _parents_first(dict(found.fetchall()))


def _parents_first(parents: dict[str, str | None]) -> list[str]:
    """What a branch came from goes before it, also when the clock went back in between."""
    ordered: dict[str, None] = {}
    for conversation in parents:
        line: list[str] = []
        current: str | None = conversation
        while current in parents and current not in ordered and current not in line:
            line.append(current)
            current = parents[current]
        ordered.update(dict.fromkeys(reversed(line)))
    return list(ordered)


def _lines(conn: apsw.Connection, conversation_id: str, numbers: dict[int, int]) -> list[Row]:
    lines: list[Row] = []
    for kind in _TABLES:
        for row in rows(conn.execute(_QUERIES[kind], (conversation_id,))):
            if kind == "message":
                numbers[row["id"]] = len(numbers) + 1
            for column in _MESSAGE_REFERENCES.get(kind, ()):
                row[column] = numbers.get(row[column])
            row.pop(_OWN_NUMBERS.get(kind, ""), None)
            lines.append({"type": kind, **{k: v for k, v in row.items() if v is not None}})
    return lines


def import_lines(
    database: Database,
    lines: Iterable[Row],
    progress: Callable[[int], None] = lambda _lines: None,
) -> Report:
    """Take in an export; each conversation is one transaction, and one that is here is left alone."""
    report = Report([], [], [], {}, 0)
    numbers: dict[int, int] = {}
    taken = 0
    for conversation in _grouped(lines):
        taken += database.write(lambda c, lines=conversation: _take(c, lines, numbers, report))
        progress(len(conversation))
    return report._replace(messages=taken)


def _grouped(lines: Iterable[Row]) -> Iterator[list[Row]]:
    """Lines of one conversation at a time; checks that this is an export of ours."""
    group: list[Row] = []
    current = None
    for number, line in enumerate(lines, 1):
        kind = line.get("type")
        if number == 1:
            _check_header(line)
        elif kind not in _TABLES:
            raise UsageError(f"Line {number}: {kind!r} is no record of an export.")
        elif kind == "session" and line["conversation_id"] != current:
            if group:
                yield group
            group, current = [line], line["conversation_id"]
        else:
            group.append(line)
    if group:
        yield group


def _check_header(line: Row) -> None:
    if line.get("type") != FORMAT:
        raise UsageError(
            "This is not an export of Hermes.", fix="Make one with: hermes sessions export"
        )
    if line.get("version", 0) > VERSION:
        raise UsageError("The export was made by a newer Hermes.", fix="Upgrade Hermes.")


def _take(conn: apsw.Connection, lines: list[Row], numbers: dict[int, int], report: Report) -> int:
    """Write one conversation; the numbers in the file become ids of this store."""
    own = [line["id"] for line in lines if line["type"] == "session"]
    if any(sessions.exists(conn, id_) for id_ in own):
        report.skipped.extend(id_ for id_ in own if id_ not in report.skipped)
        return 0
    count = 0
    totals: dict[str, Row] = {}
    for line in lines:
        row = {key: value for key, value in line.items() if key != "type"}
        kind = line["type"]
        if kind == "session":
            totals[row["id"]] = {key: row.pop(key) for key in _DERIVED if key in row}
            _fit_in(conn, row, report)
        for column in _MESSAGE_REFERENCES.get(kind, ()):
            if column in row and not (kind == "message" and column == "id"):
                row[column] = numbers.get(row[column])
        number = row.pop("id") if kind == "message" else None
        ends = _insert(conn, kind, row)
        if number is not None:
            numbers[number] = conn.last_insert_rowid()
            count += 1
        if ends:
            _end(conn, kind, row, ends)
    for session_id, derived in totals.items():
        sessions.change(conn, session_id, **derived)
    report.imported.extend(id_ for id_ in own if id_ not in report.imported)
    return count


def _fit_in(conn: apsw.Connection, row: Row, report: Report) -> None:
    """Detach from a parent that is not here, and number a title that is taken."""
    parent = row.get("parent_session_id")
    if parent is not None and not sessions.exists(conn, parent):
        del row["parent_session_id"], row["relation"]
        if row["id"] not in report.detached:
            report.detached.append(row["id"])
    title = row.get("title")
    if title is not None and titles.by_title(conn, title) is not None:
        row["title"] = report.retitled[row["id"]] = titles.next_in_lineage(conn, title)


_BEGINNINGS = {"turn": "accepted", "effect": "intended"}
_ON_THE_WAY = {"turn": ("running", "started_at"), "effect": ("started", "started_at")}


def _insert(conn: apsw.Connection, kind: str, row: Row) -> Row:
    """Insert a row; one with states begins where the database lets it begin. Returns the rest."""
    ends: Row = {}
    if kind in _BEGINNINGS and row["state"] != _BEGINNINGS[kind]:
        late = (
            "state",
            "started_at",
            "ended_at",
            "reason",
            "final_message_id",
            "result_message_id",
        )
        ends = {key: row[key] for key in late if key in row}
        row = {key: value for key, value in row.items() if key not in ends}
    try:
        conn.execute(
            f"INSERT INTO {_TABLE_NAMES[kind]} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
            tuple(row.values()),
        )
    except apsw.SQLError as error:
        raise StoreError(f"The export has a {kind} this version cannot read: {error}.") from error
    return ends


def _end(conn: apsw.Connection, kind: str, row: Row, ends: Row) -> None:
    """Lead a turn or an effect through its states to the one it had."""
    key = row["id"] if kind == "turn" else conn.last_insert_rowid()
    middle, began = _ON_THE_WAY[kind]
    states = [{**ends}]
    if began in ends and ends["state"] != middle:
        states.insert(0, {"state": middle, began: ends[began]})
    for values in states:
        changes = ", ".join(f"{name} = ?" for name in values)
        conn.execute(
            f"UPDATE {_TABLE_NAMES[kind]} SET {changes} WHERE id = ?", (*values.values(), key)
        )


def export_session(conn: apsw.Connection, session_id: str) -> dict[str, Any] | None:
    """One session with its messages as a single dictionary, for programs."""
    row = sessions.find(conn, session_id)
    if row is None:
        return None
    return {
        **row,
        "messages": rows(
            conn.execute("SELECT * FROM messages WHERE session_id = ? ORDER BY id", (session_id,))
        ),
    }
