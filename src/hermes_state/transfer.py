"""Export and import conversations as JSON Lines, with every row that belongs to them.

The first line is a header. Then follow, per conversation and parents before branches: sessions,
messages, turns, effects, usage, partials. Message ids are renumbered in the file, so exporting an import
yields the same file.

Each conversation is imported in its own transaction: an invalid line rejects its conversation and all
later ones.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from hermes_state import export_format as export
from hermes_state.engines.sqlite.database import Database
from hermes_state.export_format import Line
from hermes_state.ledger import sessions, taint, titles, turns
from hermes_state.ledger.records import mark_out_of_order
from hermes_state.store import Tx
from hermes_state.values import TOKENS, Row

NOT_OVER = "it was not over when it was exported"
"""The reason of open turns that an import ends: the exporting store may still run them."""

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
    "partial": "SELECT partials.* FROM partials JOIN turns ON turns.id = partials.turn_id"
    " JOIN sessions ON sessions.id = turns.session_id WHERE conversation_id = ?1 ORDER BY turn_id",
}
_MESSAGE_REFERENCES = {
    "message": ("id", "origin_id", "answers"),
    "turn": ("user_message_id", "final_message_id"),
    "effect": ("step_message_id", "result_message_id"),
}
_COUNTERS = ("tool_call_count", "api_call_count", *TOKENS, "cost_usd", "last_active_at")
_FOLLOWING = ("preview", "model")
"""Columns of a session that triggers fill; an import restores their exported values."""


class Report(NamedTuple):
    """The result of an import, with session ids."""

    imported: list[str]
    skipped: list[str]
    detached: list[str]
    retitled: dict[str, str]
    messages: int
    interrupted: list[str]
    """Sessions with a turn that was open at export and is ended here."""
    recounted: list[str]
    """Sessions whose message count was wrong."""


def export_lines(database: Database, session_ids: Iterable[str] | None = None) -> Iterator[Row]:
    """Yield the lines of an export of some sessions' conversations, or of all."""
    yield {"type": export.FORMAT, "version": export.VERSION}
    wanted_title = None if session_ids is None else list(session_ids)
    numbers: dict[int, int] = {}
    for conversation in database.read(_conversations, wanted_title):
        yield from database.read(_lines, conversation, numbers)


def _conversations(tx: Tx, session_ids: list[str] | None) -> list[str]:
    where, bindings = "1 = 1", tuple[Any, ...]()
    if session_ids is not None:
        for session_id in session_ids:
            sessions.fetch(tx, session_id)
        where, bindings = tx.among("id"), (tx.many(session_ids),)
    found = tx.tuples(
        "SELECT chosen.conversation_id, parent.conversation_id FROM"
        f" (SELECT conversation_id, min(started_at) AS began FROM sessions WHERE {where} GROUP BY 1)"
        " AS chosen LEFT JOIN sessions AS root ON root.id = chosen.conversation_id"
        " LEFT JOIN sessions AS parent ON parent.id = root.parent_session_id ORDER BY began, 1",
        *bindings,
    )
    return _parents_first(dict(found))


def _parents_first(parents: dict[str, str | None]) -> list[str]:
    """Order conversations so that parents precede their branches, whatever their times."""
    ordered: dict[str, None] = {}
    for conversation in parents:
        line: list[str] = []
        current: str | None = conversation
        while current in parents and current not in ordered and current not in line:
            line.append(current)
            current = parents[current]
        ordered.update(dict.fromkeys(reversed(line)))
    return list(ordered)


def _lines(tx: Tx, conversation_id: str, numbers: dict[int, int]) -> list[Row]:
    lines: list[Row] = []
    for kind, query in _QUERIES.items():
        for row in tx.rows(query, conversation_id):
            if kind == "message":
                # Deleted originals get a number too, so that their copies stay copies of one message.
                for id_ in (row["origin_id"], row["answers"], row["id"]):
                    if id_ is not None:
                        numbers.setdefault(id_, len(numbers) + 1)
            for column in _MESSAGE_REFERENCES.get(kind, ()):
                row[column] = numbers.get(row[column])
            row.pop(export.NUMBERED_HERE.get(kind, ""), None)
            lines.append(export.written(kind, row))
    return lines


