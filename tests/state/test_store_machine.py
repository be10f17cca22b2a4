"""A random life of a store, step by step beside a plain-Python model of what it should hold.

`make fuzz ARGS=tests/state/test_store_machine.py` looks longer.
"""

import itertools
import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hermes_core import clock
from hermes_core.errors import NothingSaidError, StoreError, TitleError
from hermes_state import SessionDB
from hermes_state.engines.sqlite.maintenance import DAY_S
from hermes_state.ledger import lineage, sessions
from hermes_state.ledger import messages as message_ledger
from hermes_state.ledger import routes as route_ledger
from hermes_state.values import Route
from tests.support.examples import examples

choices = st.integers(min_value=0, max_value=10_000)
titles = st.sampled_from(["plan", "plan #2", "trip", "trip #7", None])


@dataclass
class Message:
    number: int
    role: str
    content: str
    kind: str = "message"
    origin: int = 0
    """The number of the message that it is a copy of, or its own."""
    active: bool = True


@dataclass
class Session:
    id: str
    source: str
    conversation: str
    started: float
    last: float
    parent: str | None = None
    relation: str | None = None
    depth: int = 0
    tip: bool = True
    title: str | None = None
    preview: str | None = None
    reason: str | None = None
    archived: bool = False
    messages: list[Message] = field(default_factory=list)

    @property
    def active(self) -> list[Message]:
        return [message for message in self.messages if message.active]


