"""Export and import as JSON Lines: conversations as they are, every row that belongs to them.

The first line says what the file is. Then, conversation by conversation, parents before branches:
sessions, messages, turns, effects, usage, partials. Message ids are numbered anew in the file, so an
export of an import is the same file.

A conversation is taken as a whole or not at all, each in a transaction of its own: when a line is not
right, the conversations before it are here, and its own and those after it are not.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from hermes_state import export_format as export
from hermes_state.engines.sqlite.database import Database
from hermes_state.export_format import Line
from hermes_state.ledger import sessions, titles, turns
from hermes_state.ledger.records import mark_out_of_order
from hermes_state.store import Tx
from hermes_state.values import Row

NOT_OVER = "it was not over when it was exported"
"""Why a turn ends with its import: who exported it may still run it, and two must not."""

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
_COUNTERS = (
    "tool_call_count",
    "api_call_count",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cost_usd",
    "last_active_at",
)
_FOLLOWING = ("preview", "model")
"""Columns of a session that the database fills as rows come in; both are set to what they were."""


class Report(NamedTuple):
    """What an import took and what it left; sessions by their ids."""

    imported: list[str]
    skipped: list[str]
    detached: list[str]
    retitled: dict[str, str]
    messages: int
    interrupted: list[str]
    """Those with a turn that was not over when they were exported; here it is."""
    recounted: list[str]
    """Those that did not have as many messages as they said."""


def export_lines(database: Database, session_ids: Iterable[str] | None = None) -> Iterator[Row]:
    """The lines of an export: of the conversations of these sessions, or of all."""
    yield {"type": export.FORMAT, "version": export.VERSION}
    wanted = None if session_ids is None else list(session_ids)
    numbers: dict[int, int] = {}
    for conversation in database.read(_conversations, wanted):
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


def _lines(tx: Tx, conversation_id: str, numbers: dict[int, int]) -> list[Row]:
    lines: list[Row] = []
    for kind, query in _QUERIES.items():
        for row in tx.rows(query, conversation_id):
            if kind == "message":
                # Also what was deleted since has a number, or two copies of it would be two things.
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
    """Take in an export; each conversation is one transaction, and one that is here is left alone.

    Raises UsageError at the first line that is not right; the conversations before it are taken.
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
        imported=[id_ for one in reports for id_ in one.imported],
        skipped=[id_ for one in reports for id_ in one.skipped],
        detached=[id_ for one in reports for id_ in one.detached],
        retitled={id_: title for one in reports for id_, title in one.retitled.items()},
        messages=sum(one.messages for one in reports),
        interrupted=[id_ for one in reports for id_ in one.interrupted],
        recounted=[id_ for one in reports for id_ in one.recounted],
    )


def _take(tx: Tx, lines: list[Line], numbers: Mapping[int, int]) -> tuple[Report, dict[int, int]]:
    return _Taking(tx, numbers).take(lines)


class _Taking:
    """One conversation on its way in; the numbers in the file become ids of this store."""

    def __init__(self, tx: Tx, numbers: Mapping[int, int]) -> None:
        self._tx = tx
        self._before = numbers
        self._ids: dict[int, int] = {}
        self._last_id: int = tx.value(
            "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'messages'), 0)"
        )
        self._report = Report([], [], [], {}, 0, [], [])

    def take(self, lines: list[Line]) -> tuple[Report, dict[int, int]]:
        """Write it all; says what became of it, and the ids its messages got."""
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
        """Detach it from a parent that is not here, and number a title that its owner has already."""
        parent = row.get("parent_session_id")
        if parent is not None and not sessions.exists(self._tx, parent):
            del row["parent_session_id"]
            row.pop("relation", None)
            self._report.detached.append(row["id"])
        wanted = row.pop("title", None)
        self._insert("session", row)
        title = titles.valid_title(self._tx, row["id"], wanted)
        if title is not None:
            sessions.change(self._tx, row["id"], title=title)
        if title != wanted:
            self._report.retitled[row["id"]] = title or ""

    def _write_message(self, row: Row) -> None:
        """Ids grow with the lines, and one that a deleted message had is set aside for good."""
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
        """Lead a turn or an effect from its first state to the one it had: no other way is legal."""
        for column in _MESSAGE_REFERENCES[line.kind]:
            if column in row:
                row[column] = self._id_of(row[column])
                if row[column] is None:
                    raise export.refusal(line.number, f"its {column} is no message of the file")
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
        """Set what the database counted to what it was; messages are counted as they are."""
        row = line.row
        known = {name: row[name] for name in _COUNTERS if name in row}
        sessions.change(self._tx, row["id"], **known, **{n: row.get(n) for n in _FOLLOWING})
        self._tx.run(
            "UPDATE sessions SET message_count = (SELECT count(*) FROM messages"
            " WHERE session_id = ?1 AND active = 1) WHERE id = ?1",
            row["id"],
        )
        if row.get("message_count", active) != active:
            self._report.recounted.append(row["id"])

    def _check_line_of_sessions(self, first: Line) -> None:
        """A conversation is one line of continuations with one tip, all of it in this file."""
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
                first.number, "the sessions of this conversation do not make one line with one end"
            )


_STATES = {"turn": ("accepted", "running"), "effect": ("intended", "started")}
"""Where each begins, and what it passes on its way to an end."""
_LATER = ("state", "started_at", "ended_at", "reason", "final_message_id", "result_message_id")


def export_session(tx: Tx, session_id: str) -> dict[str, Any] | None:
    """One session with its messages as a single dictionary, for programs."""
    row = sessions.find(tx, session_id)
    if row is None:
        return None
    return {
        **row,
        "messages": tx.rows("SELECT * FROM messages WHERE session_id = ? ORDER BY id", session_id),
    }