def import_lines(
    database: Database,
    lines: Iterable[object],
    progress: Callable[[int], None] = lambda _lines: None,
) -> Report:
    """Import an export, one transaction per conversation; skip conversations that exist already.

    Raises UsageError at the first invalid line; the conversations before it stay imported.
    """
    columns = database.read(export.shape)
    done: list[Report] = []
    numbers: dict[int, int] = {}
    for conversation in export.conversations(lines, columns):
        report, ids = database.write(_take, conversation, numbers)
        done.append(report)
        numbers.update(ids)
        progress(len(conversation))
    return _together(done)


def _together(reports: list[Report]) -> Report:
    return Report(
        imported=[id_ for report in reports for id_ in report.imported],
        skipped=[id_ for report in reports for id_ in report.skipped],
        detached=[id_ for report in reports for id_ in report.detached],
        retitled={id_: title for report in reports for id_, title in report.retitled.items()},
        messages=sum(report.messages for report in reports),
        interrupted=[id_ for report in reports for id_ in report.interrupted],
        recounted=[id_ for report in reports for id_ in report.recounted],
    )


def _take(tx: Tx, lines: list[Line], numbers: Mapping[int, int]) -> tuple[Report, dict[int, int]]:
    return _ConversationImport(tx, numbers).take(lines)


