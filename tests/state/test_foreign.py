"""Import from hermes-agent: every mapping, what is refused, and that a second run takes only news."""

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hermes_core.errors import (
    ForeignStoreError,
    HermesError,
    StoreBusyError,
    StoreCorruptError,
    UsageError,
)
from hermes_state import SessionDB
from hermes_state.foreign.importer import (
    ForeignReport,
    NotImported,
    count_messages,
    import_hermes_agent,
)
from hermes_state.foreign.source import opened
from hermes_state.ledger import lineage, listing
from hermes_state.ledger import messages as message_ledger
from hermes_state.ledger import routes as route_ledger
from hermes_state.ledger import sessions as session_ledger
from hermes_state.values import Route
from tests.support.examples import examples

SESSION_22 = """
id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, session_key TEXT, chat_id TEXT,
chat_type TEXT, thread_id TEXT, display_name TEXT, origin_json TEXT,
expiry_finalized INTEGER DEFAULT 0, model TEXT, model_config TEXT, system_prompt TEXT,
parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL, end_reason TEXT,
message_count INTEGER DEFAULT 0, tool_call_count INTEGER DEFAULT 0, input_tokens INTEGER DEFAULT 0,
output_tokens INTEGER DEFAULT 0, cache_read_tokens INTEGER DEFAULT 0,
cache_write_tokens INTEGER DEFAULT 0, reasoning_tokens INTEGER DEFAULT 0, cwd TEXT, git_branch TEXT,
git_repo_root TEXT, billing_provider TEXT, billing_base_url TEXT, billing_mode TEXT,
estimated_cost_usd REAL, actual_cost_usd REAL, cost_status TEXT, cost_source TEXT,
pricing_version TEXT, title TEXT, api_call_count INTEGER DEFAULT 0, handoff_state TEXT,
handoff_platform TEXT, handoff_error TEXT, compression_failure_cooldown_until REAL,
compression_failure_error TEXT, compression_fallback_streak INTEGER NOT NULL DEFAULT 0,
profile_name TEXT, rewind_count INTEGER NOT NULL DEFAULT 0, archived INTEGER NOT NULL DEFAULT 0
"""
MESSAGE_22 = """
id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT,
tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, effect_disposition TEXT,
timestamp REAL NOT NULL, token_count INTEGER, finish_reason TEXT, reasoning TEXT,
reasoning_content TEXT, reasoning_details TEXT, codex_reasoning_items TEXT,
codex_message_items TEXT, platform_message_id TEXT, observed INTEGER DEFAULT 0,
active INTEGER NOT NULL DEFAULT 1, compacted INTEGER NOT NULL DEFAULT 0, api_content TEXT
"""
TABLES_22 = {
    "schema_version": "version INTEGER NOT NULL",
    "sessions": SESSION_22,
    "messages": MESSAGE_22,
    "session_model_usage": """
        session_id TEXT NOT NULL, model TEXT NOT NULL, billing_provider TEXT NOT NULL DEFAULT '',
        billing_base_url TEXT NOT NULL DEFAULT '', billing_mode TEXT NOT NULL DEFAULT '',
        task TEXT NOT NULL DEFAULT '', api_call_count INTEGER NOT NULL DEFAULT 0,
        input_tokens INTEGER NOT NULL DEFAULT 0, output_tokens INTEGER NOT NULL DEFAULT 0,
        cache_read_tokens INTEGER NOT NULL DEFAULT 0, cache_write_tokens INTEGER NOT NULL DEFAULT 0,
        reasoning_tokens INTEGER NOT NULL DEFAULT 0, estimated_cost_usd REAL NOT NULL DEFAULT 0,
        actual_cost_usd REAL NOT NULL DEFAULT 0, cost_status TEXT, cost_source TEXT,
        first_seen REAL, last_seen REAL,
        PRIMARY KEY (session_id, model, billing_provider, billing_base_url, billing_mode, task)""",
    "state_meta": "key TEXT PRIMARY KEY, value TEXT",
    "gateway_routing": """
        scope TEXT NOT NULL DEFAULT '', session_key TEXT NOT NULL, entry_json TEXT NOT NULL,
        updated_at REAL NOT NULL, PRIMARY KEY (scope, session_key)""",
    "compression_locks": """
        session_id TEXT PRIMARY KEY, holder TEXT NOT NULL, acquired_at REAL NOT NULL,
        expires_at REAL NOT NULL""",
    "async_delegations": "delegation_id TEXT PRIMARY KEY, state TEXT NOT NULL",
}
TABLES_6 = {
    "schema_version": "version INTEGER NOT NULL",
    "sessions": """
        id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, model TEXT, model_config TEXT,
        system_prompt TEXT, parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL,
        end_reason TEXT, message_count INTEGER DEFAULT 0, tool_call_count INTEGER DEFAULT 0,
        input_tokens INTEGER DEFAULT 0, output_tokens INTEGER DEFAULT 0, title TEXT""",
    "messages": """
        id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL,
        content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL,
        token_count INTEGER, finish_reason TEXT""",
}


class Foreign:
    """A hermes-agent home as a test wants it."""

    def __init__(self, home: Path, version: int = 22, tables: dict[str, str] = TABLES_22) -> None:
        self.home = home
        self.path = home / "state.db"
        home.mkdir(parents=True, exist_ok=True)
        with self.open() as conn:
            conn.execute("PRAGMA journal_mode = WAL")
            for name, columns in tables.items():
                conn.execute(f"CREATE TABLE {name} ({columns})")
            conn.execute("INSERT INTO schema_version VALUES (?)", (version,))
        conn.close()
        self._clock = 1000.0

    def open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path)

    def insert(self, table: str, **row: object) -> None:
        self.run(
            f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
            *row.values(),
        )

    def run(self, sql: str, *bindings: object) -> None:
        with self.open() as conn:
            conn.execute(sql, bindings)  # type: ignore[arg-type]
        conn.close()

    def session(self, id_: str, *messages: str, **row: object) -> None:
        self._clock += 10
        config = row.pop("model_config", None)
        self.insert(
            "sessions",
            **{"id": id_, "source": "cli", "started_at": self._clock, **row},
            model_config=json.dumps(config) if config is not None else None,
        )
        for text in messages:
            self.say(id_, text)

    def say(self, session_id: str, content: object, role: str = "user", **row: object) -> None:
        self._clock += 1
        self.insert(
            "messages",
            **{"timestamp": self._clock, **row},
            session_id=session_id,
            role=role,
            content=content,
        )

    def route(self, key: str, session_id: str, updated_at: float = 1.0, scope: str = "/x") -> None:
        entry = json.dumps({"session_key": key, "session_id": session_id})
        self.insert(
            "gateway_routing", scope=scope, session_key=key, entry_json=entry, updated_at=updated_at
        )

    def write_index(self, entries: object) -> None:
        (self.home / "sessions").mkdir(exist_ok=True)
        (self.home / "sessions" / "sessions.json").write_text(json.dumps(entries))

    def files(self) -> dict[str, bytes]:
        return {str(p): p.read_bytes() for p in sorted(self.home.rglob("*")) if p.is_file()}


@pytest.fixture
def foreign(tmp_path: Path) -> Foreign:
    return Foreign(tmp_path / "foreign")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[SessionDB]:
    with SessionDB(tmp_path / "ours" / "state.db") as store:
        yield store


def take(
    db: SessionDB, path: Path, progress: Callable[[int], None] = lambda _n: None
) -> ForeignReport:
    report = import_hermes_agent(db._database, path, progress)
    assert db.check() == []
    return report


def row_of(db: SessionDB, session_id: str) -> dict[str, Any]:
    row = db.get_session(session_id)
    assert row is not None
    return row


