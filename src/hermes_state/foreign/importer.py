"""Import sessions, messages, usage and routes from hermes-agent, without changing its files.

Each conversation is one transaction, so an interrupted import is completed by running it again. A
session has a note of how far it was imported: later messages are added until somebody continues it here.
A conversation that continued in both programs is reported and not imported.

A row that cannot be imported is reported and does not affect the others.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hermes_state.foreign import mark as foreign_mark
from hermes_state.foreign import plan as foreign_plan
from hermes_state.foreign import routes as foreign_routes
from hermes_state.foreign import rows as foreign_rows
from hermes_state.foreign import source as foreign_source
from hermes_state.foreign.mark import Mark
from hermes_state.foreign.plan import Plan
from hermes_state.foreign.rows import Originals, Session, Spending
from hermes_state.foreign.source import Head, Source
from hermes_state.ledger import sessions, taint, titles
from hermes_state.ledger.records import encode, insert_message, mark_out_of_order
from hermes_state.store import Transactional, Tx
from hermes_state.values import Row, Spent

_SKIPPED_TABLES = {
    "compression_locks": "they belong to processes of hermes-agent",
    "async_delegations": "they are jobs that only hermes-agent can finish",
    "delivery_obligations": "they are replies that only hermes-agent can still deliver",
    "telegram_dm_topic_mode": "Telegram topics are set up anew here",
    "telegram_dm_topic_bindings": "Telegram topics are set up anew here",
    "state_meta": "they are notes of hermes-agent about its own file",
}
_IMPORTED_TABLES = {
    "schema_version",
    "sessions",
    "messages",
    "session_model_usage",
    "gateway_routing",
}


class ImportCounts(NamedTuple):
    """The number of imported rows of each kind."""

    sessions: int = 0
    messages: int = 0
    routes: int = 0
    usage: int = 0


class NotImported(NamedTuple):
    """Rows that were not imported, with the reason."""

    what: str
    number: int
    why: str


class ForeignReport(NamedTuple):
    """The result of an import from hermes-agent."""

    imported: ImportCounts
    skipped: list[str]
    """Sessions that were imported before and have not changed."""
    updated: list[str]
    """Sessions that were imported before and were updated."""
    not_imported: list[NotImported]
    retitled: dict[str, str]
    detached: list[str]
    completed: list[str]
    """Sessions with an end time but no reason, or the reverse; it was completed."""
    repaired: list[str]
    """Sessions with text that is not valid UTF-8; the invalid bytes were replaced."""
    warnings: Sequence[str] = ()
    """Warnings about a newer schema."""

    def lines(self) -> list[str]:
        """Return the report as lines for a person."""
        sessions, messages, routes, usage = self.imported
        lines = [
            *self.warnings,
            f"Imported {sessions} sessions, {messages} messages, {usage} usage rows, {routes} routes.",
        ]
        if self.updated:
            lines.append(f"Updated: {', '.join(self.updated)}.")
        if self.skipped:
            lines.append(f"Already imported: {len(self.skipped)} sessions.")
        lines += [f"{id_} is now titled {title!r}." for id_, title in self.retitled.items()]
        if self.detached:
            lines.append(f"Without their parent: {', '.join(self.detached)}.")
        if self.completed:
            lines.append(f"Incomplete end completed: {', '.join(self.completed)}.")
        if self.repaired:
            lines.append(f"Invalid characters replaced in: {', '.join(self.repaired)}.")
        return lines + [
            f"Not imported: {what} ({number}), {why}." for what, number, why in self.not_imported
        ]


def import_hermes_agent(
    database: Transactional,
    path: Path,
    progress: Callable[[int], None] = lambda _messages: None,
) -> ForeignReport:
    """Import a hermes-agent home or state.db; `progress` gets the message count of each conversation.

    Nothing in the home is changed. An unusable file is refused before anything is written.
    """
    place = foreign_source.locate(path)
    if place.database is None:
        report = ForeignReport(ImportCounts(), [], [], [], {}, [], [], [])
        return _with_routes(report, database, [], place.routes)
    with foreign_source.opened(place.database) as source:
        report = _import_sessions(database, source, progress)
        return _with_routes(report, database, source.routes(), place.routes)


def count_messages(path: Path) -> int:
    """Count the messages that an import of `path` will report progress on."""
    place = foreign_source.locate(path)
    if place.database is None:
        return 0
    with foreign_source.opened(place.database) as source:
        return source.count("messages", _OWNED)


_OWNED = "session_id IN (SELECT id FROM sessions)"


def _import_sessions(
    database: Transactional, source: Source, progress: Callable[[int], None]
) -> ForeignReport:
    heads, without_id = source.heads()
    plan = foreign_plan.plan(heads, source.version)
    done: list[_Outcome] = []
    for conversation in plan.conversations:
        importing = _ConversationImport(source, heads, plan, conversation)
        outcomes = database.read(importing.judge)
        if any(outcome.fate in _WRITTEN for outcome in outcomes):
            outcomes = database.write(importing.take)
        done += outcomes
        progress(sum(heads[id_].messages for id_ in conversation))
    if without_id:
        progress(sum(messages for _, messages in without_id))
    not_imported = [
        NotImported(f"session {id_text} with {messages} messages", 1, "its id is not text")
        for id_text, messages in without_id
    ]
    return _report(done, not_imported + _skipped_rows(source), plan)._replace(
        repaired=list(source.repaired), warnings=source.warnings
    )


_NEW = "new"
_GROWN = "grown"
_SAME = "same"
_STRANGER = "a session with this id was created here"
_DIVERGED = "the conversation continued in both programs"
_REWRITTEN = "its earlier messages were rewritten in hermes-agent"
_UNFIT = "it cannot be imported"
_WRITTEN = (_NEW, _GROWN)


class _Outcome(NamedTuple):
    """The outcome of one session."""

    id: str
    fate: str
    messages: int = 0
    usage: int = 0
    waiting: int = 0
    """Messages that are not imported yet."""
    title: str | None = None
    """The new title, if it is not the original one."""
    detached: bool = False
    completed: bool = False
    not_imported: tuple[NotImported, ...] = ()


class _ConversationImport:
    """Imports one conversation."""

    def __init__(
        self, source: Source, heads: Mapping[str, Head], plan: Plan, conversation: list[str]
    ) -> None:
        self._source = source
        self._heads = heads
        self._plan = plan
        self._conversation = conversation

    def judge(self, tx: Tx) -> list[_Outcome]:
        """Decide what to do with each session, without writing."""
        return [self._judge(tx, id_) for id_ in self._conversation]

    def take(self, tx: Tx) -> list[_Outcome]:
        """Write new and changed sessions."""
        outcomes: list[_Outcome] = []
        for id_ in self._conversation:
            outcome = self._judge(tx, id_)
            if outcome.fate in _WRITTEN:
                outcome = self._write(tx, self._heads[id_], outcome.fate)
            outcomes.append(outcome)
        self._source.check_unchanged()
        return outcomes

    def _write(self, tx: Tx, head: Head, fate: str) -> _Outcome:
        """Write one session, or roll it back when it cannot be written."""
        try:
            with tx.savepoint():
                return (self._insert if fate == _NEW else self._update)(tx, head)
        except (*tx.rejections, RecursionError, UnicodeError) as error:
            why = f"{_UNFIT} ({error}; messages there: {head.messages})"
            return _Outcome(
                head.id, _UNFIT, not_imported=(NotImported(f"session {head.id}", 1, why),)
            )

    def _judge(self, tx: Tx, session_id: str) -> _Outcome:
        row = sessions.find(tx, session_id)
        if row is None:
            return _Outcome(session_id, _NEW)
        mark = foreign_mark.read(row)
        if mark is None:
            return _Outcome(session_id, _STRANGER)
        there = self._there(session_id)
        if there == mark.there:
            return _Outcome(session_id, _SAME)
        fate = self._fate(tx, session_id, mark)
        has_more = there[:3] != mark.there[:3]
        if fate != _GROWN and not has_more:
            return _Outcome(session_id, _SAME)
        return _Outcome(session_id, fate, waiting=max(there[1] - mark.there[1], 0))

    def _fate(self, tx: Tx, session_id: str, mark: Mark) -> str:
        if not foreign_mark.is_untouched(tx, session_id):
            return _DIVERGED
        last, count = mark.there[:2]
        if self._source.messages_until(session_id, last) != count:
            return _REWRITTEN
        return _GROWN

    def _there(self, session_id: str) -> list[Any]:
        """Return the state of a session in hermes-agent, for a later import to compare."""
        head = self._heads[session_id]
        rows = [self._source.session(session_id), *self._source.usage(session_id)]
        # Empty columns that a newer schema adds are no change.
        present = [{k: v for k, v in row.items() if v not in (None, 0, "")} for row in rows]
        digest = hashlib.blake2b(encode(present).encode(), digest_size=8).hexdigest()
        return [head.last_message_id, head.messages, head.active, digest]

    def _insert(self, tx: Tx, head: Head) -> _Outcome:
        found = foreign_rows.session(self._source.session(head.id), head.active_at)
        source_title = self._title(head.id)
        row = {
            **found.columns,
            "id": head.id,
            "conversation_id": head.id,
            "last_active_at": found.columns["started_at"],
            # Lists show the tip, so its value counts for the conversation.
            "archived": bool(foreign_rows.whole(self._heads[self._conversation[-1]].archived)),
        }
        tx.run(
            f"INSERT INTO sessions ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
            *tuple(row.values()),
        )
        title = titles.valid_title(tx, head.id, source_title)
        sessions.change(tx, head.id, title=title)
        detached = not self._link(tx, head.id)
        messages = self._source.messages(head.id)
        not_imported = self._append(tx, head.id, messages, Originals(messages))
        usage, unspent = self._finish(tx, head.id, found, [source_title, title], [*not_imported])
        return _Outcome(
            head.id,
            _NEW,
            messages=len(messages) - len(not_imported),
            usage=usage,
            title=title if title != source_title else None,
            detached=detached,
            completed=found.completed,
            not_imported=(*not_imported.values(), *unspent),
        )

    def _append(
        self,
        tx: Tx,
        session_id: str,
        messages: Sequence[Row],
        originals: Originals,
        first: int = 0,
    ) -> dict[int, NotImported]:
        """Append the messages of a session from a position on.

        Returns those that cannot be imported, by their original ids.
        """
        mark_out_of_order(tx)
        not_imported: dict[int, NotImported] = {}
        for position, row in enumerate(messages[first:], first):
            try:
                message = originals.marked(position, row, foreign_rows.message(row))
                id_ = insert_message(tx, session_id, message)
                if message.compacted and message.origin_id is None:
                    originals.add(position, row, id_)
            except (*tx.rejections, RecursionError, UnicodeError) as error:
                what = f"message {row['id']} of session {session_id}"
                not_imported[row["id"]] = NotImported(what, 1, f"{_UNFIT} ({error})")
        return not_imported

    def _update(self, tx: Tx, head: Head) -> _Outcome:
        """Append later messages and update the session; keep a title that was changed here."""
        present = sessions.fetch(tx, head.id)
        mark = foreign_mark.read(present)
        source_title = self._title(head.id)
        titles_ = [present["title"], present["title"]] if mark is None else mark.titles
        title = present["title"]
        if source_title != titles_[0] and title == titles_[1]:
            sessions.change(tx, head.id, title=None)
            title = titles.valid_title(tx, head.id, source_title)
        found = foreign_rows.session(self._source.session(head.id), head.active_at)
        sessions.change(tx, head.id, **{**found.columns, "title": title})
        earlier_not_imported = [] if mark is None else mark.not_imported
        added, not_imported = self._add_messages(tx, head.id, earlier_not_imported)
        tx.run("DELETE FROM usage WHERE session_id = ?", head.id)
        _, unspent = self._finish(
            tx, head.id, found, [source_title, title], [*earlier_not_imported, *not_imported]
        )
        retitled = title if title not in (source_title, titles_[1]) else None
        every = (*not_imported.values(), *unspent)
        return _Outcome(head.id, _GROWN, messages=added, title=retitled, not_imported=every)

    def _add_messages(
        self, tx: Tx, session_id: str, earlier_not_imported: list[int]
    ) -> tuple[int, dict[int, NotImported]]:
        """Append later messages and update whether earlier ones are active or compacted."""
        here = tx.tuples(
            "SELECT id, active, compacted FROM messages WHERE session_id = ? ORDER BY id",
            session_id,
        )
        there = [
            row
            for row in self._source.messages(session_id)
            if row["id"] not in earlier_not_imported
        ]
        originals = Originals(there)
        for position, ((id_, *before), row) in enumerate(zip(here, there, strict=False)):
            now = [foreign_rows.is_active(row), foreign_rows.is_compacted(row)]
            if now != list(map(bool, before)):
                tx.run("UPDATE messages SET active = ?, compacted = ? WHERE id = ?", *now, id_)
            if now[1]:
                originals.add(position, row, id_)
        not_imported = self._append(tx, session_id, there, originals, len(here))
        return len(there) - len(here) - len(not_imported), not_imported

    def _title(self, session_id: str) -> str | None:
        return foreign_rows.text(self._source.session(session_id).get("title"))

    def _link(self, tx: Tx, session_id: str) -> bool:
        """Link a session to its parent; return False when its parent is missing."""
        link = self._plan.links.get(session_id)
        if link is None:
            return True
        parent = sessions.find(tx, link.parent)
        if parent is None:
            return False
        relation = link.relation
        if relation == "continuation" and not _may_go_on(tx, parent):
            relation = "branch"
        sessions.link(tx, session_id, parent, relation)
        if relation == "continuation":
            foreign_mark.renew(tx, link.parent)
        return True

    def _finish(
        self,
        tx: Tx,
        session_id: str,
        found: Session,
        titles_: list[str | None],
        not_imported: list[int],
    ) -> tuple[int, list[NotImported]]:
        """Write usage rows and counters; return how many rows, and those that were not imported."""
        usage = self._source.usage(session_id)
        spendings = foreign_rows.spendings(usage, found)
        unspent: list[NotImported] = []
        for spending in spendings:
            try:
                _spend(tx, session_id, spending)
            except (*tx.rejections, RecursionError, UnicodeError) as error:
                what = f"usage of {spending.spent.model} in session {session_id}"
                unspent.append(NotImported(what, 1, f"{_UNFIT} ({error})"))
        # Triggers have summed the rows; the sums of the session are more accurate.
        sessions.change(tx, session_id, **found.totals)
        sessions.recount(tx, session_id)
        taint.note_import(tx, session_id)
        extra = found.extra
        if usage:
            extra = {**extra, "model_usage": foreign_rows.usage_beside(usage)}
        foreign_mark.write(tx, session_id, extra, self._there(session_id), titles_, not_imported)
        return len(spendings) - len(unspent), unspent


def _may_go_on(tx: Tx, parent: Row) -> bool:
    """Return whether a parent may get a continuation: it is the tip and was not used here."""
    return bool(
        parent["is_tip"]
        and parent["end_reason"] == "compression"
        and foreign_mark.is_untouched(tx, parent["id"])
    )


def _spend(tx: Tx, session_id: str, spending: Spending) -> None:
    tx.run(
        f"INSERT INTO usage (session_id, task, {', '.join(Spent._fields)}, timestamp)"
        f" VALUES ({', '.join('?' * (len(Spent._fields) + 3))})",
        session_id,
        spending.task,
        *spending.spent,
        spending.at,
    )


def _report(done: list[_Outcome], not_imported: list[NotImported], plan: Plan) -> ForeignReport:
    new = [outcome for outcome in done if outcome.fate == _NEW]
    refused = [
        NotImported(
            f"session {outcome.id}", 1, f"{outcome.fate} (new messages there: {outcome.waiting})"
        )
        for outcome in done
        if outcome.fate in (_DIVERGED, _REWRITTEN)
    ]
    refused += [not_imported for outcome in done for not_imported in outcome.not_imported]
    cut_off = set(plan.detached)
    return ForeignReport(
        ImportCounts(
            sessions=len(new),
            messages=sum(outcome.messages for outcome in done),
            usage=sum(outcome.usage for outcome in new),
        ),
        skipped=[outcome.id for outcome in done if outcome.fate in (_SAME, _STRANGER)],
        updated=[outcome.id for outcome in done if outcome.fate == _GROWN],
        not_imported=refused + not_imported,
        retitled={outcome.id: outcome.title for outcome in done if outcome.title is not None},
        detached=[outcome.id for outcome in new if outcome.detached or outcome.id in cut_off],
        completed=[outcome.id for outcome in new if outcome.completed],
        repaired=[],
    )


def _skipped_rows(source: Source) -> list[NotImported]:
    """Return the tables and rows of the file that are not imported, with the reason."""
    not_imported: list[NotImported] = []
    for table in source.tables():
        if table not in _IMPORTED_TABLES:
            why = _SKIPPED_TABLES.get(table, "this version does not know the table")
            not_imported.append(NotImported(table, source.count(table), why))
    if "state_meta" in source.tables():
        goals = source.count("state_meta", "key LIKE 'goal:%'")
        not_imported.append(
            NotImported("goals", goals, "sessions have no goals here; they are in state_meta")
        )
    orphans = source.count("messages", f"NOT {_OWNED}")
    not_imported.append(NotImported("messages", orphans, "they belong to no session"))
    return [outcome for outcome in not_imported if outcome.number]


def _with_routes(
    report: ForeignReport, database: Transactional, stored: list[Row], file: Path | None
) -> ForeignReport:
    fates = foreign_routes.take(database, stored, file)
    not_imported = [
        NotImported(f"routes {_some(fates[why])}", len(fates[why]), why)
        for why in (foreign_routes.LOST, foreign_routes.OLDER, foreign_routes.UNREADABLE)
        if fates[why]
    ]
    return report._replace(
        imported=report.imported._replace(routes=len(fates[foreign_routes.IMPORTED])),
        not_imported=report.not_imported + not_imported,
    )


_NAMED = 10


def _some(names: list[str]) -> str:
    """List names, at most the first ten."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