class Model:
    """The store, as simple as it can be said."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.sessions: dict[str, Session] = {}
        self.routes: dict[str, str] = {}
        self._numbers = itertools.count(1)

    def create(self, id_: str, source: str, like: Session | None = None) -> Session:
        last = max(self.now(), like.last) if like else self.now()
        self.sessions[id_] = Session(id_, source, id_, self.now(), last)
        return self.sessions[id_]

    def add(
        self, session: Session, role: str, content: str, kind: str = "message", origin: int = 0
    ) -> Message:
        number = next(self._numbers)
        message = Message(number, role, content, kind, origin or number)
        session.messages.append(message)
        if session.preview is None and role == "user" and kind != "summary":
            session.preview = content
        session.last = max(session.last, self.now() if kind != "copy" else session.last)
        return message

    def conversation(self, session: Session) -> list[Session]:
        return [s for s in self.sessions.values() if s.conversation == session.conversation]

    def tip(self, session: Session) -> Session:
        return next(s for s in self.conversation(session) if s.tip)

    def holder(self, title: str) -> Session | None:
        return next((s for s in self.sessions.values() if s.title == title), None)

    def title_of(self, session: Session) -> str | None:
        titled = [s for s in self.conversation(session) if s.title is not None]
        return max(titled, key=lambda s: s.depth).title if titled else None

    def next_title(self, title: str) -> str:
        numbered = re.match(r"^(.*?) #(\d+)$", title)
        base = numbered[1] if numbered else title
        numbers = [
            int(match[1])
            for s in self.sessions.values()
            if (match := re.match(rf"^{re.escape(base)} #(\d+)$", s.title or ""))
        ]
        free = not numbers and self.holder(base) is None
        return base if free else f"{base} #{max([1, *numbers]) + 1}"

    def rotate(self, parent: Session, child_id: str, tail: list[Message]) -> None:
        parent.reason = "compression"
        child = self.create(child_id, parent.source, like=parent)
        child.parent, child.relation, child.depth = parent.id, "continuation", parent.depth + 1
        child.conversation, child.archived = parent.conversation, parent.archived
        child.preview = parent.preview
        parent.tip, child.title, parent.title = False, parent.title, None
        self.add(child, "user", "summary", "summary")
        self._copy(child, tail)
        self.follow(parent.id, child_id)

    def _copy(self, child: Session, messages: list[Message]) -> None:
        for message in messages:
            kind = "summary" if message.kind == "summary" else "copy"
            self.add(child, message.role, message.content, kind, message.origin)

    def have_count(self, session: Session, messages: list[Message], *, active: bool) -> None:
        """Have messages count or not, wherever their conversation has them."""
        origins = {message.origin for message in messages}
        for member in self.conversation(session):
            for message in member.messages:
                if message.origin in origins:
                    message.active = active

    def undo(self, child: Session) -> None:
        assert child.parent is not None
        parent = self.sessions[child.parent]
        spoken = [m for m in child.messages if m.kind == "message"]
        parent.messages = sorted(parent.messages + spoken, key=lambda m: m.number)
        child.messages = [m for m in child.messages if m.kind != "message"]
        parent.tip, parent.title, parent.reason = True, child.title, child.reason
        parent.last = max(parent.last, child.last)
        child.relation, child.tip, child.title = "undone", False, None
        child.reason = "compression_undone"
        self.follow(child.id, parent.id)

    def branch(self, parent: Session, child_id: str) -> None:
        title = self.title_of(parent)
        child = self.create(child_id, parent.source, like=parent)
        child.parent, child.relation = parent.id, "branch"
        self._copy(child, parent.active)
        child.title = self.next_title(title) if title is not None else None

    def follow(self, old: str, new: str) -> None:
        self.routes = {key: new if id_ == old else id_ for key, id_ in self.routes.items()}

    def delete(self, chosen: list[Session]) -> None:
        doomed = {s.id for root in chosen for s in self.conversation(root)}
        while True:
            more = {
                member.id
                for s in self.sessions.values()
                if s.relation == "delegate" and s.parent in doomed
                for member in self.conversation(s)
            }
            if more <= doomed:
                break
            doomed |= more
        self.remove(doomed)
        self.routes = {key: id_ for key, id_ in self.routes.items() if id_ not in doomed}

    def remove(self, doomed: set[str]) -> None:
        for id_ in doomed:
            del self.sessions[id_]
        for s in self.sessions.values():
            if s.parent in doomed:
                s.parent = s.relation = None

    def ghosts(self) -> list[Session]:
        parents = {s.parent for s in self.sessions.values()}
        return [
            s
            for s in self.sessions.values()
            if s.source == "tui"
            and s.title is None
            and s.reason is not None
            and not s.messages
            and s.started < self.now() - DAY_S
            and s.id not in parents
        ]

    def orphans(self) -> list[Session]:
        return [
            s
            for s in self.sessions.values()
            if s.reason is None
            and s.messages
            and s.started < self.now() - 7 * DAY_S
            and s.parent is not None
            and s.relation == "continuation"
            and self.sessions[s.parent].reason == "compression"
        ]

    def old(self) -> list[Session]:
        return [
            s
            for s in self.sessions.values()
            if s.tip
            and not s.archived
            and s.relation != "delegate"
            and s.reason is not None
            and s.last < self.now() - 90 * DAY_S
        ]


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.time = 1_700_000_000.0
        self.closing = ExitStack()
        self.closing.enter_context(clock.replaced(lambda: self.time))
        self.folder = Path(self.closing.enter_context(tempfile.TemporaryDirectory()))
        self.model = Model(lambda: self.time)
        self.places = itertools.count(1)
        self.names = itertools.count(1)
        self.path = self.folder / "state.db"
        self.store = SessionDB(self.path)

    def teardown(self) -> None:
        self.store.close()
        self.closing.close()

    def pick(self, number: int) -> Session:
        everybody = list(self.model.sessions.values())
        return everybody[number % len(everybody)]

    def new_name(self) -> str:
        self.time += 1
        return f"s{next(self.names):03}"

    # -- steps ---------------------------------------------------------------------------------

    @rule(source=st.sampled_from(["cli", "tui"]))
    def create(self, source: str) -> None:
        name = self.new_name()
        self.store.create_session(name, source)
        self.model.create(name, source)
        if source == "cli":
            self.store.write(route_ledger.save, Route(f"key {name}"), name)
            self.model.routes[f"key {name}"] = name

    @precondition(lambda self: self.model.sessions)
    @rule(number=choices)
    def create_again_changes_nothing(self, number: int) -> None:
        self.store.create_session(self.pick(number).id, "other")

    @precondition(lambda self: self.model.sessions)
    @rule(number=choices)
    def delegate(self, number: int) -> None:
        parent, name = self.pick(number), self.new_name()
        self.store.create_session(
            name, "cli", parent_session_id=parent.id, model_config={"_delegate_from": parent.id}
        )
        child = self.model.create(name, "cli")
        child.parent, child.relation = parent.id, "delegate"

    @precondition(lambda self: self.model.sessions)
    @rule(number=choices, role=st.sampled_from(["user", "assistant"]))
    def append(self, number: int, role: str) -> None:
        self.time += 1
        session = self.pick(number)
        message = self.model.add(session, role, f"message {self.time:.0f}")
        self.store.append_message(session.id, role, message.content)

    @precondition(lambda self: self.model.sessions)
    @rule(number=choices, title=titles)
    def entitle(self, number: int, title: str | None) -> None:
        session = self.pick(number)
        if session.relation == "undone":
            return
        holder = self.model.holder(title) if title is not None else None
        if holder is not None and holder.conversation != session.conversation:
            with pytest.raises(TitleError):
                self.store.set_session_title(session.id, title)
            return
        assert self.store.set_session_title(session.id, title)
        if holder is not None:
            holder.title = None
        session.title = title

    @precondition(lambda self: self.model.sessions)
    @rule(number=choices)
    def end(self, number: int) -> None:
        session = self.pick(number)
        self.store.end_session(session.id, "user")
        session.reason = session.reason or "user"

    @precondition(lambda self: self.model.sessions)
    @rule(number=choices)
    def reopen_session(self, number: int) -> None:
        session = self.pick(number)
        self.store.write(sessions.reopen, session.id)
        session.reason = None

    @precondition(lambda self: self.model.sessions)
    @rule(number=choices, tail=st.integers(0, 3))
    def rotate(self, number: int, tail: int) -> None:
        session, name = self.pick(number), self.new_name()
        tail_messages = session.active[len(session.active) - tail :] if tail else []
        ids = [m["id"] for m in self.store.get_messages_as_conversation(session.id)]
        carried: list[Any] = [{"role": "user", "content": "summary"}]
        carried += ids[len(ids) - tail :] if tail else []
        if not session.tip:
            with pytest.raises(StoreError):
                self.store.write(lineage.rotate, session.id, carried, child_id=name)
            return
        assert self.store.write(lineage.rotate, session.id, carried, child_id=name) == name
        self.model.rotate(session, name, tail_messages)

    @precondition(lambda self: self.model.sessions)
    @rule(number=choices)
    def undo(self, number: int) -> None:
        session = self.pick(number)
        child = self.model.tip(session)
        if child.relation != "continuation":
            with pytest.raises(StoreError):
                self.store.write(lineage.undo_rotation, session.id)
            return
        assert self.store.write(lineage.undo_rotation, session.id) == child.parent
        self.model.undo(child)

    @precondition(lambda self: self.model.sessions)
    @rule(number=choices)
    def branch(self, number: int) -> None:
        session, name = self.pick(number), self.new_name()
        if not session.active:
            with pytest.raises(NothingSaidError):
                self.store.write(lineage.branch, session.id, child_id=name)
            return
        self.store.write(lineage.branch, session.id, child_id=name)
        self.model.branch(session, name)

    @precondition(lambda self: self.model.sessions)
    @rule(number=choices, back=choices)
    def rewind(self, number: int, back: int) -> None:
        session = self.pick(number)
        stored = self.store.get_messages_as_conversation(session.id)
        users = [i for i, message in enumerate(session.active) if message.role == "user"]
        if not users:
            return
        position = users[back % len(users)]
        result = self.store.write(message_ledger.rewind, session.id, stored[position]["id"])
        rewound = session.active[position:]
        assert result["rewound_count"] == len(rewound)
        self.model.have_count(session, rewound, active=False)

    @precondition(lambda self: self.model.sessions)
    @rule(number=choices)
    def restore(self, number: int) -> None:
        session = self.pick(number)
        count = self.store.write(message_ledger.restore, session.id, 0)
        assert count == len(session.messages) - len(session.active)
        restored = [message for message in session.messages if not message.active]
        self.model.have_count(session, restored, active=True)

    @precondition(lambda self: self.model.sessions)
    @rule(number=choices, archived=st.booleans())
    def archive(self, number: int, archived: bool) -> None:
        session = self.pick(number)
        assert self.store.write(sessions.set_archived, session.id, archived)
        for member in self.model.conversation(session):
            member.archived = archived

    @precondition(lambda self: self.model.sessions)
    @rule(number=choices)
    def delete(self, number: int) -> None:
        session = self.pick(number)
        assert self.store.write(sessions.delete, [session.id])
        self.model.delete([session])

    @rule(days=st.sampled_from([2, 10, 60]))
    def wait(self, days: int) -> None:
        self.time += days * DAY_S

    @rule()
    def prune(self) -> None:
        old = self.model.old()
        assert self.store.prune_sessions(90) == len(old)
        self.model.delete(old)

    @rule()
    def prune_ghosts(self) -> None:
        ghosts = self.model.ghosts()
        assert self.store.prune_empty_ghost_sessions() == len(ghosts)
        for ghost in ghosts:
            if ghost.relation == "continuation":
                assert ghost.parent is not None
                self.model.sessions[ghost.parent].tip = True
        self.model.remove({ghost.id for ghost in ghosts})

    @rule()
    def finalize_orphans(self) -> None:
        orphans = self.model.orphans()
        assert self.store.finalize_orphaned_compression_sessions() == len(orphans)
        for orphan in orphans:
            orphan.reason = "orphaned_compression"

    @rule()
    def reopen_the_file(self) -> None:
        self.store.close()
        self.store = SessionDB(self.path)

    @rule()
    def crash(self) -> None:
        """Go on with the files as a kill would leave them: nothing closed, nothing checkpointed."""
        place = self.folder / str(next(self.places))
        place.mkdir()
        for suffix in ("", "-wal"):
            if (source := self.path.with_name(f"state.db{suffix}")).exists():
                shutil.copyfile(source, place / source.name)
        before, self.path = self.store, place / "state.db"
        self.store = SessionDB(self.path)
        before.close()

    # -- what must hold after each -------------------------------------------------------------

    @invariant()
    def the_store_is_sound(self) -> None:
        assert self.store.check() == []

    @invariant()
    def the_store_is_the_model(self) -> None:
        rows = self.store.list_sessions_rich(
            limit=None, include_children=True, include_archived=True
        )
        assert {row["id"] for row in rows} == self.model.sessions.keys()
        for row in rows:
            expected = self.model.sessions[row["id"]]
            assert _fields(row) == _meant(expected)
            stored = self.store.read(message_ledger.of_session, row["id"], include_inactive=True)
            assert [(m["role"], m["content"], m["kind"], m["active"]) for m in stored] == [
                (m.role, m.content, m.kind, m.active) for m in expected.messages
            ]
        routes = {key: row["session_id"] for key, row in self.store.read(route_ledger.load).items()}
        assert routes == self.model.routes

    @invariant()
    def the_list_shows_the_tips_the_latest_first(self) -> None:
        tips = [
            s
            for s in self.model.sessions.values()
            if s.tip and not s.archived and s.relation != "delegate"
        ]
        listed = [row["last_active_at"] for row in self.store.list_sessions_rich(limit=None)]
        assert listed == sorted((s.last for s in tips), reverse=True)


def _fields(row: dict[str, Any]) -> tuple[Any, ...]:
    return (
        row["source"], row["conversation_id"], row["parent_session_id"], row["relation"],
        row["depth"], bool(row["is_tip"]), row["title"], row["preview"], row["end_reason"],
        bool(row["archived"]), row["message_count"], row["started_at"], row["last_active_at"],
    )  # fmt: skip


def _meant(session: Session) -> tuple[Any, ...]:
    return (
        session.source, session.conversation, session.parent, session.relation, session.depth,
        session.tip, session.title, session.preview, session.reason, session.archived,
        len(session.active), session.started, session.last,
    )  # fmt: skip


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=examples(12),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestStoreMachine = pytest.mark.promise("P5")(TestStoreMachine)