def contents_of(db: SessionDB, session_id: str, include_inactive: bool = False) -> list[Any]:
    return [
        m["content"]
        for m in db.read(message_ledger.of_session, session_id, include_inactive=include_inactive)
    ]


def contents(db: SessionDB) -> dict[str, list[tuple[Any, ...]]]:
    """All that an import writes, without the moment at which a route was saved."""
    columns = {
        "sessions": "*",
        "messages": "*",
        "usage": "*",
        "routes": "session_key, session_id, entry",
    }
    return {
        table: db.read(lambda c, t=table, w=what: c.tuples(f"SELECT {w} FROM {t} ORDER BY 1"))
        for table, what in columns.items()
    }


# -- sessions ------------------------------------------------------------------------------------


def test_a_session_keeps_every_column_we_have_and_the_rest_beside_them(
    db: SessionDB, foreign: Foreign
) -> None:
    same: dict[str, object] = {
        "source": "telegram",
        "user_id": "u",
        "session_key": "k",
        "chat_id": "c",
        "chat_type": "dm",
        "thread_id": "t",
        "display_name": "Ann",
        "model": "m",
        "profile_name": "p",
        "title": "Tea",
        "ended_at": 2000.0,
        "end_reason": "cli_close",
        "rewind_count": 2,
        "archived": 1,
        "api_call_count": 4,
        "input_tokens": 10,
        "output_tokens": 20,
        "cache_read_tokens": 30,
        "cache_write_tokens": 40,
        "reasoning_tokens": 50,
    }
    beside = {
        "git_branch": "main",
        "billing_provider": "bp",
        "handoff_state": "completed",
        "cost_status": "final",
        "origin_json": '{"a":1}',
        "compression_fallback_streak": 3,
        "estimated_cost_usd": 1.0,
        "actual_cost_usd": 0.25,
    }
    foreign.session("s", "hello", model_config={"temperature": 1}, **same, **beside)
    report = take(db, foreign.path)
    row = row_of(db, "s")
    assert {name: row[name] for name in same} == same
    assert json.loads(row["model_config"]) == {"temperature": 1}
    assert row["cost_usd"] == 0.25
    assert (row["started_at"], row["last_active_at"]) == (1010.0, 1011.0)
    assert (row["message_count"], row["preview"]) == (1, "hello")
    extra = json.loads(row["extra"])
    assert {name: extra[name] for name in beside} == beside
    assert set(extra) == {*beside, "hermes_agent"}
    assert report.imported == (1, 1, 0, 1)


def test_the_estimated_cost_counts_when_nothing_else_is_known(
    db: SessionDB, foreign: Foreign
) -> None:
    foreign.session("s", estimated_cost_usd=0.5)
    foreign.session("free", estimated_cost_usd=0.5, actual_cost_usd=0.0)
    take(db, foreign.path)
    assert row_of(db, "s")["cost_usd"] == 0.5
    assert row_of(db, "free")["cost_usd"] == 0.0


def test_half_an_end_is_made_whole_and_noted(db: SessionDB, foreign: Foreign) -> None:
    foreign.session("no-reason", "x", ended_at=3000.0)
    foreign.session("no-time", "x", "y", end_reason="cli_close")
    report = take(db, foreign.path)
    assert (row_of(db, "no-reason")["end_reason"]) == "unknown"
    assert row_of(db, "no-time")["ended_at"] == row_of(db, "no-time")["last_active_at"]
    assert sorted(report.completed) == ["no-reason", "no-time"]


def test_neither_folder_nor_prompt_nor_instructions_are_taken_over(
    db: SessionDB, foreign: Foreign
) -> None:
    config = {"instructions": "Obey.", "temperature": 1}
    foreign.session("s", "hello", cwd="/", system_prompt="Obey.", model_config=config)
    take(db, foreign.path)
    row = row_of(db, "s")
    assert (row["cwd"], row["system_prompt"]) == (None, None)
    assert json.loads(row["model_config"]) == {"temperature": 1}
    assert "Obey" not in str(row)


def test_values_of_the_wrong_type_do_not_stop_an_import(db: SessionDB, foreign: Foreign) -> None:
    foreign.session(
        "s", model_config=None, input_tokens="many", display_name=b"Ann", started_at="long ago"
    )
    foreign.run("UPDATE sessions SET model_config = 'not json'")
    foreign.say("s", b"bytes", tool_calls="{broken", token_count="x", timestamp="then")
    take(db, foreign.path)
    row = row_of(db, "s")
    assert (row["input_tokens"], row["display_name"], row["started_at"]) == (0, "Ann", 0.0)
    assert json.loads(row["extra"])["model_config"] == "not json"
    (message,) = db.read(message_ledger.of_session, "s")
    assert (message["content"], message["tool_calls"], message["timestamp"]) == ("bytes", None, 0.0)
    assert message["extra"] == {"tool_calls_text": "{broken"}


# -- titles --------------------------------------------------------------------------------------


def test_a_title_that_is_taken_gets_the_next_number(db: SessionDB, foreign: Foreign) -> None:
    db.create_session("mine", "cli")
    db.set_session_title("mine", "Chat")
    foreign.session("a", title="Chat")
    foreign.session("b", title="Chat")
    foreign.session("c", title="Other")
    report = take(db, foreign.path)
    assert report.retitled == {"a": "Chat #2", "b": "Chat #3"}
    assert row_of(db, "c")["title"] == "Other"


def test_a_title_that_is_too_long_is_shortened(db: SessionDB, foreign: Foreign) -> None:
    foreign.session("a", title="x" * 150)
    assert take(db, foreign.path).retitled == {"a": "x" * 100}
    assert take(db, foreign.path).retitled == {}


def test_long_titles_that_begin_alike_are_told_apart(db: SessionDB, foreign: Foreign) -> None:
    for letter in "abc":
        foreign.session(letter, title="x" * 150 + letter)
    assert [title[-3:] for title in take(db, foreign.path).retitled.values()] == [
        "xxx",
        " #2",
        " #3",
    ]


def test_a_title_is_taken_only_by_who_has_it(db: SessionDB, foreign: Foreign) -> None:
    db.create_session("mine", "cli")
    db.set_session_title("mine", "Tea")
    foreign.session("hers", title="Tea", source="telegram", user_id="7", chat_id="7")
    assert take(db, foreign.path).retitled == {}
    assert row_of(db, "hers")["title"] == "Tea"


# -- lineage -------------------------------------------------------------------------------------


def test_a_compacted_line_is_one_conversation(db: SessionDB, foreign: Foreign) -> None:
    foreign.session("a", "first", title="Talk", ended_at=1.0, end_reason="compression")
    foreign.session(
        "b", "next", parent_session_id="a", title="Talk #2", ended_at=2.0, end_reason="compression"
    )
    foreign.session("c", "last", parent_session_id="b", archived=1)
    take(db, foreign.path)
    assert db.read(lineage.members, "a") == ["a", "b", "c"]
    assert db.read(lineage.tip, "a") == "c"
    assert [row_of(db, id_)["depth"] for id_ in "abc"] == [0, 1, 2]
    assert [row_of(db, id_)["archived"] for id_ in "abc"] == [1, 1, 1]
    assert row_of(db, "c")["preview"] == "first"
    assert [row_of(db, id_)["title"] for id_ in "abc"] == ["Talk", "Talk #2", None]


