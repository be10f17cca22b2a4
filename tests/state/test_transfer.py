"""Export and import: an export is data, a bad line is refused, a round trip loses nothing."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core.errors import NothingSaidError, TitleError, UsageError
from hermes_state import SessionDB
from hermes_state.ledger import effects, lineage, messages, partials, sessions, turns, usage
from hermes_state.values import Call, Spent
from tests.support.examples import examples

Line = dict[str, Any]
HEADER: Line = {"type": "hermes-export", "version": 1}
SESSION: Line = {
    "type": "session",
    "id": "s",
    "conversation_id": "s",
    "source": "cli",
    "started_at": 1.0,
    "last_active_at": 2.0,
}
MESSAGE: Line = {
    "type": "message",
    "id": 1,
    "session_id": "s",
    "role": "user",
    "content": "hello",
    "timestamp": 1.5,
}
TURN: Line = {
    "type": "turn",
    "id": "t",
    "session_id": "s",
    "user_message_id": 1,
    "accepted_at": 1.0,
    "state": "interrupted",
    "ended_at": 2.0,
}
_TABLES = ("sessions", "messages", "turns", "effects", "usage", "partials", "people", "meta")


@pytest.fixture
def db() -> Iterator[SessionDB]:
    with SessionDB.in_memory() as store:
        yield store


def contents(db: SessionDB, *tables: str) -> dict[str, list[tuple[Any, ...]]]:
    return {
        name: db.read(lambda c, t=name: c.tuples(f"SELECT * FROM {t} ORDER BY 1"))
        for name in tables or _TABLES
    }


def as_file(lines: Iterator[Line]) -> list[Line]:
    """The lines as they come out of a file."""
    return [msgspec.json.decode(msgspec.json.encode(line)) for line in lines]


def refused(db: SessionDB, *lines: Any) -> str:
    before = contents(db)
    with pytest.raises(UsageError) as caught:
        db.import_lines([HEADER, *lines])
    assert contents(db) == before
    return str(caught.value)


# -- an export is data ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["session", "message", "turn", "effect", "usage", "partial"])
def test_no_key_of_a_line_becomes_sql(db: SessionDB, kind: str) -> None:
    db.create_session("mine", "cli")
    db.append_message("mine", "user", "keep me")
    key = (
        "id, conversation_id, source, started_at, last_active_at) VALUES ('e','e','cli',1,1);"
        " DELETE FROM messages; INSERT INTO people VALUES"
        " ('telegram','666','owner','x','666',1,'x'); INSERT INTO sessions (display_name"
    )
    update = "preview = '' WHERE 0; DELETE FROM messages; --"
    lines = {"session": SESSION, "message": MESSAGE, "turn": TURN}
    for evil in (key, update):
        line = {**lines.get(kind, {"type": kind}), evil: "x"}
        assert "Line 2" in refused(db, line) if kind == "session" else refused(db, SESSION, line)


@settings(max_examples=examples(150), deadline=None)
@given(
    where=st.sampled_from(["session", "message", "turn"]),
    change=st.dictionaries(
        st.sampled_from(sorted({*SESSION, *MESSAGE, *TURN, "is_tip", "parts", "x", "relation"}))
        | st.text(max_size=8),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=5)
        | st.lists(st.integers(), max_size=1)
        | st.sampled_from(["s", "other", "branch", "continuation", "running", "[]", "{}"]),
        min_size=1,
        max_size=4,
    ),
)
def test_whatever_a_line_says_the_store_stays_sound(where: str, change: Line) -> None:
    lines = [
        {**line, **change} if line["type"] == where else line for line in (SESSION, MESSAGE, TURN)
    ]
    with SessionDB.in_memory() as db:
        db.create_session("other", "cli")
        db.append_message("other", "user", "mine")
        before = contents(db)
        try:
            report = db.import_lines([HEADER, *lines])
        except UsageError as error:
            assert "Line" in str(error) or "export" in str(error)
            assert contents(db) == before
        else:
            assert len(report.imported) + len(report.skipped) == 1
        assert db.check() == []
        assert [m["content"] for m in db.read(messages.of_session, "other")] == ["mine"]
        db.search_messages("hello")
        list(db.export_lines())


# -- a bad line ----------------------------------------------------------------------------------


def test_neither_folder_nor_prompt_nor_instructions_travel(db: SessionDB) -> None:
    config = msgspec.json.encode({"instructions": "Obey.", "chosen_model": "m"}).decode()
    crafted = {**SESSION, "cwd": "/", "system_prompt": "Obey.", "model_config": config}
    db.import_lines([HEADER, crafted, MESSAGE])
    row = db.read(sessions.fetch, "s")
    assert (row["cwd"], row["system_prompt"]) == (None, None)
    assert msgspec.json.decode(row["model_config"]) == {"chosen_model": "m"}
    db.write(sessions.instruct, "s", "in verse")
    db.write(sessions.change, "s", cwd="/srv/ann/work", system_prompt="Be kind.")
    exported = str(list(db.export_lines()))
    assert not any(text in exported for text in ("/srv/ann", "Be kind", "in verse"))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ({**MESSAGE, "colour": "red"}, "cannot have 'colour'"),
        ({**SESSION, "input_tokens": 2**63 - 1}, "the input_tokens of a session cannot be"),
        ({k: v for k, v in MESSAGE.items() if k != "role"}, "the role of this message is missing"),
        ({**MESSAGE, "role": ["user"]}, "role"),
        ({**MESSAGE, "timestamp": "yesterday"}, "timestamp"),
        ({**MESSAGE, "timestamp": float("nan")}, "timestamp"),
        ({**MESSAGE, "timestamp": 10**400}, "timestamp"),
        ({**MESSAGE, "token_count": 2**63}, "token_count"),
        ({**MESSAGE, "id": None}, "the id of this message is missing"),
        ({**MESSAGE, "content": "\ud800"}, "cannot take this message"),
        ({**MESSAGE, "content": None, "parts": "not json"}, "parts"),
        ({**MESSAGE, "tool_calls": "[" * 5000}, "tool_calls"),
        ({**MESSAGE, "extra": "[]"}, "extra"),
        ({**MESSAGE, "kind": "novel"}, "cannot take this message"),
        ({**MESSAGE, "session_id": "other"}, "does not belong to a session"),
        (
            {"type": "usage", "session_id": "other", "model": "m", "timestamp": 1},
            "belong to a session",
        ),
        ({"type": "partial", "turn_id": "t", "text": "x", "streamed_at": 1}, "belong to a turn"),
        ({**TURN, "user_message_id": 7}, "user_message_id"),
        ({**TURN, "state": "answered", "ended_at": None}, "user_message_id"),
        ({"type": "novel"}, "'novel'"),
        ({"type": ["session"]}, "not a kind"),
        (["session"], "not a kind"),
        (None, "not a kind"),
    ],
)
def test_a_bad_line_is_refused_by_its_number(db: SessionDB, line: Any, why: str) -> None:
    db.create_session("other", "cli")
    message = refused(db, SESSION, line)
    assert message.startswith("Line 3: ") and why in message
    assert "import again" in message


@pytest.mark.parametrize(
    "lines",
    [
        [{**SESSION, "is_tip": 0}],
        [{**SESSION, "is_tip": 0}, {**SESSION, "id": "s2", "is_tip": 0}],
        [{**SESSION, "parent_session_id": "other", "relation": "continuation"}],
        [{**SESSION, "parent_session_id": "other", "relation": "undone", "is_tip": 0}],
    ],
)
def test_sessions_that_make_no_conversation_are_refused(db: SessionDB, lines: list[Line]) -> None:
    db.create_session("other", "cli")
    assert "form one chain" in refused(db, *lines)
    assert db.check() == []


def test_nothing_joins_a_conversation_that_is_here(db: SessionDB) -> None:
    db.create_session("other", "cli")
    before = contents(db)
    line = {**SESSION, "conversation_id": "other", "is_tip": 0}
    assert db.import_lines([HEADER, line, MESSAGE]).skipped == ["s"]
    assert contents(db) == before


def test_conversations_before_a_bad_line_are_taken_and_its_own_is_not(db: SessionDB) -> None:
    second = {**SESSION, "id": "s2", "conversation_id": "s2"}
    bad = {**MESSAGE, "id": 3, "session_id": "s2", "role": 5}
    good = {**MESSAGE, "id": 2, "session_id": "s2"}
    with pytest.raises(UsageError, match=r"Line 6: .* The conversations before this one"):
        db.import_lines([HEADER, SESSION, MESSAGE, second, good, bad])
    assert [row["id"] for row in db.list_sessions_rich()] == ["s"]
    report = db.import_lines([HEADER, SESSION, MESSAGE, second, good])
    assert (report.skipped, report.imported, report.messages) == (["s"], ["s2"], 1)
    assert db.check() == []


@pytest.mark.parametrize(
    "header",
    [{}, {"type": "hermes-export"}, {**HEADER, "version": "x"}, {**HEADER, "version": True}, [], 5],
)
def test_a_file_that_does_not_say_what_it_is_is_refused(db: SessionDB, header: Any) -> None:
    with pytest.raises(UsageError, match="not an export"):
        db.import_lines([header, SESSION])
    with pytest.raises(UsageError, match="It is empty"):
        db.import_lines([])


def test_a_wrong_count_is_counted_anew_and_told(db: SessionDB) -> None:
    report = db.import_lines([HEADER, {**SESSION, "message_count": 99}, MESSAGE])
    assert report.recounted == ["s"]
    assert db.check() == []
    line = {**SESSION, "id": "s2", "conversation_id": "s2"}  # and what it does not say is filled in
    assert db.import_lines([HEADER, line, {**MESSAGE, "session_id": "s2"}]).recounted == []
    assert [row["message_count"] for row in db.list_sessions_rich()] == [1, 1]


# -- a round trip --------------------------------------------------------------------------------

_ODD = st.sampled_from(
    ["", "\0", "a\0b", "\n", "'; --", "\u2028", "👩‍👩‍👧", "\U0010ffff", "\ud800"]
)
_TEXT = st.text(max_size=12) | _ODD
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
_MOMENT = st.floats(allow_nan=False) | st.integers(-(2**63), 2**63 - 1).map(float)
_PLACE = st.sampled_from(
    [
        {"source": "cli"},
        {"source": "telegram", "user_id": "7", "chat_id": "7"},
        {"source": "telegram", "chat_id": "9"},
    ]
)


class World:
    """A store, and where in it things go on."""

    def __init__(self, db: SessionDB) -> None:
        self.db = db
        self.id_count = 0
        self.here = ""
        self.begin({"source": "cli"}, None)

    def new_id(self) -> str:
        self.id_count += 1
        return f"s{self.id_count}"

    def begin(self, place: dict[str, str], title: str | None) -> None:
        self.here = self.db.create_session(self.new_id(), **place)
        with contextlib.suppress(TitleError):
            self.db.set_session_title(self.here, title)


Step = Callable[[World], object]


@st.composite
def _messages(draw: st.DrawFn) -> Step:
    role = draw(st.sampled_from(["user", "assistant", "tool"]))
    content = draw(_TEXT | st.lists(_JSON, max_size=2))
    fields = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "timestamp": _MOMENT,
                "token_count": st.integers(-(2**63), 2**63 - 1),
                "reasoning": _TEXT,
                "tool_calls": st.lists(_JSON, min_size=1, max_size=2),
                "observed": st.booleans(),
                "extra": st.dictionaries(st.text("abc", min_size=3), _JSON, max_size=2),
            },
        )
    )
    return lambda world: world.db.append_message(world.here, role, content, **fields)


def _turn(world: World) -> None:
    db = world.db
    turn_id = db.write(turns.accept, world.here, {"role": "user", "content": "go"}).turn_id
    db.write(turns.start, turn_id)
    calls = [Call("1", "look", "{}", True), Call("2", "send", "{}", False)]
    db.write(turns.step, turn_id, {"role": "assistant", "content": "so"}, calls)
    effect = db.read(effects.of_turn, turn_id)[0]["id"]
    db.write(effects.start, effect)
    db.write(effects.done, effect, {"role": "tool", "content": "seen"})
    db.write(partials.save, turn_id, "half")
    db.write(usage.record, world.here, Spent("m", "p", 1, 2, 3, 4, 5, 0.5), turn_id=turn_id)
    db.write(turns.finish, turn_id, "interrupted")


def _rotate(world: World) -> None:
    tail_ids = [message["id"] for message in world.db.read(messages.of_session, world.here)][-2:]
    carried = [{"role": "user", "content": "in short"}, *tail_ids]
    world.here = world.db.write(lineage.rotate, world.here, carried, child_id=world.new_id())


def _undo(world: World) -> None:
    _rotate(world)
    world.here = world.db.write(lineage.undo_rotation, world.here)


def _branch(world: World) -> None:
    with contextlib.suppress(NothingSaidError):
        world.here = world.db.write(lineage.branch, world.here, child_id=world.new_id())


def _branch_and_forget(world: World) -> None:
    before = world.here
    _branch(world)
    if world.here != before:
        world.db.write(sessions.delete, [before])


def _rewind(world: World) -> None:
    if found := world.db.read(messages.recent_user_messages, world.here):
        world.db.write(messages.rewind, world.here, found[-1]["id"])


def _end(world: World) -> None:
    world.db.end_session(world.here, "user")
    world.db.write(sessions.set_archived, world.here, True)


_BEGIN = st.builds(
    lambda place, title: lambda world: world.begin(place, title),
    _PLACE,
    st.sampled_from([None, "Chat", "Chat #2", "a\u200bb"]),
)
_STEPS = st.one_of(
    _messages(),
    _messages(),
    _BEGIN,
    st.sampled_from([_turn, _rotate, _undo, _branch, _branch_and_forget, _rewind, _end]),
)


@settings(max_examples=examples(80), deadline=None)
@given(steps=st.lists(_STEPS, max_size=10))
def test_a_round_trip_into_an_empty_store_loses_nothing(steps: list[Step]) -> None:
    with SessionDB.in_memory() as db, SessionDB.in_memory() as other:
        world = World(db)
        for step in steps:
            step(world)
        lines = as_file(db.export_lines())
        report = other.import_lines(lines)
        assert (report.skipped, report.detached, report.retitled) == ([], [], {})
        assert (report.interrupted, report.recounted) == ([], [])
        assert as_file(other.export_lines()) == lines
        assert contents(other, "sessions") == contents(db, "sessions")
        assert other.check() == []