class _ConversationImport:
    """Imports one conversation, mapping message numbers in the file to ids of this store."""

    def __init__(self, tx: Tx, numbers: Mapping[int, int]) -> None:
        self._tx = tx
        self._before = numbers
        self._ids: dict[int, int] = {}
        self._last_id: int = tx.value(
            "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'messages'), 0)"
        )
        self._report = Report([], [], [], {}, 0, [], [])

    def take(self, lines: list[Line]) -> tuple[Report, dict[int, int]]:
        """Write the conversation; return the report and the ids of its messages."""
        own = {line.row["id"]: line for line in lines if line.kind == "session"}
        if self._is_here(lines[0].row["conversation_id"], own):
            return self._report._replace(skipped=list(own)), {}
        mark_out_of_order(self._tx)
        open_turns = [line for line in lines if line.kind == "turn" and "ended_at" not in line.row]
        for line in lines:
            try:
                self._write(line)
            except self._tx.rejections as error:
                raise export.refusal(
                    line.number, f"the store cannot take this {line.kind} ({error})"
                ) from error
        for line in open_turns:
            turns.finish(self._tx, line.row["id"], "interrupted", reason=NOT_OVER)
        active = Counter(
            line.row["session_id"]
            for line in lines
            if line.kind == "message" and line.row.get("active", 1)
        )
        for id_, line in own.items():
            self._settle(line, active[id_])
            taint.note_import(self._tx, id_)
        self._check_line_of_sessions(lines[0])
        count = sum(line.kind == "message" for line in lines)
        interrupted = {line.row["session_id"]: None for line in open_turns}
        return self._report._replace(
            imported=list(own), messages=count, interrupted=list(interrupted)
        ), self._ids

    def _is_here(self, conversation_id: str, own: Iterable[str]) -> bool:
        return any(sessions.exists(self._tx, id_) for id_ in own) or bool(
            self._tx.value(
                "SELECT EXISTS (SELECT 1 FROM sessions WHERE conversation_id = ?)", conversation_id
            )
        )

    def _write(self, line: Line) -> None:
        row = dict(line.row)
        match line.kind:
            case "session":
                self._write_session(row)
            case "message":
                self._write_message(row)
            case "turn" | "effect":
                self._write_with_states(line, row)
            case _:
                self._insert(line.kind, row)

    def _write_session(self, row: Row) -> None:
        """Insert a session: detach it from a missing parent and number a title that exists."""
        parent = row.get("parent_session_id")
        if parent is not None and not sessions.exists(self._tx, parent):
            del row["parent_session_id"]
            row.pop("relation", None)
            self._report.detached.append(row["id"])
        wanted_title = row.pop("title", None)
        self._insert("session", row)
        title = titles.valid_title(self._tx, row["id"], wanted_title)
        if title is not None:
            sessions.change(self._tx, row["id"], title=title)
        if title != wanted_title:
            self._report.retitled[row["id"]] = title or ""

    def _write_message(self, row: Row) -> None:
        """Insert a message under the next id; reserve an id for each deleted original."""
        for column in ("origin_id", "answers"):
            number = row.get(column)
            if number is not None:
                row[column] = self._id_of(number) or self._new_id(number)
        row["id"] = self._new_id(row["id"])
        self._insert("message", row)

    def _new_id(self, number: int) -> int:
        self._last_id += 1
        self._ids[number] = self._last_id
        return self._last_id

    def _id_of(self, number: int) -> int | None:
        return self._ids.get(number, self._before.get(number))

    def _write_with_states(self, line: Line, row: Row) -> None:
        """Insert a turn or effect in its first state and move it to its last one."""
        for column in _MESSAGE_REFERENCES[line.kind]:
            if column in row:
                row[column] = self._id_of(row[column])
                if row[column] is None:
                    raise export.refusal(line.number, f"its {column} is not a message of the file")
        first, middle = _STATES[line.kind]
        state = row.get("state", first)
        later = {key: row.pop(key) for key in _LATER if key in row} if state != first else {}
        key = self._insert(line.kind, row, " RETURNING id")
        if "started_at" in later and state != middle:
            self._change(line.kind, key, {"state": middle, "started_at": later["started_at"]})
        if later:
            self._change(line.kind, key, later)

    def _insert(self, kind: str, row: Row, returning: str = "") -> Any:  # noqa: ANN401 -- a key
        return self._tx.value(
            f"INSERT INTO {export.TABLES[kind]} ({', '.join(row)})"
            f" VALUES ({', '.join('?' * len(row))}){returning}",
            *row.values(),
        )

    def _change(self, kind: str, key: str | int, values: Row) -> None:
        changes = ", ".join(f"{name} = ?" for name in values)
        self._tx.run(
            f"UPDATE {export.TABLES[kind]} SET {changes} WHERE id = ?", *values.values(), key
        )

    def _settle(self, line: Line, active: int) -> None:
        """Restore the exported counters, except for the count of messages."""
        row = line.row
        counters = {name: row[name] for name in _COUNTERS if name in row}
        sessions.change(self._tx, row["id"], **counters, **{n: row.get(n) for n in _FOLLOWING})
        self._tx.run(
            "UPDATE sessions SET message_count = (SELECT count(*) FROM messages"
            " WHERE session_id = ?1 AND active = 1) WHERE id = ?1",
            row["id"],
        )
        if row.get("message_count", active) != active:
            self._report.recounted.append(row["id"])

    def _check_line_of_sessions(self, first: Line) -> None:
        """Raise UsageError unless the sessions form one chain with one tip."""
        broken = self._tx.value(
            "SELECT (SELECT sum(is_tip) FROM sessions WHERE conversation_id = ?1) <> 1"
            " OR EXISTS (SELECT 1 FROM sessions WHERE conversation_id = ?1 AND is_tip = 0"
            "  AND relation IS DISTINCT FROM 'undone' AND NOT EXISTS (SELECT 1 FROM sessions AS child"
            "   WHERE child.parent_session_id = sessions.id AND child.relation = 'continuation'))"
            " OR EXISTS (SELECT 1 FROM sessions JOIN sessions AS parent"
            "  ON parent.id = sessions.parent_session_id WHERE sessions.conversation_id = ?1"
            "  AND sessions.relation IN ('continuation', 'undone')"
            "  AND parent.conversation_id <> ?1)",
            first.row["conversation_id"],
        )
        if broken:
            raise export.refusal(
                first.number, "the sessions of this conversation do not form one chain"
            )


_STATES = {"turn": ("accepted", "running"), "effect": ("intended", "started")}
"""The first and the middle state of each kind."""
_LATER = ("state", "started_at", "ended_at", "reason", "final_message_id", "result_message_id")


def export_session(tx: Tx, session_id: str) -> dict[str, Any] | None:
    """Return a session with its messages as one dictionary, or None."""
    row = sessions.find(tx, session_id)
    if row is None:
        return None
    return {
        **row,
        "messages": tx.rows("SELECT * FROM messages WHERE session_id = ? ORDER BY id", session_id),
    }