def test_marks_say_what_is_a_branch_and_what_is_a_delegate(db: SessionDB, foreign: Foreign) -> None:
    foreign.session("a", ended_at=1.0, end_reason="compression")
    foreign.session("branch", parent_session_id="a", model_config={"_branched_from": "a"})
    foreign.session("delegate", parent_session_id="a", model_config={"_delegate_from": "a"})
    foreign.session("tool", parent_session_id="a", source="tool")
    foreign.session("heir", parent_session_id="a")
    foreign.session("old", ended_at=1.0, end_reason="branched")
    foreign.session("legacy", parent_session_id="old")
    foreign.session("unmarked", parent_session_id="legacy")
    take(db, foreign.path)
    relations = {id_: row_of(db, id_)["relation"] for id_ in ("branch", "delegate", "tool", "heir")}
    assert relations == {
        "branch": "branch",
        "delegate": "delegate",
        "tool": "delegate",
        "heir": "continuation",
    }
    assert row_of(db, "legacy")["relation"] == "branch"
    assert row_of(db, "unmarked")["relation"] == "branch"
    assert db.read(lineage.tip, "a") == "heir"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"ended_at": 5.0, "end_reason": "compression"}, {}),
        ({}, {"ended_at": 5.0, "end_reason": "cli_close"}),
        ({"started_at": 9000.0}, {"started_at": 8000.0}),
    ],
    ids=["compacted-itself", "open", "used-last"],
)
def test_of_two_heirs_one_goes_on_and_the_other_is_a_branch(
    db: SessionDB, foreign: Foreign, first: dict[str, Any], second: dict[str, Any]
) -> None:
    foreign.session("a", "x", ended_at=1.0, end_reason="compression")
    foreign.session("loser", parent_session_id="a", **second)
    foreign.session("heir", parent_session_id="a", **first)
    take(db, foreign.path)
    assert db.read(lineage.tip, "a") == "heir"
    assert row_of(db, "loser")["relation"] == "branch"


def test_parents_that_are_missing_or_go_in_a_circle_are_cut_off(
    db: SessionDB, foreign: Foreign
) -> None:
    foreign.session("orphan", parent_session_id="gone")
    foreign.session("self", parent_session_id="self")
    compacted = {"ended_at": 1.0, "end_reason": "compression"}
    for child, parent in ("xz", "yx", "zy"):
        foreign.session(child, child, parent_session_id=parent, **compacted)
    report = take(db, foreign.path)
    assert sorted(report.detached) == ["orphan", "self", "x"]
    assert db.read(lineage.members, "x") == ["x", "y", "z"]
    assert row_of(db, "orphan")["parent_session_id"] is None


def test_a_child_may_be_older_than_its_parent(db: SessionDB, foreign: Foreign) -> None:
    foreign.session("child", "x", parent_session_id="parent", started_at=1.0)
    foreign.session("parent", "y", started_at=2.0)
    report = take(db, foreign.path)
    assert row_of(db, "child")["parent_session_id"] == "parent"
    assert report.detached == []


# -- messages ------------------------------------------------------------------------------------


def test_a_message_keeps_all_it_says(db: SessionDB, foreign: Foreign) -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]
    foreign.session("s")
    foreign.say(
        "s",
        None,
        "assistant",
        tool_calls=json.dumps(calls),
        finish_reason="tool_calls",
        token_count=7,
        reasoning="why",
        reasoning_content="because",
        reasoning_details='[{"a":1}]',
        codex_reasoning_items='[{"b":2}]',
        codex_message_items="not json",
        api_content="as sent",
        observed=1,
    )
    foreign.say(
        "s",
        '\x00json:[{"type":"text","text":"t"}]',
        "tool",
        tool_call_id="c",
        tool_name="ls",
        effect_disposition="done",
        platform_message_id="42",
    )
    take(db, foreign.path)
    step, result = db.read(message_ledger.of_session, "s")
    assert (step["tool_calls"], step["token_count"], step["observed"]) == (calls, 7, True)
    assert (step["finish_reason"], step["reasoning"]) == ("tool_calls", "why")
    assert step["extra"] == {
        "reasoning_content": "because",
        "reasoning_details": [{"a": 1}],
        "codex_reasoning_items": [{"b": 2}],
        "codex_message_items": "not json",
        "api_content": "as sent",
    }
    assert result["content"] == [{"type": "text", "text": "t"}]
    assert (result["tool_call_id"], result["tool_name"]) == ("c", "ls")
    assert (result["platform_message_id"], result["extra"]) == (
        "42",
        {"effect_disposition": "done"},
    )
    assert row_of(db, "s")["tool_call_count"] == 1


def test_content_that_only_pythons_json_reads_is_taken(db: SessionDB, foreign: Foreign) -> None:
    foreign.session("s")
    foreign.say("s", '\x00json:["half \\ud800 character", "\\u00e4"]')
    foreign.say("s", "\x00json:{broken")
    take(db, foreign.path)
    assert contents_of(db, "s") == [["half ? character", "ä"], "\x00json:{broken"]


def test_rewound_and_compacted_messages_stay_without_counting(
    db: SessionDB, foreign: Foreign
) -> None:
    foreign.session("s", message_count=99)
    foreign.say("s", "old", active=0, compacted=1)
    foreign.say("s", "rewound", active=0)
    foreign.say("s", "summary")
    take(db, foreign.path)
    assert contents_of(db, "s") == ["summary"]
    old, rewound, _ = db.read(message_ledger.of_session, "s", include_inactive=True)
    assert (old["compacted"], rewound["compacted"]) == (True, False)
    assert row_of(db, "s")["message_count"] == 1


SUMMARY = "[CONTEXT COMPACTION — REFERENCE ONLY] much was done"
LONG = "the pangolin is asleep in the reading room of the library"


def compact(foreign: Foreign, session_id: str, *messages: tuple[str, str, float | None]) -> None:
    """Compact in place: hide all rows, add a summary and copies (role, text, time) of some."""
    foreign.run(
        "UPDATE messages SET active = 0, compacted = 1 WHERE session_id = ? AND active = 1",
        session_id,
    )
    foreign.say(session_id, SUMMARY)
    for role, text, at in messages:
        foreign.say(session_id, text, role=role, **({} if at is None else {"timestamp": at}))


def test_messages_compacted_in_place_are_shown_whole_and_found_once(
    db: SessionDB, foreign: Foreign
) -> None:
    foreign.session("s", "first question")
    foreign.say("s", "first answer", role="assistant")
    foreign.say("s", LONG)
    foreign.say("s", "yes", role="assistant", timestamp=5000.0)
    compact(foreign, "s", ("user", LONG, None), ("assistant", "yes", 5000.0))
    foreign.say("s", "second question", timestamp=6000.0)
    foreign.say("s", "yes", role="assistant", timestamp=6001.0)
    compact(foreign, "s", ("user", "second question", 6000.0), ("assistant", "yes", 6001.0))
    foreign.say("s", "third question", timestamp=7000.0)
    take(db, foreign.path)
    whole = [
        "first question", "first answer", LONG, "yes", "second question", "yes", "third question",
    ]  # fmt: skip
    found = db.get_messages_as_conversation("s", include_ancestors=True)
    assert [m["content"] for m in found] == whole
    assert [m["content"] for m in db.read(message_ledger.page, "s", limit=3)] == whole[-3:]
    assert contents_of(db, "s") == [SUMMARY, "second question", "yes", "third question"]
    assert len(db.search_messages("pangolin")) == 1
    assert [hit["id"] for hit in db.search_messages("first")] == [2, 1]
    assert db.read(message_ledger.around, "s", 3)["window"][2]["content"] == LONG
    assert db.search_messages("compaction") == []


