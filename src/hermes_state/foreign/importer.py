"""Import from hermes-agent: its sessions, messages, usage and routes become ours; it keeps its own.

A conversation is one transaction, so an import that is cut short is finished by running it again. What
was taken is taken once: a session carries a note of how far it was read, later messages are added while
nobody has gone on with it here, and a conversation that went on in both places is left and reported.

A row that cannot be taken leaves itself and not the rest, and the report names it.
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
from hermes_state.ledger import sessions, titles
from hermes_state.ledger.records import encode, insert_message, mark_out_of_order
from hermes_state.store import Transactional, Tx
from hermes_state.values import Row, Spent

_LEFT_TABLES = {
    "compression_locks": "they belong to processes of hermes-agent",
    "async_delegations": "they are jobs that only hermes-agent can finish",
    "delivery_obligations": "they are replies that only hermes-agent can still deliver",
    "telegram_dm_topic_mode": "Telegram topics are set up anew here",
    "telegram_dm_topic_bindings": "Telegram topics are set up anew here",
    "state_meta": "they are notes of hermes-agent about its own file",
}
_TAKEN_TABLES = {
    "schema_version",
    "sessions",
    "messages",
    "session_model_usage",
    "gateway_routing",
}


class Taken(NamedTuple):
    """How much of each kind came in."""

    sessions: int = 0
    messages: int = 0
    routes: int = 0
    usage: int = 0


class Left(NamedTuple):
    """Something that was not taken."""

    what: str
    number: int
    why: str


class ForeignReport(NamedTuple):
    """What an import from hermes-agent took and what it left."""

    taken: Taken
    skipped: list[str]
    """Sessions that were here already and had nothing new."""
    grown: list[str]
    """Sessions that were here already and were brought up to date."""
    left: list[Left]
    retitled: dict[str, str]
    detached: list[str]
    filled: list[str]
    """Sessions that had a time of ending without a reason, or a reason without a time."""
    mended: list[str]
    """Sessions with text that was none; what could not be read of it was replaced."""
    warnings: Sequence[str] = ()
    """What this version does not know of a newer schema."""

    def lines(self) -> list[str]:
        """The report for a person."""
        sessions, messages, routes, usage = self.taken
        lines = [
            *self.warnings,
            f"Took {sessions} sessions, {messages} messages, {usage} usage rows, {routes} routes.",
        ]
        if self.grown:
            lines.append(f"Brought up to date: {', '.join(self.grown)}.")
        if self.skipped:
            lines.append(f"Already here: {len(self.skipped)} sessions.")
        lines += [f"{id_} is now titled {title!r}." for id_, title in self.retitled.items()]
        if self.detached:
            lines.append(f"Without their parent: {', '.join(self.detached)}.")
        if self.filled:
            lines.append(f"Half an end made whole: {', '.join(self.filled)}.")
        if self.mended:
            lines.append(f"Broken characters replaced in: {', '.join(self.mended)}.")
        return lines + [f"Left: {what} ({number}), {why}." for what, number, why in self.left]


def import_hermes_agent(
    database: Transactional,
    path: Path,
    progress: Callable[[int], None] = lambda _messages: None,
) -> ForeignReport:
    """Take in a hermes-agent home or state.db; `progress` hears of the messages of each conversation.

    Nothing in the home is changed. A file that cannot be taken is refused before anything is written.
    """
    place = foreign_source.locate(path)
    if place.database is None:
        report = ForeignReport(Taken(), [], [], [], {}, [], [], [])
        return _with_routes(report, database, [], place.routes)
    with foreign_source.opened(place.database) as source:
        report = _import_sessions(database, source, progress)
        return _with_routes(report, database, source.routes(), place.routes)


def count_messages(path: Path) -> int:
    """How many messages an import of `path` will report progress on."""
    place = foreign_source.locate(path)
    if place.database is None:
        return 0
    with foreign_source.opened(place.database) as source:
        return source.count("messages", _OWNED)


_OWNED = "session_id IN (SELECT id FROM sessions)"


def _import_sessions(
    database: Transactional, source: Source, progress: Callable[[int], None]
) -> ForeignReport:
    heads, nameless = source.heads()
    plan = foreign_plan.plan(heads, source.version)
    done: list[_Outcome] = []
    for conversation in plan.conversations:
        taking = _Taking(source, heads, plan, conversation)
        outcomes = database.read(taking.judge)
        if any(outcome.fate in _WRITTEN for outcome in outcomes):
            outcomes = database.write(taking.take)
        done += outcomes
        progress(sum(heads[id_].messages for id_ in conversation))
    if nameless:
        progress(sum(messages for _, messages in nameless))
    left = [
        Left(f"session {shown} with {messages} messages", 1, "its id is no text")
        for shown, messages in nameless
    ]
    return _report(done, left + _left_rows(source), plan)._replace(
        mended=list(source.mended), warnings=source.warnings
    )


_NEW = "new"
_GROWN = "grown"
_SAME = "same"
_STRANGER = "a session with this id began here"
_DIVERGED = "the conversation went on in both places"
_REWRITTEN = "its earlier messages were rewritten there"
_UNFIT = "it cannot be taken"
_WRITTEN = (_NEW, _GROWN)


class _Outcome(NamedTuple):
    """What became of one session."""

    id: str
    fate: str
    messages: int = 0
    usage: int = 0
    waiting: int = 0
    """Messages that are there and not here."""
    title: str | None = None
    """The title it got in place of its own."""
    detached: bool = False
    filled: bool = False
    left: tuple[Left, ...] = ()


class _Taking:
    """One conversation on its way in."""

    def __init__(
        self, source: Source, heads: Mapping[str, Head], plan: Plan, conversation: list[str]
    ) -> None:
        self._source = source
        self._heads = heads
        self._plan = plan
        self._conversation = conversation

    def judge(self, tx: Tx) -> list[_Outcome]:
        """What is to be done with each session; nothing is written."""
        return [self._judge(tx, id_) for id_ in self._conversation]

    def take(self, tx: Tx) -> list[_Outcome]:
        """Write what is new."""
        outcomes: list[_Outcome] = []
        for id_ in self._conversation:
            outcome = self._judge(tx, id_)
            if outcome.fate in _WRITTEN:
                outcome = self._write(tx, self._heads[id_], outcome.fate)
            outcomes.append(outcome)
        self._source.check_unchanged()
        return outcomes

    def _write(self, tx: Tx, head: Head, fate: str) -> _Outcome:
        """Write one session; one that cannot be written leaves nothing behind."""
        try:
            with tx.savepoint():
                return (self._insert if fate == _NEW else self._update)(tx, head)
        except (*tx.rejections, RecursionError, UnicodeError) as error:
            why = f"{_UNFIT} ({error}; messages there: {head.messages})"
            return _Outcome(head.id, _UNFIT, left=(Left(f"session {head.id}", 1, why),))

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
        said_more = there[:3] != mark.there[:3]
        if fate != _GROWN and not said_more:
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
        """How a session is over there, so that a later import sees whether it changed."""
        head = self._heads[session_id]
        said = [self._source.session(session_id), *self._source.usage(session_id)]
        # A newer schema adds columns; as long as they are empty nothing has changed.
        present = [{k: v for k, v in row.items() if v not in (None, 0, "")} for row in said]
        digest = hashlib.blake2b(encode(present).encode(), digest_size=8).hexdigest()
        return [head.last_message_id, head.messages, head.active, digest]

    def _insert(self, tx: Tx, head: Head) -> _Outcome:
        found = foreign_rows.session(self._source.session(head.id), head.active_at)
        wanted = self._title(head.id)
        row = {
            **found.columns,
            "id": head.id,
            "conversation_id": head.id,
            "last_active_at": found.columns["started_at"],
            # It is the tip that lists show, so what it says counts for the conversation.
            "archived": bool(foreign_rows.whole(self._heads[self._conversation[-1]].archived)),
        }
        tx.run(
            f"INSERT INTO sessions ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
            *tuple(row.values()),
        )
        title = titles.valid_title(tx, head.id, wanted)
        sessions.change(tx, head.id, title=title)
        detached = not self._link(tx, head.id)
        messages = self._source.messages(head.id)
        left = self._append(tx, head.id, messages, Originals(messages))
        usage, unspent = self._finish(tx, head.id, found, [wanted, title], [*left])
        return _Outcome(
            head.id,
            _NEW,
            messages=len(messages) - len(left),
            usage=usage,
            title=title if title != wanted else None,
            detached=detached,
            filled=found.filled,
            left=(*left.values(), *unspent),
        )

    def _append(
        self,
        tx: Tx,
        session_id: str,
        messages: Sequence[Row],
        originals: Originals,
        first: int = 0,
    ) -> dict[int, Left]:
        """Add the messages of a session from the position `first` on.

        Returns those that cannot be imported, by their ids there.
        """
        mark_out_of_order(tx)
        left: dict[int, Left] = {}
        for position, row in enumerate(messages[first:], first):
            try:
                message = originals.marked(position, row, foreign_rows.message(row))
                id_ = insert_message(tx, session_id, message)
                if message.compacted and message.origin_id is None:
                    originals.add(position, row, id_)
            except (*tx.rejections, RecursionError, UnicodeError) as error:
                what = f"message {row['id']} of session {session_id}"
                left[row["id"]] = Left(what, 1, f"{_UNFIT} ({error})")
        return left

    def _update(self, tx: Tx, head: Head) -> _Outcome:
        """Add what was said there since; what this person changed here about it stays."""
        present = sessions.fetch(tx, head.id)
        mark = foreign_mark.read(present)
        wanted = self._title(head.id)
        given = [present["title"], present["title"]] if mark is None else mark.titles
        title = present["title"]
        if wanted != given[0] and title == given[1]:
            sessions.change(tx, head.id, title=None)
            title = titles.valid_title(tx, head.id, wanted)
        found = foreign_rows.session(self._source.session(head.id), head.active_at)
        sessions.change(tx, head.id, **{**found.columns, "title": title})
        left_before = [] if mark is None else mark.left
        added, left = self._add_messages(tx, head.id, left_before)
        tx.run("DELETE FROM usage WHERE session_id = ?", head.id)
        _, unspent = self._finish(tx, head.id, found, [wanted, title], [*left_before, *left])
        retitled = title if title not in (wanted, given[1]) else None
        every = (*left.values(), *unspent)
        return _Outcome(head.id, _GROWN, messages=added, title=retitled, left=every)

    def _add_messages(
        self, tx: Tx, session_id: str, left_before: list[int]
    ) -> tuple[int, dict[int, Left]]:
        """Append the later messages; the earlier ones may have been rewound or compacted since."""
        here = tx.tuples(
            "SELECT id, active, compacted FROM messages WHERE session_id = ? ORDER BY id",
            session_id,
        )
        there = [row for row in self._source.messages(session_id) if row["id"] not in left_before]
        originals = Originals(there)
        for position, ((id_, *before), row) in enumerate(zip(here, there, strict=False)):
            now = [foreign_rows.is_active(row), foreign_rows.is_compacted(row)]
            if now != list(map(bool, before)):
                tx.run("UPDATE messages SET active = ?, compacted = ? WHERE id = ?", *now, id_)
            if now[1]:
                originals.add(position, row, id_)
        left = self._append(tx, session_id, there, originals, len(here))
        return len(there) - len(here) - len(left), left

    def _title(self, session_id: str) -> str | None:
        return foreign_rows.text(self._source.session(session_id).get("title"))

    def _link(self, tx: Tx, session_id: str) -> bool:
        """Hang a session under its parent; False when there should be one and is not."""
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
        given: list[str | None],
        left: list[int],
    ) -> tuple[int, list[Left]]:
        """Write what was spent and set every counter; gives how many usage rows, and which not."""
        usage = self._source.usage(session_id)
        spendings = foreign_rows.spendings(usage, found)
        unspent: list[Left] = []
        for spending in spendings:
            try:
                _spend(tx, session_id, spending)
            except (*tx.rejections, RecursionError, UnicodeError) as error:
                what = f"usage of {spending.spent.model} in session {session_id}"
                unspent.append(Left(what, 1, f"{_UNFIT} ({error})"))
        # The rows were just added up by the database; the session's own sums are the true ones.
        sessions.change(tx, session_id, **found.totals)
        sessions.recount(tx, session_id)
        extra = found.extra
        if usage:
            extra = {**extra, "model_usage": foreign_rows.usage_beside(usage)}
        foreign_mark.write(tx, session_id, extra, self._there(session_id), given, left)
        return len(spendings) - len(unspent), unspent


def _may_go_on(tx: Tx, parent: Row) -> bool:
    """Whether a parent is still the end of its line, and nobody has gone on with it here."""
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


def _report(done: list[_Outcome], left: list[Left], plan: Plan) -> ForeignReport:
    new = [one for one in done if one.fate == _NEW]
    refused = [
        Left(f"session {one.id}", 1, f"{one.fate} (new messages there: {one.waiting})")
        for one in done
        if one.fate in (_DIVERGED, _REWRITTEN)
    ]
    refused += [left for one in done for left in one.left]
    cut_off = set(plan.detached)
    return ForeignReport(
        Taken(
            sessions=len(new),
            messages=sum(one.messages for one in done),
            usage=sum(one.usage for one in new),
        ),
        skipped=[one.id for one in done if one.fate in (_SAME, _STRANGER)],
        grown=[one.id for one in done if one.fate == _GROWN],
        left=refused + left,
        retitled={one.id: one.title for one in done if one.title is not None},
        detached=[one.id for one in new if one.detached or one.id in cut_off],
        filled=[one.id for one in new if one.filled],
        mended=[],
    )


def _left_rows(source: Source) -> list[Left]:
    """What is in the file and is not taken, with the reason."""
    left: list[Left] = []
    for table in source.tables():
        if table not in _TAKEN_TABLES:
            why = _LEFT_TABLES.get(table, "this version does not know the table")
            left.append(Left(table, source.count(table), why))
    if "state_meta" in source.tables():
        goals = source.count("state_meta", "key LIKE 'goal:%'")
        left.append(Left("goals", goals, "sessions have no goals here; they are in state_meta"))
    orphans = source.count("messages", f"NOT {_OWNED}")
    left.append(Left("messages", orphans, "they belong to no session"))
    return [one for one in left if one.number]


def _with_routes(
    report: ForeignReport, database: Transactional, stored: list[Row], file: Path | None
) -> ForeignReport:
    fates = foreign_routes.take(database, stored, file)
    left = [
        Left(f"routes {_some(fates[why])}", len(fates[why]), why)
        for why in (foreign_routes.LOST, foreign_routes.OLDER, foreign_routes.UNREADABLE)
        if fates[why]
    ]
    return report._replace(
        taken=report.taken._replace(routes=len(fates[foreign_routes.TAKEN])),
        left=report.left + left,
    )


_NAMED = 10


def _some(names: list[str]) -> str:
    """The names, of very many the first."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