def test_short_copies_are_known_by_their_place_beside_the_summary(
    db: SessionDB, foreign: Foreign
) -> None:
    foreign.session("s", "hi")
    for role, text in (("assistant", "yes"), ("user", "and?"), ("assistant", "no"), ("user", "ok")):
        foreign.say("s", text, role=role)
    foreign.run(
        "UPDATE messages SET active = 0, compacted = 1 WHERE session_id = ? AND active = 1", "s"
    )
    for role, text in (("user", "hi"), ("assistant", "yes")):  # the first ones are kept
        foreign.say("s", text, role=role)
    foreign.say("s", SUMMARY)
    for role, text in (("assistant", "no"), ("user", "ok")):  # and the last ones
        foreign.say("s", text, role=role)
    for role, text in (("assistant", "no"), ("user", "ok"), ("assistant", "yes")):  # said anew
        foreign.say("s", text, role=role)
    compact(foreign, "s", ("user", "ok", None), ("assistant", "yes", None))
    foreign.say("s", "ok")
    take(db, foreign.path)
    whole = ["hi", "yes", "and?", "no", "ok", "no", "ok", "yes", "ok"]
    found = db.get_messages_as_conversation("s", include_ancestors=True)
    assert [m["content"] for m in found] == whole
    assert contents_of(db, "s") == [SUMMARY, "ok", "yes", "ok"]
    assert db.check() == []


@pytest.mark.parametrize("head", [0, 1, 2])
@pytest.mark.parametrize("is_hidden", [False, True])
def test_short_copies_with_new_times_are_not_shown(
    db: SessionDB, foreign: Foreign, head: int, is_hidden: bool
) -> None:
    whole = ["hi", "yes", "and?", "no", "ok", "yes"]
    foreign.session("s", *whole)
    foreign.say("s", "taken back", active=0)
    for number, time in enumerate([1000.0, 2000.0][: is_hidden + 1]):
        foreign.run("UPDATE messages SET active = 0, compacted = 1 WHERE active = 1")
        for text in (*whole[:head], f"{SUMMARY} {number}", *whole[-2:]):
            foreign.say("s", text, timestamp=time)
            time += 1e-6
        for text in ("ok", "go on", "yes"):
            foreign.say("s", text, timestamp=time + 5)
            whole.append(text)
    take(db, foreign.path)
    found = db.get_messages_as_conversation("s", include_ancestors=True)
    assert [m["content"] for m in found] == whole


def test_a_session_compacted_in_place_since_its_import_shows_all(
    db: SessionDB, foreign: Foreign
) -> None:
    foreign.session("s", "first question", LONG)
    take(db, foreign.path)
    compact(foreign, "s", ("user", LONG, None))
    assert take(db, foreign.path).updated == ["s"]
    found = db.get_messages_as_conversation("s", include_ancestors=True)
    assert [m["content"] for m in found] == ["first question", LONG]
    assert contents_of(db, "s") == [SUMMARY, LONG]
    assert db.check() == []


def test_a_newer_schema_is_taken_as_far_as_it_is_understood(
    db: SessionDB, foreign: Foreign
) -> None:
    foreign.session("s", "hello")
    foreign.run("ALTER TABLE messages ADD COLUMN mood TEXT DEFAULT 'merry'")
    foreign.run("ALTER TABLE sessions ADD COLUMN weather TEXT DEFAULT 'rain'")
    foreign.run("CREATE TABLE dreams (id TEXT)")
    foreign.run("INSERT INTO dreams VALUES ('x')")
    foreign.run("UPDATE schema_version SET version = 23")
    report = take(db, foreign.path)
    assert report.lines()[0] == (
        f"{foreign.path} has schema 23 of hermes-agent; this Hermes knows 22 and imports what it"
        " understands. Kept as extra data: sessions.weather, messages.mood."
    )
    assert NotImported("dreams", 1, "this version does not know the table") in report.not_imported
    assert db.read(message_ledger.of_session, "s")[0]["extra"] == {"mood": "merry"}
    assert msgspec.json.decode(row_of(db, "s")["extra"])["weather"] == "rain"


def test_the_order_is_that_of_writing_not_of_the_clock(db: SessionDB, foreign: Foreign) -> None:
    foreign.session("s")
    for text, at in (("one", 30.0), ("two", 10.0), ("three", 20.0)):
        foreign.say("s", text, timestamp=at)
    take(db, foreign.path)
    assert contents_of(db, "s") == ["one", "two", "three"]


# -- usage ---------------------------------------------------------------------------------------


def test_usage_is_taken_by_model_and_the_sums_are_those_of_the_session(
    db: SessionDB, foreign: Foreign
) -> None:
    foreign.session("s", input_tokens=110, output_tokens=11, api_call_count=5, actual_cost_usd=0.6)
    foreign.insert(
        "session_model_usage", session_id="s", model="m1", billing_provider="p", task="",
        api_call_count=4, input_tokens=100, output_tokens=10, estimated_cost_usd=9.0,
        actual_cost_usd=0.5, first_seen=1.0, last_seen=2.0,
    )  # fmt: skip
    foreign.insert(
        "session_model_usage", session_id="s", model="m2", task="title", api_call_count=1,
        input_tokens=10, output_tokens=1, estimated_cost_usd=0.1, billing_mode="api",
    )  # fmt: skip
    report = take(db, foreign.path)
    found = db.read(
        lambda c: c.tuples(
            "SELECT model, provider, task, input_tokens, cost_usd, timestamp FROM usage ORDER BY id"
        )
    )
    assert found == [("m1", "p", "", 100, 0.5, 2.0), ("m2", "", "title", 10, 0.1, 1010.0)]
    row = row_of(db, "s")
    assert (row["input_tokens"], row["output_tokens"], row["api_call_count"]) == (110, 11, 5)
    assert row["cost_usd"] == 0.6
    assert report.imported.usage == 2
    beside = json.loads(row["extra"])["model_usage"]
    assert [(u["model"], u["api_call_count"]) for u in beside] == [("m1", 4), ("m2", 1)]
    assert beside[1]["billing_mode"] == "api"


# -- routes --------------------------------------------------------------------------------------


def test_routes_come_from_the_database_before_the_file(db: SessionDB, foreign: Foreign) -> None:
    foreign.session("a", ended_at=1.0, end_reason="compression")
    foreign.session("b", parent_session_id="a")
    foreign.session("c")
    foreign.route("k1", "a", updated_at=5.0)
    foreign.route("k1", "c", updated_at=4.0, scope="/older")
    foreign.route("lost", "gone")
    foreign.insert(
        "gateway_routing", scope="", session_key="bad", entry_json="{nope", updated_at=1.0
    )
    foreign.write_index(
        {
            "_README": "see state.db",
            "k1": {"session_id": "c"},
            "k2": {"session_id": "c", "updated_at": "2026-01-02T10:00:00"},
            "k3": "not an entry",
            "k4": {"no": "session"},
        }
    )
    report = take(db, foreign.home)
    routes = db.read(route_ledger.load)
    assert {key: row["session_id"] for key, row in routes.items()} == {"k1": "b", "k2": "c"}
    assert json.loads(routes["k1"]["entry"]) == {"session_key": "k1", "session_id": "b"}
    assert report.imported.routes == 2
    assert report.not_imported == [
        NotImported("routes lost", 1, "its session was not imported"),
        NotImported("routes k1", 1, "the same chat has a newer entry"),
        NotImported("routes bad, k3, k4", 3, "the entry cannot be read"),
    ]


def test_of_very_many_routes_the_first_are_named(db: SessionDB, foreign: Foreign) -> None:
    for number in range(13):
        foreign.route(f"k{number}", "gone", updated_at=-number)
    assert [row.what for row in take(db, foreign.path).not_imported] == [
        "routes k0, k1, k2, k3, k4, k5, k6, k7, k8, k9 and 3 more"
    ]


def test_a_home_may_have_only_the_routes_file(db: SessionDB, tmp_path: Path) -> None:
    db.create_session("here", "telegram")
    folder = tmp_path / "gateway" / "sessions"
    folder.mkdir(parents=True)
    (folder / "sessions.json").write_text(
        json.dumps({"k": {"session_id": "here"}, "l": {"session_id": "gone"}})
    )
    report = take(db, folder.parent)
    assert (report.imported, report.not_imported) == (
        (0, 0, 1, 0),
        [NotImported("routes l", 1, "its session was not imported")],
    )
    assert count_messages(folder.parent) == 0


def test_a_routes_file_that_cannot_be_read_is_left(db: SessionDB, foreign: Foreign) -> None:
    foreign.write_index(["no", "object"])
    assert take(db, foreign.home).not_imported == [
        NotImported("routes sessions.json", 1, "the entry cannot be read")
    ]


def test_a_route_that_is_used_here_stays(db: SessionDB, foreign: Foreign) -> None:
    foreign.session("a", "x")
    foreign.session("b", "y")
    foreign.route("idle", "a")
    foreign.route("used", "a")
    take(db, foreign.path)
    db.create_session("mine", "telegram")
    db.write(route_ledger.save, Route("used"), "mine")
    foreign.run(
        "UPDATE gateway_routing SET updated_at = 1e12,"
        " entry_json = json_set(entry_json, '$.session_id', 'b')"
    )
    assert take(db, foreign.path).imported.routes == 1
    assert {key: row["session_id"] for key, row in db.read(route_ledger.load).items()} == {
        "idle": "b",
        "used": "mine",
    }


# -- what is left --------------------------------------------------------------------------------


def test_what_is_not_taken_is_counted_with_its_reason(db: SessionDB, foreign: Foreign) -> None:
    foreign.insert("compression_locks", session_id="s", holder="h", acquired_at=1, expires_at=2)
    foreign.insert("async_delegations", delegation_id="d", state="running")
    foreign.insert("state_meta", key="goal:s", value="{}")
    foreign.insert("state_meta", key="last_auto_prune", value="1")
    foreign.run("CREATE TABLE delivery_obligations (obligation_id TEXT)")
    foreign.run("CREATE TABLE telegram_dm_topic_mode (chat_id TEXT)")
    foreign.run("CREATE TABLE novelty (x)")
    for table in ("delivery_obligations", "telegram_dm_topic_mode", "novelty"):
        foreign.run(f"INSERT INTO {table} VALUES (1)")
    foreign.run("CREATE VIRTUAL TABLE messages_fts USING fts5(content)")
    foreign.run("INSERT INTO messages_fts VALUES ('x')")
    foreign.say("nobody", "lost words")
    report = take(db, foreign.path)
    assert {row.what: row.number for row in report.not_imported} == {
        "compression_locks": 1,
        "async_delegations": 1,
        "state_meta": 2,
        "goals": 1,
        "delivery_obligations": 1,
        "telegram_dm_topic_mode": 1,
        "novelty": 1,
        "messages": 1,
    }
    assert all(row.why for row in report.not_imported)
    assert count_messages(foreign.path) == 0


def test_the_report_reads_as_text(db: SessionDB, foreign: Foreign) -> None:
    foreign.session("a", "x", title="T", parent_session_id="gone", ended_at=1.0)
    foreign.session("b", title="T")
    foreign.insert("state_meta", key="k", value="v")
    assert take(db, foreign.path).lines() == [
        "Imported 2 sessions, 1 messages, 0 usage rows, 0 routes.",
        "b is now titled 'T #2'.",
        "Without their parent: a.",
        "Incomplete end completed: a.",
        "Not imported: state_meta (1), they are notes of hermes-agent about its own file.",
    ]
    foreign.say("a", "more")
    assert take(db, foreign.path).lines()[:3] == [
        "Imported 0 sessions, 1 messages, 0 usage rows, 0 routes.",
        "Updated: a.",
        "Already imported: 1 sessions.",
    ]


# -- older schemas -------------------------------------------------------------------------------


def test_an_old_schema_is_read_as_far_as_it_goes(db: SessionDB, tmp_path: Path) -> None:
    foreign = Foreign(tmp_path / "foreign", 6, TABLES_6)
    foreign.session("a", "hi", model="m", input_tokens=5, ended_at=1.0, end_reason="compression")
    foreign.session("b", "on", parent_session_id="a")
    foreign.session("sub", "do it", parent_session_id="b")
    report = take(db, foreign.path)
    assert report.imported == (3, 3, 0, 1)
    assert contents_of(db, "a") == ["hi"]
    assert db.read(lineage.tip, "a") == "b"
    # Before version 16 delegates bear no mark.
    assert row_of(db, "sub")["relation"] == "delegate"
    (usage,) = db.read(lambda c: c.tuples("SELECT model, input_tokens FROM usage"))
    assert usage == ("m", 5)
    assert row_of(db, "a")["input_tokens"] == 5


# -- again ---------------------------------------------------------------------------------------


def filled(foreign: Foreign) -> None:
    foreign.session("a", "first", "second", title="T", ended_at=1.0, end_reason="compression")
    foreign.session("b", "third", parent_session_id="a")
    foreign.session("c", "fourth", title="T", model_config={"_branched_from": "a"},
                    parent_session_id="a", input_tokens=3, model="m")  # fmt: skip
    foreign.session("d", "fifth", title="U")
    foreign.route("k", "b")


def test_a_second_run_takes_nothing(db: SessionDB, foreign: Foreign) -> None:
    filled(foreign)
    take(db, foreign.path)
    before = contents(db)
    report = take(db, foreign.path)
    assert report.imported == (0, 0, 0, 0)
    assert sorted(report.skipped) == ["a", "b", "c", "d"]
    assert (report.retitled, report.detached, report.completed) == ({}, [], [])
    assert contents(db) == before


def test_an_upgrade_of_the_schema_is_no_news(db: SessionDB, tmp_path: Path) -> None:
    foreign = Foreign(tmp_path / "foreign", 6, TABLES_6)
    foreign.session("a", "hi")
    take(db, foreign.path)
    foreign.run("ALTER TABLE sessions ADD COLUMN archived INTEGER NOT NULL DEFAULT 0")
    foreign.run("UPDATE schema_version SET version = 22")
    assert take(db, foreign.path).skipped == ["a"]


def test_what_was_taken_is_searched_by_when_it_was_said(db: SessionDB, foreign: Foreign) -> None:
    db.create_session("here", "cli")
    db.append_message("here", "user", "first of all")
    filled(foreign)
    take(db, foreign.path)
    assert [hit["session_id"] for hit in db.search_messages("first")] == ["here", "a"]


def test_a_session_that_grew_gets_its_new_messages(db: SessionDB, foreign: Foreign) -> None:
    filled(foreign)
    take(db, foreign.path)
    foreign.say("c", "more", "assistant")
    foreign.run("UPDATE messages SET active = 0, compacted = 1 WHERE content = 'fourth'")
    foreign.run("UPDATE sessions SET input_tokens = 8, title = 'New' WHERE id = 'c'")
    foreign.session("e", "sixth")
    db.write(session_ledger.set_archived, "c", True)
    report = take(db, foreign.path)
    assert report.imported[:2] == (1, 2)
    assert report.updated == ["c"]
    assert contents_of(db, "c") == ["more"]
    assert contents_of(db, "c", include_inactive=True) == ["fourth", "more"]
    assert not db.read(message_ledger.of_session, "c", include_inactive=True)[0]["active"]
    row = row_of(db, "c")
    assert (row["input_tokens"], row["title"], row["archived"]) == (8, "New", 1)
    assert take(db, foreign.path).updated == []


def test_a_conversation_compacted_since_goes_on_in_its_new_session(
    db: SessionDB, foreign: Foreign
) -> None:
    filled(foreign)
    take(db, foreign.path)
    foreign.run("UPDATE sessions SET ended_at = 9.0, end_reason = 'compression' WHERE id = 'b'")
    foreign.session("b2", "on", parent_session_id="b")
    take(db, foreign.path)
    assert db.read(route_ledger.load)["k"]["session_id"] == "b2"
    assert db.read(lineage.members, "a") == ["a", "b", "b2"]
    foreign.say("b", "late")
    assert take(db, foreign.path).updated == ["b"]


def test_a_conversation_that_went_on_here_is_left_alone(db: SessionDB, foreign: Foreign) -> None:
    filled(foreign)
    take(db, foreign.path)
    db.append_message("d", "user", "said here")
    foreign.say("d", "said there")
    foreign.run("UPDATE sessions SET ended_at = 9.0, end_reason = 'compression' WHERE id = 'd'")
    foreign.session("d2", "on", parent_session_id="d")
    report = take(db, foreign.path)
    assert contents_of(db, "d") == ["fifth", "said here"]
    assert row_of(db, "d")["ended_at"] is None
    assert row_of(db, "d2")["relation"] == "branch"
    assert report.not_imported == [
        NotImported(
            "session d", 1, "the conversation continued in both programs (new messages there: 1)"
        )
    ]


def test_a_history_that_was_rewritten_there_is_left_alone(db: SessionDB, foreign: Foreign) -> None:
    filled(foreign)
    take(db, foreign.path)
    foreign.run("DELETE FROM messages WHERE content = 'first'")
    foreign.say("a", "new first")
    report = take(db, foreign.path)
    assert contents_of(db, "a") == ["first", "second"]
    assert [row.what for row in report.not_imported] == ["session a"]


def test_a_title_given_here_stays(db: SessionDB, foreign: Foreign) -> None:
    filled(foreign)
    take(db, foreign.path)
    db.set_session_title("d", "Mine")
    foreign.run("UPDATE sessions SET title = 'Theirs' WHERE id = 'd'")
    foreign.say("d", "more")
    take(db, foreign.path)
    assert (row_of(db, "d")["title"], contents_of(db, "d")) == ("Mine", ["fifth", "more"])


def test_a_session_that_began_here_is_not_touched(db: SessionDB, foreign: Foreign) -> None:
    db.create_session("s", "cli")
    foreign.session("s", "theirs")
    foreign.session("child", parent_session_id="s")
    foreign.run("UPDATE sessions SET ended_at = 9.0, end_reason = 'compression' WHERE id = 's'")
    report = take(db, foreign.path)
    assert (contents_of(db, "s"), report.skipped) == ([], ["s"])
    assert row_of(db, "child")["relation"] == "branch"


@pytest.mark.parametrize("after", range(3))
def test_an_import_that_was_killed_is_finished_by_the_next(
    tmp_path: Path, foreign: Foreign, after: int
) -> None:
    filled(foreign)
    calls: list[int] = []

    def stop(messages: int) -> None:
        calls.append(messages)
        if len(calls) > after:
            raise KeyboardInterrupt

    with SessionDB(tmp_path / "whole.db") as whole, SessionDB(tmp_path / "cut.db") as cut:
        take(whole, foreign.path)
        with pytest.raises(KeyboardInterrupt):
            import_hermes_agent(cut._database, foreign.path, stop)
        assert cut.check() == []
        take(cut, foreign.path)
        assert contents(cut) == contents(whole)


def test_progress_adds_up_to_all_messages(db: SessionDB, foreign: Foreign) -> None:
    filled(foreign)
    reported: list[int] = []
    take(db, foreign.path, reported.append)
    assert reported == [3, 1, 1]
    assert sum(reported) == count_messages(foreign.path)
    take(db, foreign.path, reported.append)
    assert sum(reported) == 2 * count_messages(foreign.path)


# -- rows that are not as they should be ---------------------------------------------------------

BROKEN = "CAST(x'ff41' AS TEXT)"
"""Bytes that somebody stored as text, and that are none."""


def test_text_that_is_none_is_taken_as_far_as_it_can_be_read(
    db: SessionDB, foreign: Foreign
) -> None:
    for number in range(20):
        foreign.session(f"s{number:02}", f"text {number}", title=f"title {number}")
    foreign.run(
        "INSERT INTO messages (session_id, role, content, timestamp)"
        f" VALUES ('s05', 'user', {BROKEN}, 1)"
    )
    foreign.run(f"UPDATE sessions SET title = {BROKEN}, model_config = {BROKEN} WHERE id = 's07'")
    foreign.insert("session_model_usage", session_id="s09", model="m")
    foreign.run(f"UPDATE session_model_usage SET model = {BROKEN}")
    foreign.route("k", "s01")
    foreign.run(
        f"INSERT INTO gateway_routing VALUES ('/x', 'k2', {BROKEN}, 1), ({BROKEN}, 'k3', '{{}}', 1)"
    )
    report = take(db, foreign.path)
    assert report.imported == (20, 21, 1, 1)
    assert report.repaired == ["s05", "s07", "s09"]
    assert "Invalid characters replaced in: s05, s07, s09." in report.lines()
    assert contents_of(db, "s05") == ["text 5", "\ufffdA"]
    assert row_of(db, "s07")["title"] == "\ufffdA"
    assert take(db, foreign.path).imported == (0, 0, 0, 0)
    foreign.say("s05", "more")
    assert take(db, foreign.path).updated == ["s05"]
    assert contents_of(db, "s05") == ["text 5", "\ufffdA", "more"]


def test_a_session_whose_id_is_no_text_is_left_by_name(db: SessionDB, foreign: Foreign) -> None:
    foreign.session("a", "hello")
    foreign.run(f"INSERT INTO sessions (id, source, started_at) VALUES ({BROKEN}, 'cli', 1.0)")
    foreign.run(
        "INSERT INTO messages (session_id, role, content, timestamp)"
        f" VALUES ({BROKEN}, 'user', 'x', 1)"
    )
    foreign.run("INSERT INTO sessions (id, source, started_at) VALUES (x'0102', 'cli', 1.0)")
    foreign.run("INSERT INTO sessions (id, source, started_at) VALUES (NULL, 'cli', 1.0)")
    reported: list[int] = []
    report = take(db, foreign.path, reported.append)
    assert report.imported[:2] == (1, 1)
    assert {skipped.what for skipped in report.not_imported} == {
        "session None with 0 messages",
        "session \ufffdA with 1 messages",
        r"session b'\x01\x02' with 0 messages",
    }
    assert {skipped.why for skipped in report.not_imported} == {"its id is not text"}
    assert sum(reported) == count_messages(foreign.path)


@pytest.mark.parametrize("depth", [190, 990, 1005, 1400, 100_000])
def test_what_is_nested_beyond_reason_is_kept_as_text(
    db: SessionDB, foreign: Foreign, depth: int
) -> None:
    deep = "[" * depth + "]" * depth
    foreign.session("a")
    foreign.say("a", f"\0json:{deep}")
    foreign.say("a", "x", role="assistant", tool_calls=deep, reasoning_details=deep)
    foreign.run("UPDATE sessions SET model_config = ?", deep)
    assert take(db, foreign.path).imported[:2] == (1, 2)
    first, second = db.read(message_ledger.of_session, "a")
    if depth < 200:
        assert json.dumps(first["content"]) == json.dumps(second["tool_calls"]) == deep
    else:
        assert first["content"] == f"\0json:{deep}"
        assert second["extra"] == {"reasoning_details": deep, "tool_calls_text": deep}
    db.get_messages_as_conversation("a")


def test_numbers_beyond_all_counting_count_nothing(db: SessionDB, foreign: Foreign) -> None:
    foreign.session("a", input_tokens=1e30, rewind_count=2**63 - 1, started_at=9e999)
    foreign.say("a", "x", token_count=1e300)
    foreign.say("a", "y", token_count="1e40")
    assert take(db, foreign.path).imported[:2] == (1, 2)
    assert [m["token_count"] for m in db.read(message_ledger.of_session, "a")] == [0, 0]
    assert row_of(db, "a")["input_tokens"] == 0


def refuse(db: SessionDB, table: str, when: str) -> None:
    """Have our store refuse rows, as it does with whatever its constraints are against."""
    db.write(
        lambda c: c.run(
            f"CREATE TRIGGER refuse_{table} BEFORE INSERT ON {table} WHEN {when}"
            " BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        )
    )


def test_usage_that_cannot_be_taken_is_left_by_name(db: SessionDB, foreign: Foreign) -> None:
    refuse(db, "usage", "NEW.model = 'm'")
    foreign.session("a", "x", input_tokens=7)
    for model in ("k", "l", "m"):
        foreign.insert("session_model_usage", session_id="a", model=model, input_tokens=2)
    report = take(db, foreign.path)
    assert report.imported == (1, 1, 0, 2)
    assert [skipped.what for skipped in report.not_imported] == ["usage of m in session a"]
    assert row_of(db, "a")["input_tokens"] == 7
    assert take(db, foreign.path).skipped == ["a"]


def test_a_message_that_cannot_be_taken_leaves_itself_alone(
    db: SessionDB, foreign: Foreign
) -> None:
    refuse(db, "messages", "NEW.content LIKE 'bad%'")
    foreign.session("a", "one", "bad", "two")
    foreign.session("b", "three")
    report = take(db, foreign.path)
    assert report.imported[:2] == (2, 3)
    assert report.not_imported == [
        NotImported("message 2 of session a", 1, "it cannot be imported (not this one)")
    ]
    assert (contents_of(db, "a"), contents_of(db, "b")) == (["one", "two"], ["three"])
    again = take(db, foreign.path)
    assert (again.imported, again.skipped, again.not_imported) == ((0, 0, 0, 0), ["a", "b"], [])
    foreign.run("UPDATE messages SET active = 0 WHERE content = 'two'")
    foreign.say("a", "bad again")
    foreign.say("a", "three")
    grown = take(db, foreign.path)
    assert (grown.imported[1], grown.updated) == (1, ["a"])
    assert [skipped.what for skipped in grown.not_imported] == ["message 5 of session a"]
    assert contents_of(db, "a") == ["one", "three"]
    assert contents_of(db, "a", include_inactive=True) == ["one", "two", "three"]
    assert take(db, foreign.path).skipped == ["a", "b"]


def test_a_session_that_cannot_be_taken_leaves_the_others(db: SessionDB, foreign: Foreign) -> None:
    refuse(db, "sessions", "NEW.id = 'b'")
    foreign.session("a", "one", ended_at=2.0, end_reason="compression")
    foreign.session("b", "two", parent_session_id="a", ended_at=3.0, end_reason="compression")
    foreign.session("c", "three", parent_session_id="b")
    foreign.session("d", "four")
    report = take(db, foreign.path)
    assert report.imported[:2] == (3, 3)
    why = "it cannot be imported (not this one; messages there: 1)"
    assert (report.not_imported, report.detached) == ([NotImported("session b", 1, why)], ["c"])
    db.write(lambda c: c.run("DROP TRIGGER refuse_sessions"))
    later = take(db, foreign.path)
    assert (later.imported[:2], later.not_imported) == ((1, 1), [])
    assert row_of(db, "b")["conversation_id"] == "a"


@pytest.mark.parametrize("after", [1, 2, 3])
def test_an_import_that_is_killed_by_the_system_is_finished_by_the_next(
    tmp_path: Path, foreign: Foreign, after: int
) -> None:
    filled(foreign)
    foreign.run(
        f"INSERT INTO messages (session_id, role, content, timestamp) SELECT id, 'user', {BROKEN}, 1"
        " FROM sessions"
    )
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from hermes_state import SessionDB\n"
        "from hermes_state.foreign.importer import import_hermes_agent\n"
        "calls = []\n"
        "def die(_n):\n"
        "    calls.append(1)\n"
        "    if len(calls) == int(sys.argv[3]): os.kill(os.getpid(), signal.SIGKILL)\n"
        "import_hermes_agent(SessionDB(Path(sys.argv[1])), Path(sys.argv[2]), die)\n"
    )
    command = [sys.executable, "-c", script, tmp_path / "cut.db", foreign.path, str(after)]
    killed = subprocess.run(command, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    with SessionDB(tmp_path / "whole.db") as whole, SessionDB(tmp_path / "cut.db") as cut:
        take(whole, foreign.path)
        assert cut.check() == []
        take(cut, foreign.path)
        assert contents(cut) == contents(whole)
        assert take(cut, foreign.path).imported == (0, 0, 0, 0)


# -- the foreign file ----------------------------------------------------------------------------


def test_nothing_in_the_home_changes(db: SessionDB, foreign: Foreign) -> None:
    filled(foreign)
    foreign.write_index({})
    before = foreign.files()
    take(db, foreign.home)
    assert foreign.files() == before


_HOLDER = """
import os, sqlite3, sys
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
conn.execute("PRAGMA wal_autocheckpoint = 0")
conn.execute("INSERT INTO messages (session_id, role, content, timestamp)"
             " VALUES ('d', 'user', 'in the log', 5000.0)")
print("ready", flush=True)
sys.stdin.read()
os._exit(0)
"""


def test_a_home_that_is_in_use_is_read_with_its_log(db: SessionDB, foreign: Foreign) -> None:
    filled(foreign)
    with holding(foreign.path):
        before = foreign.files()
        take(db, foreign.path)
        assert foreign.files() == before
    assert contents_of(db, "d") == ["fifth", "in the log"]


def test_a_log_that_a_crash_left_behind_is_read(tmp_path: Path, foreign: Foreign) -> None:
    filled(foreign)
    with holding(foreign.path):
        pass
    for name in ("with-shm", "without-shm"):
        before = foreign.files()
        with SessionDB(tmp_path / f"{name}.db") as db:
            take(db, foreign.path)
            assert contents_of(db, "d") == ["fifth", "in the log"]
        assert foreign.files() == before
        (foreign.home / "state.db-shm").unlink(missing_ok=True)


class holding:
    """Another process has the database open and has written to its log; it dies without closing."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _HOLDER, str(self._path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def __exit__(self, *_exception: object) -> None:
        self._process.communicate()


def test_a_database_without_a_log_mode_is_read(db: SessionDB, foreign: Foreign) -> None:
    foreign.session("s", "hi")
    foreign.run("PRAGMA journal_mode = DELETE")
    before = foreign.files()
    assert take(db, foreign.path).imported.messages == 1
    assert foreign.files() == before


def test_a_rollback_that_waits_is_done_on_a_copy(db: SessionDB, foreign: Foreign) -> None:
    foreign.session("s", "hi")
    foreign.run("PRAGMA journal_mode = DELETE")
    script = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute('PRAGMA cache_size = 1'); c.execute('BEGIN');"
        '[c.execute("INSERT INTO messages (session_id, role, content, timestamp)'
        " VALUES ('s', 'user', hex(randomblob(3000)), 1.0)\") for _ in range(100)]; os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", script, str(foreign.path)], check=False)
    assert (foreign.home / "state.db-journal").exists()
    before = foreign.files()
    assert take(db, foreign.path).imported.messages == 1
    assert foreign.files() == before


def test_a_file_that_is_written_while_it_is_read_stops_the_import(
    db: SessionDB, foreign: Foreign
) -> None:
    filled(foreign)

    def meddle(_messages: int) -> None:
        foreign.say("d", "meanwhile")

    with pytest.raises(StoreBusyError, match="while it was read"):
        import_hermes_agent(db._database, foreign.path, meddle)
    assert db.check() == []
    take(db, foreign.path)
    assert contents_of(db, "d") == ["fifth", "meanwhile"]


def test_a_path_with_odd_characters_is_opened(db: SessionDB, tmp_path: Path) -> None:
    foreign = Foreign(tmp_path / "a b?c#d%20e")
    foreign.session("s", "hi")
    assert take(db, foreign.home).imported.sessions == 1


def damage(foreign: Foreign) -> None:
    foreign.session("s", *("x" * 3000 for _ in range(50)))
    foreign.run("PRAGMA journal_mode = DELETE")
    with foreign.path.open("r+b") as file:
        file.seek(foreign.path.stat().st_size - 40 * 4096)
        file.write(b"\xff" * 4096 * 30)


def make_no_database(foreign: Foreign) -> None:
    foreign.path.write_text("a diary")


def make_other(foreign: Foreign) -> None:
    foreign.run("DROP TABLE messages")


def make_unversioned(foreign: Foreign) -> None:
    foreign.run("DELETE FROM schema_version")


def make_ours(foreign: Foreign) -> None:
    foreign.path.unlink()
    SessionDB(foreign.path).close()


def make_malformed(foreign: Foreign) -> None:
    foreign.run("PRAGMA journal_mode = DELETE")
    with foreign.open() as conn:
        conn.execute("PRAGMA writable_schema = ON")
        conn.execute("UPDATE sqlite_schema SET sql = 'CREATE nonsense' WHERE name = 'state_meta'")
    conn.close()


def make_truncated(foreign: Foreign) -> None:
    foreign.session("s", *("x" * 3000 for _ in range(50)))
    foreign.run("PRAGMA journal_mode = DELETE")
    with foreign.path.open("r+b") as file:
        file.truncate(8192)


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (damage, StoreCorruptError),
        (make_truncated, StoreCorruptError),
        (make_malformed, StoreCorruptError),
        (make_no_database, ForeignStoreError),
        (make_other, ForeignStoreError),
        (make_unversioned, ForeignStoreError),
        (make_ours, ForeignStoreError),
    ],
)
def test_a_file_that_cannot_be_taken_is_refused_and_nothing_changes(
    db: SessionDB,
    foreign: Foreign,
    spoil: Callable[[Foreign], None],
    error: type[HermesError],
) -> None:
    spoil(foreign)
    before = foreign.files()
    with pytest.raises(error) as caught:
        import_hermes_agent(db._database, foreign.path)
    assert caught.value.fix
    assert "doctor" not in str(caught.value)
    assert foreign.files() == before
    assert db.read(listing.stats)["sessions"] == 0


def test_a_path_with_nothing_to_take_is_refused(db: SessionDB, tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(UsageError) as caught:
            import_hermes_agent(db._database, path)
        assert caught.value.fix


def test_a_database_that_is_being_written_exclusively_is_busy(
    foreign: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_state.foreign.source._BUSY_MS", 0)
    foreign.run("PRAGMA journal_mode = DELETE")
    script = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute('BEGIN EXCLUSIVE'); print('ready', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(foreign.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(StoreBusyError), opened(foreign.path):
        pass
    holder.communicate()


_VALUE = (
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
    | st.binary(max_size=4)
    | st.binary(max_size=4).map(lambda content: ("text", content))
    | st.sampled_from(['{"a": NaN}', '["\\ud800"]', "[1", "{}", "a", "b", "compression", "1e400"])
)


def _names(columns: str) -> list[str]:
    return [part.split()[0] for part in columns.split(",")]


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    sessions=st.dictionaries(st.sampled_from(_names(SESSION_22)[1:]), _VALUE, max_size=5),
    messages=st.dictionaries(st.sampled_from(_names(MESSAGE_22)[2:]), _VALUE, max_size=5),
)
@example(sessions={"input_tokens": 2**53 + 2}, messages={})
def test_no_value_of_a_column_stops_an_import(
    tmp_path_factory: pytest.TempPathFactory, sessions: dict[str, Any], messages: dict[str, Any]
) -> None:
    foreign = Foreign(tmp_path_factory.mktemp("foreign"), tables=_LAX)
    foreign.session("a", "one", "two")
    foreign.session("b", "three", parent_session_id="a")
    for table, where, changes in (("sessions", "id = 'a'", sessions), ("messages", "1", messages)):
        for name, value in changes.items():
            as_text = isinstance(value, tuple)
            given_value = "CAST(? AS TEXT)" if as_text else "?"
            foreign.run(
                f"UPDATE {table} SET {name} = {given_value} WHERE {where}",
                value[1] if as_text else value,
            )
    with SessionDB.in_memory() as db, SessionDB.in_memory() as other:
        report = take(db, foreign.path)
        assert (report.imported[:2], report.not_imported) == ((2, 3), [])
        assert take(db, foreign.path).imported == (0, 0, 0, 0)
        lines = [msgspec.json.decode(msgspec.json.encode(line)) for line in db.export_lines()]
        other.import_lines(lines)
        assert contents(other)["sessions"] == contents(db)["sessions"]
        for session_id in ("a", "b"):
            assert db.get_messages_as_conversation(session_id) is not None


_LAX = {
    name: columns.replace("NOT NULL", "").replace("TEXT PRIMARY KEY", "TEXT UNIQUE")
    for name, columns in TABLES_22.items()
}
"""Tables in which everything may be missing too."""


# -- whatever there is ---------------------------------------------------------------------------

_SESSION = st.fixed_dictionaries(
    {
        "parent": st.integers(0, 9),
        "reason": st.sampled_from([None, "compression", "branched", "cli_close"]),
        "mark": st.sampled_from([None, "_branched_from", "_delegate_from"]),
        "title": st.sampled_from([None, "T", "T #2", "U"]),
        "messages": st.integers(0, 3),
    }
)


@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(shape=st.lists(_SESSION, max_size=8))
def test_as_many_messages_come_out_as_go_in(
    tmp_path_factory: pytest.TempPathFactory, shape: Sequence[dict[str, Any]]
) -> None:
    foreign = Foreign(tmp_path_factory.mktemp("foreign"))
    with foreign.open() as conn:
        for number, row in enumerate(shape):
            conn.execute(
                "INSERT INTO sessions (id, source, started_at, parent_session_id, end_reason,"
                " ended_at, title, model_config) VALUES (?, 'cli', ?, ?, ?, ?, ?, ?)",
                (
                    str(number),
                    number,
                    str(row["parent"]) if row["parent"] else None,
                    row["reason"],
                    1.0 if row["reason"] else None,
                    row["title"],
                    json.dumps({row["mark"]: "x"}) if row["mark"] else None,
                ),
            )
            for text in range(row["messages"]):
                conn.execute(
                    "INSERT INTO messages (session_id, role, content, timestamp, active)"
                    " VALUES (?, 'user', ?, ?, ?)",
                    (str(number), f"{number}.{text}", number + text, text != 1),
                )
    conn.close()
    with SessionDB.in_memory() as db:
        report = take(db, foreign.path)
        assert report.imported[:2] == (len(shape), sum(row["messages"] for row in shape))
        for number, row in enumerate(shape):
            assert contents_of(db, str(number), include_inactive=True) == [
                f"{number}.{text}" for text in range(row["messages"])
            ]
        assert take(db, foreign.path).imported == (0, 0, 0, 0)
