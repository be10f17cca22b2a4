"""What every store must do, as tests that any backend can run.

Subclass `StoreConformance` in a test module and give the tests a fresh, empty `store`, for instance
with a fixture of that name. Nothing here needs a test framework. Tests that go around Python, to see
the database itself refuse, use the SQL of the SQLite schema.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from hermes_core import clock, secrets
from hermes_core.errors import (
    AlreadySettledError,
    BudgetSpent,
    ConversationBusyError,
    ConversationOverError,
    IllegalTransitionError,
    LeaseLostError,
    NothingSaidError,
    SessionNotFoundError,
    StoreError,
    TitleError,
    UsageError,
)
from hermes_state import sessions
from hermes_state.budgets import Estimate, Limits, Receipt, Reservation
from hermes_state.effects import Call, Settled
from hermes_state.inbox import Delivery
from hermes_state.leases import Lease
from hermes_state.outbox import Piece
from hermes_state.people import Person, Stranger
from hermes_state.protocol import Store
from hermes_state.questions import Question
from hermes_state.routes import Route
from hermes_state.scope import Scope
from hermes_state.search import Sort
from hermes_state.turns import End, Opening
from hermes_state.usage import Spent

DAY_S = 86_400.0
NOON = 1_700_000_000.0


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


@contextmanager
def still_clock() -> Generator[Clock]:
    """Let time stand still, unless the test moves it."""
    moved = Clock()
    with clock.reading(moved):
        yield moved


@contextmanager
def refused(*kinds: type[Exception]) -> Generator[None]:
    """The block must raise one of these."""
    try:
        yield
    except kinds:
        return
    raise AssertionError(f"this was not refused with {' or '.join(k.__name__ for k in kinds)}")


def contents(store: Store, session_id: str, **how: bool) -> list[Any]:
    """What a session says."""
    return [m["content"] for m in store.get_messages_as_conversation(session_id, **how)]


def listed(store: Store, **filters: Any) -> list[str]:  # noqa: ANN401 -- fields of Filter
    """The ids of a list."""
    return [row["id"] for row in store.list_sessions_rich(**filters)]


def found(store: Store, query: str, **filters: Any) -> list[str]:  # noqa: ANN401 -- fields of Wanted
    """The ids of the sessions in which a query finds something, sorted, one for each find."""
    return sorted(row["session_id"] for row in store.search_messages(query, **filters))


def session(store: Store, session_id: str) -> dict[str, Any]:
    """A session that must be there."""
    row = store.get_session(session_id)
    assert row is not None, f"{session_id} is missing"
    return row


def chat(store: Store, session_id: str, *texts: str, source: str = "cli") -> list[int]:
    """A session in which user and assistant have said something in turns."""
    store.create_session(session_id, source)
    return [
        store.append_message(session_id, "assistant" if number % 2 else "user", text)
        for number, text in enumerate(texts)
    ]


def accepted(store: Store, session_id: str = "s", **how: Any) -> str:  # noqa: ANN401 -- as accept()
    """A turn that waits."""
    message = {"role": "user", "content": "a question"}
    return store.turns.accept(session_id, message, **how).turn_id


def running(store: Store, session_id: str = "s") -> str:
    """A turn that runs, in a session of its own."""
    store.create_session(session_id, "cli")
    turn_id = accepted(store, session_id)
    store.turns.start(turn_id)
    return turn_id


def execute(sql: str, *values: Any) -> Callable[[Any], Any]:  # noqa: ANN401 -- for any connection
    """A write around all rules of Python."""
    return lambda c: c.execute(sql, values)


def summary(text: str = "in short") -> dict[str, Any]:
    """What a compaction writes first."""
    return {"role": "user", "content": text}


class SessionRules:
    """Sessions: made, found, listed, ended, put away, deleted."""

    def test_create_fills_gaps_and_never_overwrites(self, store: Store) -> None:
        assert store.create_session("s", "cli", model="first") == "s"
        store.create_session("s", "telegram", model="second", chat_id="42", user_id=None)
        row = session(store, "s")
        assert (row["source"], row["model"], row["chat_id"]) == ("cli", "first", "42")
        assert row["user_id"] is None

    def test_create_refuses_what_a_session_does_not_have(self, store: Store) -> None:
        with refused(TypeError):
            store.create_session("s", "cli", colour="blue")
        assert store.get_session("s") is None

    def test_create_under_a_missing_parent_makes_nothing(self, store: Store) -> None:
        with refused(SessionNotFoundError):
            store.create_session("s", "cli", parent_session_id="nobody")
        assert store.get_session("s") is None

    def test_ensure_makes_a_session_once(self, store: Store) -> None:
        store.ensure_session("s")
        store.ensure_session("s", "cli")
        assert session(store, "s")["source"] == "unknown"

    def test_a_missing_session_is_none(self, store: Store) -> None:
        assert store.get_session("nobody") is None
        assert store.get_session_title("nobody") is None
        assert store.get_messages("nobody") == []
        assert store.get_messages_as_conversation("nobody") == []
        assert store.export_session("nobody") is None

    def test_a_prefix_finds_the_one_session_that_has_it(self, store: Store) -> None:
        for id_ in ("20250101_a", "20250102_b", "20250102_c", "2025"):
            store.create_session(id_, "cli")
        assert store.resolve_session_id("20250101") == "20250101_a"
        assert store.resolve_session_id("20250102") is None
        assert store.resolve_session_id("2025") == "2025"
        assert store.resolve_session_id("none") is None
        assert store.resolve_session_id("") is None
        assert store.resolve_session_id("20250101%") is None

    def test_the_first_end_wins(self, store: Store) -> None:
        store.create_session("s", "cli")
        store.end_session("s", "user")
        ended_at = session(store, "s")["ended_at"]
        store.end_session("s", "timeout")
        row = session(store, "s")
        assert (row["end_reason"], row["ended_at"]) == ("user", ended_at)

    def test_reopening_takes_an_end_back(self, store: Store) -> None:
        store.create_session("s", "cli")
        store.end_session("s", "user")
        store.reopen_session("s")
        row = session(store, "s")
        assert (row["ended_at"], row["end_reason"]) == (None, None)
        store.end_session("s", "again")
        assert session(store, "s")["end_reason"] == "again"

    def test_a_reset_replaces_only_an_accidental_end(self, store: Store) -> None:
        store.create_session("s", "cli")
        store.end_session("s", "agent_close")
        assert store.promote_to_session_reset("s") is True
        assert session(store, "s")["end_reason"] == "session_reset"
        assert store.promote_to_session_reset("s", "other") is False
        store.create_session("open", "cli")
        assert store.promote_to_session_reset("open", "idle") is True
        assert session(store, "open")["end_reason"] == "idle"
        assert store.promote_to_session_reset("nobody") is False

    def test_what_may_change_during_a_life_changes(self, store: Store) -> None:
        store.create_session("s", "cli", model="a")
        store.update_session_model("s", "b")
        store.update_system_prompt("s", "be kind")
        store.update_session_cwd("s", "/srv")
        row = session(store, "s")
        assert (row["model"], row["system_prompt"], row["cwd"]) == ("b", "be kind", "/srv")

    def test_a_model_that_was_chosen_for_a_conversation_goes_with_it(self, store: Store) -> None:
        chat(store, "a", "one")
        store.create_session("a", "cli", model_config={"instructions": "be kind"})
        assert sessions.chosen_model(session(store, "a")) == ""
        store.update_session_model("a", "b", chosen_as="local/b")
        store.rotate_session("a", [summary()], child_id="a2")
        store.branch_session("a2", child_id="c")
        for id_ in ("a", "a2", "c"):
            row = session(store, id_)
            assert (row["model"], sessions.chosen_model(row)) == ("b", "local/b")
            assert "be kind" in row["model_config"]

    def test_notes_about_the_store_are_kept(self, store: Store) -> None:
        assert store.get_meta("color") is None
        store.set_meta("color", "blue")
        store.set_meta("color", "red")
        assert store.get_meta("color") == "red"

    def test_a_list_has_one_row_a_conversation_the_latest_first(self, store: Store) -> None:
        with still_clock() as time:
            for id_ in ("a", "b", "c"):
                time.now += 1
                chat(store, id_, f"hello from {id_}")
            time.now += 1
            store.append_message("a", "assistant", "late")
            time.now += 1
            store.rotate_session("b", [summary()], child_id="b2")
        assert listed(store) == ["b2", "a", "c"]
        row = store.list_sessions_rich(limit=1)[0]
        assert row["preview"] == "hello from b"
        assert (row["conversation_id"], row["message_count"]) == ("b", 1)
        assert listed(store, limit=1, offset=1) == ["a"]
        assert listed(store, limit=None, include_children=True).count("b") == 1

    def test_a_list_can_be_filtered(self, store: Store) -> None:
        chat(store, "one", "about apples")
        chat(store, "two", "about pears", "yes", source="telegram")
        store.create_session("three", "tui", cwd="/srv/project/deep")
        store.create_session("four", "tui", cwd="/srv/projects")
        assert listed(store, source="telegram") == ["two"]
        assert sorted(listed(store, exclude_sources=("tui", "telegram"))) == ["one"]
        assert listed(store, cwd_prefix="/srv/project/") == ["three"]
        assert listed(store, min_message_count=2) == ["two"]
        assert listed(store, search_query="APPLES") == ["one"]
        assert store.session_count() == 4
        assert store.session_count(source="tui") == 2

    def test_a_list_is_narrowed_by_text_in_any_alphabet_and_case(self, store: Store) -> None:
        chat(store, "Plan_A", "Größe und Gewicht")
        store.set_session_title("Plan_A", "Übersicht")
        chat(store, "b", "ПРИВЕТ, мир")
        for text in ("Übersicht", "ÜBER", "größe", "GRÖSSE", "Plan_A", "plan_a"):
            assert listed(store, search_query=text) == ["Plan_A"]
            assert store.session_count(search_query=text) == 1
        assert listed(store, search_query="Привет") == ["b"]

    def test_files_are_known_by_the_messages_that_name_them(self, store: Store) -> None:
        chat(store, "a", "look: /home/me/attachments/one.png", "fine")
        store.append_message("a", "user", [{"type": "text", "text": "[/x/attachments/two-2.pdf]"}])
        chat(store, "b", "see /x/attachments/three.ogg", "fine", "an attachment that is none")
        assert store.list_named_files(["a"]) == {"one.png", "two-2.pdf"}
        assert store.list_named_files() == {"one.png", "two-2.pdf", "three.ogg"}
        assert store.list_named_files([]) == set()

    def test_delegates_are_not_listed(self, store: Store) -> None:
        store.create_session("s", "cli")
        store.create_session(
            "d", "cli", parent_session_id="s", model_config={"_delegate_from": "s"}
        )
        assert session(store, "d")["relation"] == "delegate"
        assert listed(store) == ["s"]

    def test_an_archived_conversation_is_out_of_the_list_until_it_is_brought_back(
        self, store: Store
    ) -> None:
        chat(store, "a", "hello")
        store.rotate_session("a", [summary()], child_id="b")
        assert store.set_session_archived("a", True) is True
        assert listed(store) == []
        assert listed(store, archived_only=True) == ["b"]
        assert listed(store, include_archived=True) == ["b"]
        assert store.set_session_archived("b", False) is True
        assert listed(store) == ["b"]
        assert store.set_session_archived("nobody", True) is False

    def test_deleting_takes_the_whole_conversation_and_its_delegates(self, store: Store) -> None:
        chat(store, "a", "hello")
        store.create_session(
            "helper", "cli", parent_session_id="a", model_config={"_delegate_from": "a"}
        )
        store.append_message("helper", "user", "do this")
        store.routes.save("key", "a")
        store.leases.acquire("a", "me")
        store.rotate_session("a", [summary()], child_id="undone")
        store.undo_rotation("a")
        store.rotate_session("a", [summary()], child_id="b")
        every = ["a", "b", "helper", "undone"]
        assert sorted(store.list_delete_candidates(["b"])) == every
        assert store.list_delete_candidates(["nobody"]) == []
        assert store.delete_session("a") is True
        assert [store.get_session(id_) for id_ in every] == [None] * 4
        assert store.message_count() == 0
        assert store.routes.get("key") is None
        assert store.delete_session("a") is False
        assert store.check() == []

    def test_branches_of_a_deleted_conversation_live_on(self, store: Store) -> None:
        chat(store, "a", "hello", "hi")
        store.branch_session("a", child_id="branch")
        assert store.delete_sessions(["a"]) == 1
        assert contents(store, "branch") == ["hello", "hi"]
        row = session(store, "branch")
        assert (row["parent_session_id"], row["relation"]) == (None, None)
        assert listed(store) == ["branch"]
        assert store.check() == []

    def test_the_numbers_add_up(self, store: Store) -> None:
        chat(store, "a", "hello", "hi")
        chat(store, "b", "hey", source="telegram")
        store.rotate_session("a", [summary()], child_id="a2")
        store.end_session("b", "user")
        accepted(store, "a2")
        store.usage.record("a2", Spent("m", input_tokens=7, cost_usd=0.5))
        stats = store.stats()
        assert (stats["sessions"], stats["conversations"]) == (3, 2)
        assert stats["open_conversations"] == 1
        assert stats["messages"] == 5
        assert stats["by_source"] == {"cli": 1, "telegram": 1}
        assert stats["turns"] == {"accepted": 1}
        assert (stats["model_calls"], stats["input_tokens"], stats["cost_usd"]) == (1, 7, 0.5)


class MessageRules:
    """Messages: what goes in comes out, in order, and does not change."""

    def test_a_message_comes_back_as_it_went_in(self, store: Store) -> None:
        store.create_session("s", "cli")
        calls = [{"id": "1", "function": {"name": "look", "arguments": '{"at": "ü"}'}}]
        given: dict[str, Any] = {
            "timestamp": 12.5,
            "tool_calls": calls,
            "tool_call_id": "call",
            "tool_name": "look",
            "finish_reason": "stop",
            "reasoning": "because",
            "reasoning_details": [{"type": "thought", "text": "…"}],
            "observed": True,
            "something_new": {"deep": [1, None, "x"]},
        }
        id_ = store.append_message("s", "assistant", "text", platform_message_id="p1", **given)
        (message,) = store.get_messages_as_conversation("s")
        assert message == {
            "role": "assistant", "content": "text", "id": id_, "message_id": "p1", **given
        }  # fmt: skip
        (row,) = store.get_messages("s")
        assert row["platform_message_id"] == "p1"
        assert row["tool_calls"] == calls
        assert store.has_platform_message_id("s", "p1") is True
        assert store.has_platform_message_id("s", "p2") is False

    def test_parts_come_back_as_parts(self, store: Store) -> None:
        store.create_session("s", "cli")
        parts = [{"type": "text", "text": "see"}, {"type": "image", "url": "data:…"}]
        store.append_message("s", "user", parts)
        store.append_message("s", "user", {"type": "text", "text": "one"})
        store.append_message("s", "user", [])
        assert contents(store, "s") == [parts, {"type": "text", "text": "one"}, []]
        assert store.get_messages("s")[0]["content"] == parts

    def test_empty_and_missing_content_are_told_apart(self, store: Store) -> None:
        store.create_session("s", "cli")
        store.append_message("s", "assistant", "")
        store.append_message("s", "assistant", None, tool_calls=[{"id": "1"}])
        assert contents(store, "s") == ["", None]

    def test_half_characters_are_replaced_wherever_they_are(self, store: Store) -> None:
        store.create_session("s", "cli")
        bad = "x\ud800y"
        store.append_message("s", "user", bad)
        store.append_message("s", "user", [{"text": bad}], tool_calls=[{"id": bad}], odd=bad)
        store.append_message("s", "assistant", "", reasoning=bad)
        first, second, third = store.get_messages_as_conversation("s")
        assert first["content"] == "x?y"
        assert second["content"] == [{"text": "x?y"}]
        assert (second["tool_calls"], second["odd"]) == ([{"id": "x?y"}], "x?y")
        assert third["reasoning"] == "x?y"

    def test_any_text_is_kept(self, store: Store) -> None:
        store.create_session("s", "cli")
        texts = [
            "nul\x00in",
            "日本語",
            "👩‍👩‍👧",
            "'; DROP TABLE messages; --",
            "a" * 100_000,
            "\r\n\t",
        ]
        store.append_messages("s", [{"role": "user", "content": text} for text in texts])
        assert contents(store, "s") == texts

    def test_order_is_the_order_of_writing_whatever_the_clock_says(self, store: Store) -> None:
        store.create_session("s", "cli")
        for at in (3.0, 1.0, 2.0):
            store.append_message("s", "user", str(at), timestamp=at)
        assert contents(store, "s") == ["3.0", "1.0", "2.0"]
        assert [row["content"] for row in store.get_messages("s", limit=1, offset=1)] == ["1.0"]

    def test_a_batch_is_stored_whole_or_not_at_all(self, store: Store) -> None:
        store.create_session("s", "cli")
        ids = store.append_messages(
            "s", [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
        )
        assert ids == sorted(ids)
        with refused(Exception):
            store.append_messages("s", [{"role": "user", "content": "c"}, {"role": None}])
        assert contents(store, "s") == ["a", "b"]
        assert session(store, "s")["message_count"] == 2

    def test_a_message_for_nobody_is_refused(self, store: Store) -> None:
        with refused(SessionNotFoundError):
            store.append_message("nobody", "user", "hello")
        assert store.message_count() == 0

    def test_messages_are_counted(self, store: Store) -> None:
        chat(store, "a", "1", "2", "3")
        chat(store, "b", "4")
        store.append_message("b", "assistant", None, tool_calls=[{"id": "1"}, {"id": "2"}])
        assert store.message_count() == 5
        assert store.message_count("a") == 3
        row = session(store, "b")
        assert (row["message_count"], row["tool_call_count"]) == (2, 2)

    def test_the_preview_is_the_first_thing_the_user_said(self, store: Store) -> None:
        store.create_session("s", "cli")
        store.append_message("s", "system", "be kind")
        store.append_message("s", "user", "first\nline")
        store.append_message("s", "user", "second")
        assert session(store, "s")["preview"] == "first line"

    def test_a_message_has_neighbours(self, store: Store) -> None:
        ids = chat(store, "s", *"abcde")
        around = store.get_messages_around("s", ids[2], window=1)
        assert [message["content"] for message in around["window"]] == ["b", "c", "d"]
        assert (around["messages_before"], around["messages_after"]) == (2, 2)
        edge = store.get_messages_around("s", ids[0], window=1)
        assert [message["content"] for message in edge["window"]] == ["a", "b"]
        with refused(SessionNotFoundError):
            store.get_messages_around("s", ids[-1] + 1)

    def test_a_conversation_is_read_backwards_page_by_page(self, store: Store) -> None:
        ids = chat(store, "s", *"abcde")
        child = store.rotate_session("s", [{"role": "user", "content": "a summary"}, ids[-1]])
        store.append_message(child, "user", "f")
        page = store.get_conversation_page(child, limit=3)
        assert [message["content"] for message in page] == ["d", "e", "f"], "originals, not copies"
        page = store.get_conversation_page(child, before_id=page[0]["id"], limit=2)
        assert [message["content"] for message in page] == ["b", "c"]
        page = store.get_conversation_page(child, before_id=page[0]["id"], limit=2)
        assert [message["content"] for message in page] == ["a"]
        assert store.get_conversation_page(child, before_id=page[0]["id"]) == []
        assert store.get_conversation_page("nobody") == []

    def test_the_last_things_the_user_said_are_listed(self, store: Store) -> None:
        chat(store, "s", "one", "two", "three\nlines", "four")
        recent = store.list_recent_user_messages("s", limit=2)
        assert [message["preview"] for message in recent] == ["three lines", "one"]

    def test_a_rewind_takes_back_and_a_restore_brings_back(self, store: Store) -> None:
        ids = chat(store, "s", "a", "b", "c", "d")
        result = store.rewind_to_message("s", ids[2])
        assert (result["rewound_count"], result["new_head_id"]) == (2, ids[1])
        assert result["target_message"]["content"] == "c"
        assert contents(store, "s") == ["a", "b"]
        assert contents(store, "s", include_inactive=True) == ["a", "b", "c", "d"]
        row = session(store, "s")
        assert (row["message_count"], row["rewind_count"]) == (2, 1)
        assert len(store.list_recent_user_messages("s", include_inactive=True)) == 2
        assert store.restore_rewound("s", ids[2]) == 2
        assert contents(store, "s") == ["a", "b", "c", "d"]
        assert store.check() == []

    def test_a_rewind_takes_whole_exchanges_and_leaves_what_is_still_to_be_answered(
        self, store: Store
    ) -> None:
        store.create_session("s", "p")
        turns = [
            store.turns.accept("s", {"role": "user", "content": text}).turn_id for text in "abc"
        ]
        for turn_id, text in zip(turns[:2], "AB", strict=True):
            store.turns.start(turn_id)
            message = {"role": "assistant", "content": text}
            store.turns.finish(turn_id, "answered", message=message)
        assert contents(store, "s") == ["a", "A", "b", "B", "c"]
        (second,) = [one["id"] for one in store.get_messages("s") if one["content"] == "b"]
        assert store.rewind_to_message("s", second)["rewound_count"] == 2
        assert contents(store, "s") == ["a", "A", "c"]
        assert store.restore_rewound("s", second) == 2
        assert contents(store, "s") == ["a", "A", "b", "B", "c"]
        with refused(ConversationBusyError):
            store.rewind_to_message("s", store.get_messages("s")[2]["id"])

    def test_what_is_taken_back_after_a_compaction_is_taken_back_from_the_whole_conversation(
        self, store: Store
    ) -> None:
        ids = chat(store, "s", "a", "b", "c", "d")
        child = store.rotate_session("s", [summary(), *ids[2:]])
        (copied,) = [one["id"] for one in store.get_messages(child) if one["content"] == "c"]
        store.rewind_to_message(child, copied)
        whole = store.get_messages_as_conversation(child, include_ancestors=True)
        assert [one["content"] for one in whole] == ["a", "b"]
        assert [one["content"] for one in store.get_conversation_page(child)] == ["a", "b"]
        store.restore_rewound(child, copied)
        whole = store.get_messages_as_conversation(child, include_ancestors=True)
        assert [one["content"] for one in whole] == ["a", "b", "c", "d"]
        assert store.check() == []

    def test_only_a_user_message_of_the_session_can_be_rewound_to(self, store: Store) -> None:
        ids = chat(store, "s", "a", "b")
        chat(store, "other", "x")
        for session_id, message_id in (("s", ids[1]), ("other", ids[0]), ("s", 10_000)):
            with refused(ValueError):
                store.rewind_to_message(session_id, message_id)
        assert store.message_count() == 3

    def test_a_stored_message_does_not_change(self, store: Store) -> None:
        chat(store, "s", "said")
        for column in ("role", "content", "reasoning", "timestamp", "tool_calls"):
            with refused(IllegalTransitionError):
                store.write(execute(f"UPDATE messages SET {column} = '12'"))
        assert contents(store, "s") == ["said"]


class TitleRules:
    """Titles: one conversation each."""

    def test_a_title_is_cleaned(self, store: Store) -> None:
        assert store.sanitize_title("  two\n words\u200b\x07 ") == "two words"
        assert store.sanitize_title(" \u200b ") is None
        assert store.sanitize_title(None) is None
        store.create_session("s", "cli")
        assert store.set_session_title("s", "  My\t plan ") is True
        assert store.get_session_title("s") == "My plan"
        assert store.set_session_title("s", "") is True
        assert store.get_session_title("s") is None

    def test_a_title_has_a_longest_length(self, store: Store) -> None:
        store.create_session("s", "cli")
        assert store.set_session_title("s", "x" * 100)
        with refused(TitleError):
            store.set_session_title("s", "x" * 101)
        assert store.get_session_title("s") == "x" * 100

    def test_a_title_belongs_to_one_conversation(self, store: Store) -> None:
        store.create_session("a", "cli")
        store.create_session("b", "cli")
        store.set_session_title("a", "plan")
        with refused(TitleError):
            store.set_session_title("b", "plan")
        assert store.get_session_title("b") is None
        assert store.set_session_title("a", "plan") is True
        store.delete_session("a")
        assert store.set_session_title("b", "plan") is True

    def test_a_title_moves_within_its_conversation(self, store: Store) -> None:
        store.create_session("a", "cli")
        store.set_session_title("a", "plan")
        store.rotate_session("a", [], child_id="b")
        assert store.get_session_title("a") == store.get_session_title("b") == "plan"
        assert session(store, "a")["title"] is None
        assert store.set_session_title("a", "plan") is True
        holder = store.get_session_by_title("plan")
        assert holder is not None
        assert holder["id"] == "a"

    def test_a_title_for_nobody_is_not_set(self, store: Store) -> None:
        assert store.set_session_title("nobody", "plan") is False
        assert store.get_session_by_title("plan") is None

    def test_an_automatic_title_never_replaces_one(self, store: Store) -> None:
        store.create_session("s", "cli")
        assert store.set_auto_title_if_empty("s", "guess") is True
        assert store.set_auto_title_if_empty("s", "better guess") is False
        assert store.get_session_title("s") == "guess"

    def test_a_taken_title_gets_the_next_number(self, store: Store) -> None:
        assert store.get_next_title_in_lineage("plan") == "plan"
        for id_, title in (("a", "plan"), ("b", "plan #2"), ("c", "plan #7"), ("d", "plan #x")):
            store.create_session(id_, "cli")
            store.set_session_title(id_, title)
        assert store.get_next_title_in_lineage("plan") == "plan #8"
        assert store.get_next_title_in_lineage("plan #2") == "plan #8"
        assert store.get_next_title_in_lineage("other") == "other"

    def test_a_numbered_title_keeps_to_the_longest_length(self, store: Store) -> None:
        store.create_session("s", "cli")
        store.set_session_title("s", "x" * 100)
        title = store.get_next_title_in_lineage("x" * 100)
        assert len(title) <= 100
        assert title.endswith(" #2")

    def test_a_title_means_the_newest_of_its_numbered_heirs(self, store: Store) -> None:
        with still_clock() as time:
            for id_, title in (("a", "plan"), ("b", "plan #2"), ("c", "plan #3")):
                time.now += 1
                store.create_session(id_, "cli")
                store.set_session_title(id_, title)
        assert store.resolve_session_by_title("plan") == "c"
        assert store.resolve_session_by_title("plan #2") == "b"
        assert store.resolve_session_by_title("none") is None

    def test_a_name_is_an_id_before_a_title_before_the_beginning_of_an_id(
        self, store: Store
    ) -> None:
        for id_ in ("20250101_a", "20250102_b", "20250103_c", "20250104"):
            store.create_session(id_, "cli")
        assert store.resolve_session("20250101") == "20250101_a"
        store.set_session_title("20250102_b", "20250101")
        store.set_session_title("20250103_c", "20250104")
        assert store.resolve_session("20250101") == "20250102_b"
        assert store.resolve_session("20250101_") == "20250101_a"
        assert store.resolve_session("20250104") == "20250104"
        assert [store.resolve_session(name) for name in ("2025", "none", "")] == [None] * 3


class LineageRules:
    """Rotation, its undo, branches: one conversation keeps one identity."""

    def test_a_rotation_moves_everything_in_one_change(self, store: Store) -> None:
        ids = chat(store, "a", "one", "two", "three")
        store.set_session_title("a", "plan")
        store.routes.save("key", "a", '{"session_id": "a", "kept": 1}')
        lease = store.leases.acquire("a", "me")
        open_turn, ended = accepted(store, "a"), accepted(store, "a")
        store.turns.finish(ended, "failed", reason="no model")
        child = store.rotate_session(
            "a", [summary(), ids[1], ids[2]], child_id="b", system_prompt="new", lease=lease
        )
        assert child == "b"
        parent, row = session(store, "a"), session(store, "b")
        assert (parent["end_reason"], parent["is_tip"], parent["title"]) == ("compression", 0, None)
        assert parent["ended_at"] is not None
        assert (row["parent_session_id"], row["relation"]) == ("a", "continuation")
        assert (row["conversation_id"], row["is_tip"], row["title"]) == ("a", 1, "plan")
        assert (row["source"], row["system_prompt"]) == (parent["source"], "new")
        assert contents(store, "b") == ["in short", "two", "three"]
        kinds = [m.get("kind", "message") for m in store.get_messages_as_conversation("b")]
        assert kinds == ["summary", "copy", "copy"]
        route = store.routes.get("key")
        assert route is not None
        assert route["session_id"] == "b"
        assert route["entry"] == '{"session_id":"b","kept":1}'
        assert [turn["id"] for turn in store.turns.of_session("b")] == [open_turn]
        assert store.leases.holder_of("a") == "me"
        assert store.check() == []

    def test_a_session_is_rotated_once(self, store: Store) -> None:
        chat(store, "a", "one")
        store.rotate_session("a", [summary()], child_id="b")
        with refused(StoreError):
            store.rotate_session("a", [summary()], child_id="c")
        assert store.get_session("c") is None
        assert store.rotate_session("b", [summary()], child_id="c") == "c"
        assert store.check() == []

    def test_a_rotation_that_cannot_be_made_changes_nothing(self, store: Store) -> None:
        chat(store, "a", "one")
        before = session(store, "a")
        with refused(StoreError):
            store.rotate_session("a", [summary(), 10_000], child_id="b")
        with refused(SessionNotFoundError):
            store.rotate_session("nobody", [], child_id="b")
        assert store.get_session("b") is None
        assert session(store, "a") == before

    def test_a_rotation_needs_the_newest_lease(self, store: Store) -> None:
        chat(store, "a", "one")
        old = store.leases.acquire("a", "me")
        assert old is not None
        store.leases.release(old)
        store.leases.acquire("a", "you")
        with refused(LeaseLostError):
            store.rotate_session("a", [summary()], child_id="b", lease=old)
        assert store.get_session("b") is None
        assert session(store, "a")["ended_at"] is None

    def test_a_rotation_makes_up_an_id_when_none_is_given(self, store: Store) -> None:
        chat(store, "a", "one")
        child = store.rotate_session("a", [summary()])
        assert store.get_compression_tip("a") == child

    def test_any_id_of_a_conversation_leads_to_its_tip(self, store: Store) -> None:
        chat(store, "a", "one")
        store.rotate_session("a", [summary()], child_id="b")
        store.rotate_session("b", [summary()], child_id="c")
        for id_ in ("a", "b", "c"):
            assert store.get_compression_tip(id_) == store.resolve_resume_session_id(id_) == "c"
            assert store.get_conversation_root(id_) == "a"
            assert store.get_compression_lineage(id_) == ["a", "b", "c"]
        assert store.get_compression_tip("nobody") == "nobody"
        tree = store.get_session_tree("b")
        assert [(row["id"], row["level"]) for row in tree] == [("a", 0), ("b", 1), ("c", 2)]

    def test_the_whole_conversation_is_its_originals(self, store: Store) -> None:
        ids = chat(store, "a", "one", "two")
        store.rotate_session("a", [summary(), ids[1]], child_id="b")
        store.append_message("b", "user", "three")
        assert contents(store, "b") == ["in short", "two", "three"]
        assert contents(store, "b", include_ancestors=True) == ["one", "two", "three"]
        assert contents(store, "a", include_ancestors=True) == ["one", "two"]

    def test_a_title_made_before_a_rotation_is_that_of_the_conversation(self, store: Store) -> None:
        chat(store, "a", "one")
        store.rotate_session("a", [summary()], child_id="b")
        assert store.set_auto_title_if_empty("a", "Made for a") is True
        assert [row["title"] for row in store.list_sessions_rich()] == ["Made for a"]
        store.set_session_title("b", "Chosen")
        assert store.set_auto_title_if_empty("a", "Made again") is False
        assert (session(store, "a")["title"], session(store, "b")["title"]) == (None, "Chosen")

    def test_an_undo_goes_back_and_keeps_what_was_said_since(self, store: Store) -> None:
        ids = chat(store, "a", "one", "two")
        store.set_session_title("a", "plan")
        store.routes.save("key", "a")
        store.rotate_session("a", [summary(), ids[1]], child_id="b")
        store.append_message("b", "user", "three")
        ended, turn_id = accepted(store, "b"), accepted(store, "b")
        store.turns.finish(ended, "interrupted")
        assert store.undo_rotation("b") == "a"
        assert contents(store, "a") == ["one", "two", "three", "a question", "a question"]
        assert [turn["id"] for turn in store.turns.of_session("a")] == [ended, turn_id]
        row = session(store, "a")
        assert (row["is_tip"], row["ended_at"], row["title"]) == (1, None, "plan")
        route, turn = store.routes.get("key"), store.turns.get(turn_id)
        assert route is not None
        assert turn is not None
        assert (route["session_id"], turn["session_id"]) == ("a", "a")
        assert session(store, "b")["relation"] == "undone"
        assert listed(store) == ["a"]
        assert store.get_compression_tip("b") == "a"
        assert store.check() == []
        assert store.rotate_session("a", [summary()], child_id="c") == "c"
        assert store.check() == []

    def test_an_undo_keeps_what_was_chosen_since(self, store: Store) -> None:
        chat(store, "a", "one")
        store.update_session_model("a", "first", chosen_as="local/first")
        store.update_system_prompt("a", "be kind")
        store.rotate_session("a", [summary()], child_id="b")
        store.update_session_model("b", "second", chosen_as="local/second")
        store.update_session_cwd("b", "/srv")
        store.undo_rotation("b")
        row = session(store, "a")
        assert (row["model"], sessions.chosen_model(row)) == ("second", "local/second")
        assert (row["cwd"], row["system_prompt"]) == ("/srv", "be kind")
        store.rotate_session("a", [summary()], child_id="c")
        store.instruct_session("c", "in verse")
        store.undo_rotation("c")
        row = session(store, "a")
        assert (sessions.instructions_of(row), row["system_prompt"]) == ("in verse", None)

    def test_only_a_rotation_can_be_undone(self, store: Store) -> None:
        chat(store, "a", "one")
        store.branch_session("a", child_id="b")
        for id_ in ("a", "b"):
            with refused(StoreError):
                store.undo_rotation(id_)
        with refused(SessionNotFoundError):
            store.undo_rotation("nobody")

    def test_a_branch_is_a_conversation_of_its_own(self, store: Store) -> None:
        ids = chat(store, "a", "one", "two", "three")
        store.set_session_title("a", "plan")
        assert store.branch_session("a", child_id="b", until_message_id=ids[1]) == "b"
        assert contents(store, "b") == ["one", "two"]
        assert store.get_session_title("b") == "plan #2"
        store.append_message("b", "user", "elsewhere")
        assert contents(store, "a") == ["one", "two", "three"]
        assert session(store, "b")["conversation_id"] == "b"
        assert sorted(listed(store)) == ["a", "b"]
        assert [(r["id"], r["level"]) for r in store.get_session_tree("b")] == [("a", 0), ("b", 1)]
        with refused(SessionNotFoundError):
            store.branch_session("nobody")
        assert store.check() == []

    def test_a_branch_is_made_with_its_title_or_not_at_all(self, store: Store) -> None:
        chat(store, "a", "one")
        store.set_session_title("a", "plan")
        store.branch_session("a", child_id="b", title=" other  plan ")
        assert store.get_session_title("b") == "other plan"
        with refused(TitleError):
            store.branch_session("a", child_id="c", title="plan")
        assert sorted(listed(store)) == ["a", "b"]
        assert store.check() == []

    def test_where_nothing_is_said_there_is_nothing_to_branch(self, store: Store) -> None:
        [first] = chat(store, "a", "one")
        store.rewind_to_message("a", first)
        running(store, "b")
        for id_ in ("a", "b"):
            with refused(NothingSaidError):
                store.branch_session(id_, child_id="c")
        assert sorted(listed(store)) == ["a", "b"]

    def test_a_branch_holds_only_what_is_over(self, store: Store) -> None:
        chat(store, "a", "one", "two")
        turn_id = accepted(store, "a")
        accepted(store, "a")
        store.turns.start(turn_id)
        store.turns.step(turn_id, {"role": "assistant", "content": "I look."})
        store.branch_session("a", child_id="b")
        assert contents(store, "b") == ["one", "two"]
        since = store.get_messages_as_conversation("a")[1]["id"]
        store.rotate_session("a", [summary()], child_id="a2", since=since)
        assert contents(store, "a2") == ["in short", "a question", "I look.", "a question"]
        store.branch_session("a2", child_id="c")
        assert contents(store, "c") == ["in short"]
        assert store.check() == []

    def test_a_child_of_a_compacted_session_continues_it(self, store: Store) -> None:
        store.create_session("a", "cli")
        store.end_session("a", "compression")
        store.create_session("b", "cli", parent_session_id="a")
        store.create_session("c", "cli", parent_session_id="a")
        assert session(store, "b")["relation"] == "continuation"
        assert session(store, "c")["relation"] == "branch"
        assert store.get_compression_tip("a") == "b"
        assert store.check() == []

    def test_a_session_with_a_past_of_its_own_continues_nobody(self, store: Store) -> None:
        store.create_session("a", "cli")
        store.end_session("a", "compression")
        for undone in (False, True):
            name = f"b{undone}"
            chat(store, name, "hello")
            store.rotate_session(name, [summary()], child_id=f"{name}2")
            if undone:
                store.undo_rotation(name)
            store.create_session(name, "cli", parent_session_id="a")
            assert session(store, name)["relation"] == "branch"
        assert store.check() == []

    def test_nobody_becomes_the_child_of_its_own_descendant(self, store: Store) -> None:
        chat(store, "a", "hello")
        store.branch_session("a", child_id="b")
        store.branch_session("b", child_id="c")
        for id_ in ("a", "b", "c"):
            store.create_session("a", "cli", parent_session_id=id_)
        assert session(store, "a")["parent_session_id"] is None
        assert [row["id"] for row in store.get_session_tree("c")] == ["a", "b", "c"]

    def test_a_session_keeps_its_first_parent(self, store: Store) -> None:
        for id_ in ("a", "b"):
            store.create_session(id_, "cli")
        store.create_session("child", "cli", parent_session_id="a")
        store.create_session("child", "cli", parent_session_id="b")
        store.create_session("a", "cli", parent_session_id="a")
        assert session(store, "child")["parent_session_id"] == "a"
        assert session(store, "a")["parent_session_id"] is None


class SearchRules:
    """Search: what a person typed, never an error."""

    def test_words_are_found_in_any_case_and_form_of_accent(self, store: Store) -> None:
        chat(store, "a", "The quick brown Fox", "a café in Paris")
        chat(store, "b", "a slow snail")
        assert found(store, "FOX quick") == ["a"]
        assert found(store, "cafe") == ["a"]
        assert found(store, "fox snail") == []
        assert found(store, "") == found(store, "   ") == []

    def test_unspaced_scripts_are_found_by_any_part(self, store: Store) -> None:
        chat(store, "a", "我们明天去北京旅游")
        chat(store, "b", "東京タワーに行きます")
        chat(store, "c", "안녕하세요 세계")
        for query, where in (
            ("京", ["a", "b"]), ("游", ["a"]), ("北京", ["a"]), ("明天去", ["a"]),
            ("北京旅游", ["a"]), ("東京", ["b"]), ("タワー", ["b"]), ("안녕", ["c"]), ("上海", []),
        ):  # fmt: skip
            assert found(store, query) == where, query

    def test_fragments_are_found_when_no_word_is(self, store: Store) -> None:
        chat(store, "a", "call parse_config(path) first")
        assert found(store, "rse_conf") == ["a"]
        assert found(store, "config(pa") == ["a"]

    def test_phrases_prefixes_negations_and_alternatives_work(self, store: Store) -> None:
        chat(store, "a", "red apple pie")
        chat(store, "b", "apple red pie")
        chat(store, "c", "green applause")
        assert found(store, '"red apple"') == ["a"]
        assert found(store, "appl*") == ["a", "b", "c"]
        assert found(store, "pie -apple") == []
        assert found(store, 'pie -"red apple"') == ["b"]
        assert found(store, "green OR pie") == ["a", "b", "c"]

    def test_bad_syntax_is_searched_as_plain_words(self, store: Store) -> None:
        chat(store, "a", 'it\'s a (test) of "things"')
        for query in ('"', '("', "AND OR", "test AND", "NEAR(", "*", "-", "a:b", "'", "\x00", "^test",
                      "{x}", "\ud800", "x" * 5000, "OR OR", "--", '""', "test)", "-test"):  # fmt: skip
            store.search_messages(query)
        assert found(store, "test)") == ["a"]
        assert found(store, '"things') == ["a"]

    def test_results_can_be_filtered(self, store: Store) -> None:
        store.create_session("a", "cli")
        store.create_session("b", "telegram")
        store.append_message("a", "user", "needle", timestamp=100.0)
        store.append_message("a", "assistant", "needle", timestamp=200.0)
        last = store.append_message("b", "user", "needle", timestamp=300.0)
        assert found(store, "needle", role="user") == ["a", "b"]
        assert found(store, "needle", role=("assistant", "tool")) == ["a"]
        assert found(store, "needle", source="telegram") == ["b"]
        assert found(store, "needle", exclude_sources=("telegram",)) == ["a", "a"]
        assert found(store, "needle", since=200.0) == ["a", "b"]
        assert found(store, "needle", until=200.0) == ["a"]
        newest = store.search_messages("needle", sort="newest", limit=1)[0]
        assert newest["id"] == last
        assert len(store.search_messages("needle", sort="oldest", offset=1)) == 2
        assert "needle" in newest["snippet"]

    def test_what_was_imported_is_found_by_when_it_was_said(self, store: Store) -> None:
        store.create_session("old", "cli")
        store.append_message("old", "user", "needle", timestamp=100.0)
        exported = list(store.export_lines(["old"]))
        store.delete_session("old")
        store.create_session("new", "cli")
        store.append_message("new", "user", "needle", timestamp=200.0)
        store.import_lines(exported)
        orders: dict[Sort, list[str]] = {"newest": ["new", "old"], "oldest": ["old", "new"]}
        for sort, order in orders.items():
            assert [
                hit["session_id"] for hit in store.search_messages("needle", sort=sort)
            ] == order
            assert store.search_messages("eedl", sort=sort, limit=1)[0]["session_id"] == order[0]

    def test_a_conversation_is_searched_through_any_of_its_sessions(self, store: Store) -> None:
        chat(store, "a", "needle one")
        chat(store, "other", "needle two")
        store.rotate_session("a", [summary()], child_id="b")
        store.append_message("b", "user", "needle three")
        for id_ in ("a", "b"):
            assert found(store, "needle", session_id=id_) == ["a", "b"]

    def test_copies_are_found_once_and_summaries_not_at_all(self, store: Store) -> None:
        ids = chat(store, "a", "a needle", "fine")
        store.rotate_session("a", [summary("needle in short"), ids[0]], child_id="b")
        store.branch_session("b", child_id="c")
        assert len(store.search_messages("needle")) == 1

    def test_what_an_undone_rotation_carried_is_found_where_it_was_said(self, store: Store) -> None:
        ids = chat(store, "a", "a needle", "fine")
        store.rotate_session("a", [summary(), ids[0]], child_id="b")
        store.undo_rotation("b")
        assert [hit["id"] for hit in store.search_messages("needle")] == [ids[0]]

    def test_a_find_has_the_title_of_its_conversation(self, store: Store) -> None:
        chat(store, "a", "a needle")
        store.set_session_title("a", "Hay")
        store.rotate_session("a", [summary()], child_id="b")
        assert [hit["title"] for hit in store.search_messages("needle")] == ["Hay"]

    def test_what_is_deleted_or_taken_back_is_not_found(self, store: Store) -> None:
        ids = chat(store, "a", "a needle")
        chat(store, "b", "a needle")
        assert found(store, "needle") == ["a", "b"]
        store.delete_session("b")
        store.rewind_to_message("a", ids[0])
        assert found(store, "needle") == []
        assert found(store, "needle", include_inactive=True) == ["a"]

    def test_tool_calls_and_parts_are_searched(self, store: Store) -> None:
        store.create_session("a", "cli")
        calls = [{"function": {"name": "read_file", "arguments": '{"path": "needle.txt"}'}}]
        store.append_message("a", "assistant", None, tool_calls=calls)
        store.append_message("a", "user", [{"type": "text", "text": "haystack"}])
        assert found(store, "needle") == ["a"]
        assert found(store, "haystack") == ["a"]


class TransferRules:
    """Export and import: nothing is lost on the way."""

    def _fill(self, store: Store) -> None:
        ids = chat(store, "a", "hello", "hi")
        store.set_session_title("a", "plan")
        turn_id = accepted(store, "a", idempotency_key="k")
        store.turns.start(turn_id)
        calls = [Call("1", "look", "{}", True), Call("2", "send", "{}", False)]
        store.turns.step(turn_id, {"role": "assistant", "tool_calls": [{"id": "1"}]}, calls)
        first, second = (effect["id"] for effect in store.effects.of_turn(turn_id))
        store.effects.start(first)
        store.effects.done(first, {"role": "tool", "content": "seen"})
        store.effects.cancel(second)
        store.turns.finish(
            turn_id, "answered", message={"role": "assistant", "content": [{"text": "done"}]}
        )
        store.usage.record("a", Spent("m", "p", 1, 2, 3, 4, 5, 0.5), turn_id=turn_id)
        store.rotate_session("a", [summary(), ids[1]], child_id="b")
        accepted(store, "b")
        store.branch_session("b", child_id="c")
        store.turns.finish(store.turns.of_session("b")[-1]["id"], "interrupted")
        ids = chat(store, "d", "x", "y", "z")
        store.rewind_to_message("d", ids[2])
        store.end_session("d", "user")
        store.set_session_archived("d", True)

    def test_an_import_of_an_export_is_the_same_store(self, store: Store) -> None:
        self._fill(store)
        lines = list(store.export_lines())
        store.delete_sessions(["a", "c", "d"])
        assert store.stats()["sessions"] == 0
        report = store.import_lines(lines)
        assert sorted(report.imported) == ["a", "b", "c", "d"]
        assert (report.skipped, report.detached, report.retitled) == ([], [], {})
        assert list(store.export_lines()) == lines
        assert report.messages == len([line for line in lines if line["type"] == "message"])
        assert store.check() == []

    def test_parents_come_before_branches_also_when_the_clock_stands_still(
        self, store: Store
    ) -> None:
        with still_clock():
            chat(store, "z", "hello")
            store.branch_session("z", child_id="a")
            lines = list(store.export_lines())
        store.delete_sessions(["z", "a"])
        report = store.import_lines(lines)
        assert report.detached == []
        assert session(store, "a")["parent_session_id"] == "z"

    def test_what_is_here_already_is_left_alone(self, store: Store) -> None:
        self._fill(store)
        lines = list(store.export_lines())
        report = store.import_lines(lines)
        assert (report.imported, report.messages) == ([], 0)
        assert sorted(report.skipped) == ["a", "b", "c", "d"]
        assert list(store.export_lines()) == lines

    def test_some_conversations_can_be_exported(self, store: Store) -> None:
        self._fill(store)
        lines = list(store.export_lines(["b"]))
        assert [line["id"] for line in lines if line["type"] == "session"] == ["a", "b"]
        with refused(SessionNotFoundError):
            list(store.export_lines(["nobody"]))

    def test_a_branch_without_its_parent_stands_alone(self, store: Store) -> None:
        self._fill(store)
        lines = list(store.export_lines(["c"]))
        store.delete_sessions(["a", "c"])
        report = store.import_lines(lines)
        assert (report.imported, report.detached) == (["c"], ["c"])
        assert session(store, "c")["parent_session_id"] is None
        assert store.check() == []

    def test_a_taken_title_is_numbered(self, store: Store) -> None:
        chat(store, "a", "hello")
        store.set_session_title("a", "plan")
        lines = list(store.export_lines())
        store.delete_session("a")
        store.create_session("other", "cli")
        store.set_session_title("other", "plan")
        assert store.import_lines(lines).retitled == {"a": "plan #2"}
        assert store.get_session_title("a") == "plan #2"

    def test_two_people_keep_the_same_title(self, store: Store) -> None:
        store.create_session("mine", "cli")
        store.create_session("hers", "telegram", user_id="7", chat_id="7")
        store.set_session_title("mine", "Chat")
        store.set_session_title("hers", "Chat")
        lines = list(store.export_lines())
        store.delete_sessions(["mine", "hers"])
        assert store.import_lines(lines).retitled == {}
        assert list(store.export_lines()) == lines

    def test_a_turn_that_was_not_over_is_over_here_and_keeps_what_was_streamed(
        self, store: Store
    ) -> None:
        store.create_session("a", "cli")
        running, waiting = accepted(store, "a"), accepted(store, "a")
        store.turns.start(running)
        calls = [Call("1", "look", "{}", True), Call("2", "send", "{}", False)]
        store.turns.step(running, {"role": "assistant", "content": "so"}, calls)
        store.effects.start(store.effects.of_turn(running)[0]["id"])
        store.partials.keep(running, "half an ans")
        lines = list(store.export_lines())
        store.delete_session("a")
        report = store.import_lines(lines)
        assert (report.interrupted, report.recounted) == (["a"], [])
        assert store.turns.unfinished() == []
        assert [t["state"] for t in store.turns.of_session("a")] == ["interrupted"] * 2
        assert [e["state"] for e in store.effects.of_turn(running)] == ["unknown", "cancelled"]
        last = store.get_messages("a")[-1]
        assert (last["content"], last["kind"]) == ("half an ans", "partial")
        assert waiting and store.check() == []

    def test_copies_of_a_message_stay_copies_of_it_when_it_is_deleted(self, store: Store) -> None:
        chat(store, "a", "hello", "hi")
        store.branch_session("a", child_id="b")
        store.rotate_session("b", [m["id"] for m in store.get_messages("b")], child_id="c")
        store.delete_session("a")
        lines = list(store.export_lines())
        store.delete_session("b")
        store.import_lines(lines)
        assert list(store.export_lines()) == lines
        for first, second in zip(store.get_messages("b"), store.get_messages("c"), strict=True):
            assert first["origin_id"] == second["origin_id"] is not None
        taken_back = store.get_messages("c")[0]["id"]
        store.rewind_to_message("c", taken_back)
        assert store.get_messages("b") == []
        fresh = store.append_message("c", "user", "new")
        assert fresh not in {line.get("origin_id") for line in store.get_messages("c")}

    def test_something_else_is_not_imported(self, store: Store) -> None:
        for lines in ([{"type": "other"}], [{"type": "hermes-export", "version": 99}]):
            with refused(UsageError):
                store.import_lines(lines)
        header = {"type": "hermes-export", "version": 1}
        with refused(UsageError):
            store.import_lines([header, {"type": "novel"}])
        assert store.stats()["sessions"] == 0

    def test_one_session_is_exported_with_its_messages(self, store: Store) -> None:
        chat(store, "a", "hello", "hi")
        exported = store.export_session("a")
        assert exported is not None
        assert exported["id"] == "a"
        assert [message["content"] for message in exported["messages"]] == ["hello", "hi"]


class UpkeepRules:
    """Pruning, ghosts, orphans."""

    def test_old_ended_conversations_are_pruned_and_no_others(self, store: Store) -> None:
        with still_clock() as time:
            for id_ in ("old", "open", "archived", "telegram"):
                chat(store, id_, "hello", source="telegram" if id_ == "telegram" else "cli")
            store.rotate_session("old", [summary()], child_id="old2")
            for id_ in ("old2", "archived", "telegram"):
                store.end_session(id_, "user")
            store.set_session_archived("archived", True)
            time.now += 100 * DAY_S
            chat(store, "young", "hello")
            store.end_session("young", "user")
            assert [row["id"] for row in store.list_prune_candidates(source="cli")] == ["old2"]
            assert store.prune_sessions(90, "cli") == 1
            assert store.prune_sessions(90) == 1
            assert sorted(listed(store, include_archived=True)) == ["archived", "open", "young"]
            assert store.prune_sessions(90, include_archived=True) == 1
            assert store.get_session("old") is None
            with refused(UsageError):
                store.prune_sessions(0)
        assert store.check() == []

    def test_ghosts_are_terminal_sessions_that_ended_without_a_word(self, store: Store) -> None:
        with still_clock() as time:
            for id_, source in (
                ("ghost", "tui"),
                ("cli", "cli"),
                ("open", "tui"),
                ("named", "tui"),
            ):
                store.create_session(id_, source)
            chat(store, "spoken", "hello", source="tui")
            for id_ in ("ghost", "cli", "named", "spoken"):
                store.end_session(id_, "exit")
            store.set_session_title("named", "mine")
            assert store.list_ghost_candidates() == []
            assert store.prune_empty_ghost_sessions() == 0
            time.now += 2 * DAY_S
            assert store.list_ghost_candidates() == ["ghost"]
            assert store.prune_empty_ghost_sessions() == 1
            assert store.get_session("ghost") is None
        assert store.check() == []

    def test_a_ghost_at_the_end_of_a_conversation_leaves_its_parent_as_the_tip(
        self, store: Store
    ) -> None:
        with still_clock() as time:
            chat(store, "a", "hello", source="tui")
            store.rotate_session("a", [], child_id="b")
            store.end_session("b", "exit")
            time.now += 2 * DAY_S
            assert store.prune_empty_ghost_sessions() == 1
        assert store.get_compression_tip("a") == "a"
        assert store.check() == []

    def test_continuations_that_were_never_used_are_ended(self, store: Store) -> None:
        with still_clock() as time:
            for id_ in ("orphan", "used", "empty"):
                chat(store, id_, "hello")
                carried = [] if id_ == "empty" else [summary()]
                store.rotate_session(id_, carried, child_id=f"{id_}2")
            store.usage.record("used2", Spent("m"))
            assert store.finalize_orphaned_compression_sessions() == 0
            time.now += 8 * DAY_S
            assert store.finalize_orphaned_compression_sessions() == 1
            assert store.finalize_orphaned_compression_sessions() == 0
        assert session(store, "orphan2")["end_reason"] == "orphaned_compression"
        assert session(store, "used2")["ended_at"] is None

    def test_a_sound_store_has_nothing_to_say(self, store: Store) -> None:
        chat(store, "a", "hello")
        assert store.check() == []


class TurnRules:
    """Turns: accepted once, ended once."""

    def test_a_delivery_that_was_dealt_with_is_not_accepted_again(self, store: Store) -> None:
        store.create_session("s", "cli")
        ignored, deleted = Delivery("chat", "room", "1"), Delivery("chat", "room", "2")
        message = {"role": "user", "content": "hello"}
        store.inbox.receive(ignored)
        store.inbox.settle(ignored, "ignored")
        store.turns.accept("s", message, delivery=deleted)
        store.delete_session("s")
        store.create_session("s", "cli")
        for delivery in (ignored, deleted):
            with refused(AlreadySettledError):
                store.turns.accept("s", message, delivery=delivery)
        assert store.message_count("s") == 0

    def test_a_message_opens_an_ended_conversation_again_when_that_is_wished(
        self, store: Store
    ) -> None:
        store.create_session("a", "cli")
        store.rotate_session("a", [], child_id="b")
        store.end_session("b", "tui_close")
        message = {"role": "user", "content": "hello"}
        assert store.turns.accept("a", message).session_id == "b"
        assert session(store, "b")["end_reason"] == "tui_close"
        store.turns.accept("a", message, reopens=True)
        assert session(store, "b")["ended_at"] is None
        assert session(store, "a")["end_reason"] == "compression"

    def test_a_message_is_refused_where_its_conversation_is_over(self, store: Store) -> None:
        store.create_session("a", "cli")
        store.rotate_session("a", [], child_id="b")
        store.end_session("b", "session_reset")
        message, delivery = {"role": "user", "content": "hello"}, Delivery("chat", "room", "1")
        with refused(ConversationOverError):
            store.turns.accept(
                "a", message, delivery=delivery, reopens=True, over={"session_reset"}
            )
        assert (store.message_count("b"), store.inbox.get(delivery)) == (0, None)
        assert session(store, "b")["end_reason"] == "session_reset"
        accepted = store.turns.accept("a", message, delivery=delivery, reopens=True, over={"idle"})
        assert accepted.is_new and session(store, "b")["ended_at"] is None

    def test_a_turn_that_has_ended_is_not_taken_again_and_nobody_holds_its_conversation(
        self, store: Store
    ) -> None:
        turn_id = running(store)
        store.turns.finish(turn_id, "answered")
        with refused(IllegalTransitionError):
            store.turns.take(turn_id, "s", "me")
        assert store.leases.holder_of("s") is None

    def test_a_turn_that_ends_leaves_no_call_open(self, store: Store) -> None:
        turn_id = running(store)
        calls = [Call(str(n), "write_file", "{}", read_only=False) for n in range(2)]
        store.turns.step(turn_id, {"role": "assistant", "content": "I will write."}, calls)
        store.effects.start(store.effects.of_turn(turn_id)[0]["id"])
        store.turns.finish(turn_id, "interrupted")
        states = [effect["state"] for effect in store.effects.of_turn(turn_id)]
        assert states == ["unknown", "cancelled"]

    def test_a_turn_goes_from_accepted_to_answered(self, store: Store) -> None:
        store.create_session("s", "cli")
        taken = store.turns.accept("s", {"role": "user", "content": "why?"})
        assert taken.is_new
        assert contents(store, "s") == ["why?"]
        turn = store.turns.get(taken.turn_id)
        assert turn is not None
        assert (turn["state"], turn["user_message_id"]) == ("accepted", taken.message_id)
        assert store.turns.start(taken.turn_id) == 1
        store.turns.step(taken.turn_id, {"role": "assistant", "content": "hm"})
        final = store.turns.finish(
            taken.turn_id,
            "answered",
            message={"role": "assistant", "content": "because"},
            pieces=[Piece("chat", "room", "because")],
        )
        turn = store.turns.get(taken.turn_id)
        assert turn is not None
        assert (turn["state"], turn["final_message_id"]) == ("answered", final)
        assert turn["ended_at"] is not None
        assert contents(store, "s") == ["why?", "hm", "because"]
        assert [piece["content"] for piece in store.outbox.of_turn(taken.turn_id)] == ["because"]
        assert store.check() == []

    def test_a_second_delivery_finds_the_first(self, store: Store) -> None:
        store.create_session("s", "cli")
        delivery = Delivery("telegram", "room", "1")
        message = {"role": "user", "content": "once"}
        first = store.turns.accept("s", message, delivery=delivery)
        again = store.turns.accept("s", message, delivery=delivery)
        assert again == first._replace(is_new=False)
        assert contents(store, "s") == ["once"]
        assert store.turns.accept("s", message, delivery=delivery._replace(chat_id="x")).is_new

    def test_a_second_idempotency_key_finds_the_first(self, store: Store) -> None:
        store.create_session("s", "cli")
        message = {"role": "user", "content": "once"}
        first = store.turns.accept("s", message, idempotency_key="k")
        store.turns.start(first.turn_id)
        store.turns.finish(first.turn_id, "answered")
        assert store.turns.accept("s", message, idempotency_key="k") == first._replace(is_new=False)
        assert contents(store, "s") == ["once"]

    def test_a_message_for_a_compacted_session_goes_where_the_conversation_is(
        self, store: Store
    ) -> None:
        ids = chat(store, "s", "hello")
        child = store.rotate_session("s", [ids[0]])
        accepted = store.turns.accept("s", {"role": "user", "content": "and now?"})
        assert accepted.session_id == child
        found = store.turns.get(accepted.turn_id)
        assert found is not None
        assert found["session_id"] == child
        assert store.get_messages_as_conversation(child)[-1]["content"] == "and now?"

    def test_what_waits_can_be_taken_back_and_is_not_part_of_the_conversation(
        self, store: Store
    ) -> None:
        chat(store, "s", "hello")
        first = store.turns.accept("s", {"role": "user", "content": "never mind"})
        store.turns.accept("s", {"role": "user", "content": "this instead"})
        store.turns.withdraw(first.turn_id, "taken back")
        assert contents(store, "s") == ["hello", "this instead"]
        found = store.turns.get(first.turn_id)
        assert found is not None
        assert (found["state"], found["reason"]) == ("interrupted", "taken back")
        assert session(store, "s")["message_count"] == 2
        with refused(StoreError):
            store.turns.withdraw(running(store, "other"), "too late")

    def test_a_message_that_waits_is_replaced_in_its_place(self, store: Store) -> None:
        chat(store, "s", "hello")
        deliveries = [Delivery("p", "c", str(number)) for number in range(4)]
        said = [{"role": "user", "content": text} for text in ("one", "tow", "three", "two")]
        runs, waits, behind = (
            store.turns.accept("s", one, delivery=delivery).turn_id
            for one, delivery in zip(said[:3], deliveries[:3], strict=True)
        )
        store.turns.start(runs)
        made = store.turns.replace(waits, said[3], deliveries[3])
        assert made is not None
        assert contents(store, "s") == ["hello", "one", "two", "three"]
        still_open = [one["id"] for one in store.turns.still_open()]
        assert still_open == [runs, made.turn_id, behind]
        rows = [store.turns.get(one) or {} for one in (made.turn_id, behind)]
        assert rows[0]["user_message_id"] < rows[1]["user_message_id"]
        assert (store.turns.get(waits) or {})["state"] == "interrupted"
        assert (store.inbox.get(deliveries[3]) or {})["turn_id"] == made.turn_id
        assert store.turns.replace(runs, said[3], Delivery("p", "c", "9")) is None
        assert store.inbox.get(Delivery("p", "c", "9")) is None

    def test_the_versions_of_a_message_are_found(self, store: Store) -> None:
        rows = {
            "1": "{}",
            "1:e": '{"edits":"1"}',
            "0-1": '{"parts":["0","1"]}',
            "2": '{"edits":"11"}',
        }
        for message_id, payload in rows.items():
            store.inbox.receive(Delivery("p", "c", message_id, payload))
        store.inbox.receive(Delivery("p", "other", "1:e", '{"edits":"1"}'))
        found = store.inbox.versions(Delivery("p", "c", "1"))
        assert [one["message_id"] for one in found] == ["1", "1:e", "0-1"]

    def test_a_turn_for_nobody_is_not_accepted(self, store: Store) -> None:
        delivery = Delivery("telegram", "room", "1")
        with refused(SessionNotFoundError):
            store.turns.accept("nobody", {"role": "user", "content": "x"}, delivery=delivery)
        assert store.inbox.get(delivery) is None

    def test_a_turn_may_be_tried_again(self, store: Store) -> None:
        turn_id = running(store)
        assert store.turns.start(turn_id) == 2

    def test_a_turn_that_was_put_off_has_lost_no_attempt(self, store: Store) -> None:
        turn_id = running(store)
        store.turns.put_off(turn_id)
        assert store.turns.start(turn_id) == 1
        store.turns.finish(turn_id, "interrupted")
        store.turns.put_off(turn_id)
        row = store.turns.get(turn_id)
        assert row is not None
        assert (row["state"], row["attempts"]) == ("interrupted", 1)

    def test_a_turn_that_only_waited_for_a_person_has_lost_no_attempt(self, store: Store) -> None:
        turn_id = running(store)
        call = Call("c1", "terminal", "{}", read_only=False)
        beside = Call("c2", "terminal", "{}", read_only=False)
        store.turns.step(turn_id, {"role": "assistant", "content": ""}, [call, beside])
        asked = Question(turn_id, "c1", "approval", "terminal", "It deletes.", "", ("once",))
        store.questions.ask(asked)
        assert [store.turns.start(turn_id) for _ in range(4)] == [1, 1, 1, 1]
        other = store.effects.of_turn(turn_id)[1]
        store.effects.start(other["id"])
        assert store.turns.start(turn_id) == 2, "what was being done beside it may have ended it"

    def test_a_turn_that_never_began_can_fail_or_be_interrupted(self, store: Store) -> None:
        store.create_session("s", "cli")
        ends: tuple[tuple[End, str | None], ...] = (("failed", "why"), ("interrupted", None))
        for end, reason in ends:
            turn_id = accepted(store)
            store.turns.finish(turn_id, end, reason=reason)
            turn = store.turns.get(turn_id)
            assert turn is not None
            assert (turn["state"], turn["reason"]) == (end, reason)

    def test_a_turn_ends_once(self, store: Store) -> None:
        ends: tuple[End, ...] = ("answered", "failed", "interrupted")
        for number, end in enumerate(ends):
            turn_id = running(store, f"s{number}")
            store.turns.finish(turn_id, end, reason="why")
            for other in ends:
                with refused(IllegalTransitionError):
                    store.turns.finish(
                        turn_id, other, reason="x", message={"role": "assistant", "content": "no"}
                    )
            with refused(IllegalTransitionError):
                store.turns.start(turn_id)
            with refused(StoreError):
                store.turns.step(turn_id, {"role": "assistant", "content": "no"})
            assert contents(store, f"s{number}") == ["a question"]

    def test_a_failure_says_why(self, store: Store) -> None:
        turn_id = running(store)
        with refused(IllegalTransitionError):
            store.turns.finish(turn_id, "failed")

    def test_only_a_turn_that_runs_has_steps_or_an_answer(self, store: Store) -> None:
        store.create_session("s", "cli")
        turn_id = accepted(store)
        with refused(StoreError):
            store.turns.step(turn_id, {"role": "assistant", "content": "x"})
        with refused(IllegalTransitionError):
            store.turns.finish(turn_id, "answered")
        with refused(StoreError):
            store.turns.start("nobody")
        with refused(StoreError):
            store.turns.finish("nobody", "answered")

    def test_turns_without_an_end_are_listed_unless_somebody_runs_them(self, store: Store) -> None:
        turn_id = running(store)
        assert [turn["id"] for turn in store.turns.unfinished()] == [turn_id]
        with still_clock() as time:
            time.now += DAY_S
            store.leases.acquire("s", "me", ttl_s=60)
            assert store.turns.unfinished() == []
            assert [turn["id"] for turn in store.turns.still_open()] == [turn_id]
            time.now += 61
            assert [turn["id"] for turn in store.turns.unfinished()] == [turn_id]
        store.turns.finish(turn_id, "interrupted")
        assert store.turns.unfinished() == []

    def test_a_message_for_a_session_that_was_compacted_goes_to_its_tip(self, store: Store) -> None:
        chat(store, "s", "one")
        child = store.rotate_session("s", [summary()])
        assert store.turns.accept("s", {"role": "user", "content": "two"}).session_id == child

    def test_what_was_said_after_the_caller_looked_goes_along(self, store: Store) -> None:
        _, second = chat(store, "s", "one", "two")
        late = store.turns.accept("s", {"role": "user", "content": "three"})
        child = store.rotate_session("s", [summary(), second], since=second)
        assert contents(store, child) == ["in short", "two", "three"]
        assert contents(store, child, include_ancestors=True) == ["one", "two", "three"]
        turn = store.turns.get(late.turn_id)
        assert turn is not None
        assert turn["session_id"] == child

    def test_a_first_message_makes_its_session(self, store: Store) -> None:
        message = {"role": "user", "content": "hello"}
        opening = Opening("cli", {"cwd": "/here"})
        store.turns.accept("new", message, opening=opening)
        store.turns.accept("new", message, opening=Opening("other", {"cwd": "/there"}))
        row = session(store, "new")
        assert (row["source"], row["cwd"], row["message_count"]) == ("cli", "/here", 2)

    def test_a_title_makes_its_session_or_nothing(self, store: Store) -> None:
        opening = Opening("p", {"user_id": "u"})
        assert store.name_session("new", "Tea", opening)
        assert not store.name_session("new", "Coffee", opening)
        row = session(store, "new")
        assert (row["title"], row["source"], row["user_id"]) == ("Coffee", "p", "u")
        with refused(TitleError):
            store.name_session("other", "Coffee", opening)
        assert store.get_session("other") is None
        assert not store.turns.accept("new", {"role": "user", "content": "x"}).makes_session

    def test_a_turn_that_was_never_begun_knows_whether_its_session_was_made_with_it(
        self, store: Store
    ) -> None:
        hello = {"role": "user", "content": "hello"}
        first = store.turns.accept("new", hello, opening=Opening("p")).turn_id
        second = store.turns.accept("new", hello).turn_id
        assert (store.turns.opens(first), store.turns.opens(second)) == (True, False)
        store.turns.start(first)
        assert not store.turns.opens(first)
        store.turns.finish(first, "answered", message={"role": "assistant", "content": "hi"})
        store.name_session("named", "Tea", Opening("p"))
        assert not store.turns.opens(store.turns.accept("named", hello).turn_id)
        branch = store.branch_session("new")
        assert not store.turns.opens(store.turns.accept(branch, hello).turn_id)

    def test_a_first_message_makes_the_route_of_its_chat(self, store: Store) -> None:
        opening = Opening("telegram", route=Route("chat", '{"x":1}'))
        made = store.turns.accept("new", {"role": "user", "content": "hello"}, opening=opening)
        assert made.makes_session
        row = store.routes.get("chat")
        assert row is not None
        assert (row["session_id"], row["entry"]) == ("new", '{"x":1}')
        assert not store.turns.accept("new", {"role": "user", "content": "x"}).makes_session

    def test_what_is_said_while_a_turn_runs_comes_after_that_turn(self, store: Store) -> None:
        turn_id = running(store)
        store.turns.step(
            turn_id, {"role": "assistant", "content": "let me look"}, [Call("a", "t", "{}", True)]
        )
        waiting = store.turns.accept("s", {"role": "user", "content": "and another thing"})
        (effect,) = store.effects.of_turn(turn_id)
        store.effects.start(effect["id"])
        store.effects.done(effect["id"], {"role": "tool", "content": "found", "tool_call_id": "a"})
        child = store.rotate_session("s", [m["id"] for m in store.get_messages("s")])
        store.turns.finish(turn_id, "answered", message={"role": "assistant", "content": "so"})
        said = ["a question", "let me look", "found", "so", "and another thing"]
        assert contents(store, child) == said
        store.turns.start(waiting.turn_id)
        store.turns.finish(
            waiting.turn_id, "answered", message={"role": "assistant", "content": "yes"}
        )
        assert contents(store, child) == [*said, "yes"]
        assert contents(store, child, include_ancestors=True) == [*said, "yes"]

    def test_every_commit_of_a_turn_checks_the_lease(self, store: Store) -> None:
        turn_id = running(store)
        step = {"role": "assistant", "content": "x"}
        store.turns.step(turn_id, step, [Call("1", "t", "{}", False)])
        effect = store.effects.of_turn(turn_id)[0]["id"]
        old = store.leases.acquire("s", "me", ttl_s=0)
        assert old is not None
        store.leases.acquire("s", "you")
        for write in (
            lambda: store.turns.start(turn_id, old),
            lambda: store.turns.put_off(turn_id, old),
            lambda: store.turns.step(turn_id, step, lease=old),
            lambda: store.turns.finish(turn_id, "answered", message=step, lease=old),
            lambda: store.effects.start(effect, old),
            lambda: store.effects.cancel(effect, lease=old),
            lambda: store.undo_rotation("s", lease=old),
        ):
            with refused(LeaseLostError):
                write()
        assert contents(store, "s") == ["a question", "x"]

    def test_the_database_itself_refuses_illegal_states_of_a_turn(self, store: Store) -> None:
        turn_id = running(store)
        set_state = "UPDATE turns SET state = ?, ended_at = ? WHERE id = ?"
        for state, ended in (("accepted", None), ("nonsense", None), ("answered", None)):
            with refused(IllegalTransitionError):
                store.write(execute(set_state, state, ended, turn_id))
        store.turns.finish(turn_id, "answered")
        for state in ("running", "accepted", "failed"):
            with refused(IllegalTransitionError):
                store.write(execute(set_state, state, None, turn_id))
        with refused(IllegalTransitionError):
            store.write(
                execute(
                    "INSERT INTO turns (id, session_id, state, user_message_id, accepted_at,"
                    " started_at) VALUES ('x', 's', 'running', 1, 0, 0)"
                )
            )

    def test_turns_that_were_cut_short_are_found_by_the_messages_they_answer(
        self, store: Store
    ) -> None:
        ends: dict[str, int] = {}
        for end in ("answered", "failed", "interrupted"):
            turn_id = running(store, end)
            turn = store.turns.get(turn_id)
            assert turn is not None
            ends[end] = turn["user_message_id"]
            store.turns.finish(turn_id, end, reason="why")
        found = store.turns.cut_short([*ends.values(), 10_000])
        assert {turn["user_message_id"]: turn["state"] for turn in found} == {
            ends["failed"]: "failed", ends["interrupted"]: "interrupted"
        }  # fmt: skip
        assert store.turns.cut_short([]) == []


class EffectRules:
    """The ledger of tool calls."""

    def _effects(self, store: Store, *read_only: bool) -> tuple[str, list[int]]:
        turn_id = running(store)
        calls = [Call(str(n), "tool", "{}", flag) for n, flag in enumerate(read_only)]
        store.turns.step(turn_id, {"role": "assistant", "content": "calling"}, calls)
        return turn_id, [effect["id"] for effect in store.effects.of_turn(turn_id)]

    def test_calls_are_intended_with_their_step_and_done_with_their_result(
        self, store: Store
    ) -> None:
        turn_id, (first, second) = self._effects(store, True, False)
        assert [e["state"] for e in store.effects.of_turn(turn_id)] == ["intended"] * 2
        store.effects.start(first)
        message_id = store.effects.done(first, {"role": "tool", "content": "result"})
        store.effects.start(second)
        assert store.effects.unknown(second) is None
        done, unknown = store.effects.of_turn(turn_id)
        assert (done["state"], done["result_message_id"]) == ("done", message_id)
        assert (unknown["state"], bool(unknown["read_only"])) == ("unknown", False)
        assert contents(store, "s")[-1] == "result"

    def test_a_call_that_was_not_begun_can_be_cancelled(self, store: Store) -> None:
        turn_id, (only,) = self._effects(store, False)
        assert store.effects.cancel(only, {"role": "tool", "content": "not done"}) is not None
        assert store.effects.of_turn(turn_id)[0]["state"] == "cancelled"

    def test_only_a_read_only_call_may_be_started_again(self, store: Store) -> None:
        _, (harmless, other) = self._effects(store, True, False)
        for effect in (harmless, other):
            store.effects.start(effect)
        store.effects.start(harmless)
        with refused(IllegalTransitionError):
            store.effects.start(other)

    def test_an_illegal_move_stores_no_result(self, store: Store) -> None:
        _, (only,) = self._effects(store, False)
        result = {"role": "tool", "content": "too late"}
        with refused(IllegalTransitionError):
            store.effects.done(only, result)
        store.effects.start(only)
        store.effects.done(only, {"role": "tool", "content": "in time"})
        for move in (store.effects.done, store.effects.unknown, store.effects.cancel):
            with refused(IllegalTransitionError):
                move(only, result)
        assert "too late" not in contents(store, "s")
        with refused(StoreError):
            store.effects.start(10_000)

    def test_the_same_call_is_intended_once(self, store: Store) -> None:
        turn_id = running(store)
        call = Call("1", "tool", "{}", False)
        with refused(StoreError):
            store.turns.step(turn_id, {"role": "assistant", "content": "x"}, [call, call])
        assert store.effects.of_turn(turn_id) == []
        assert contents(store, "s") == ["a question"]

    def test_the_database_itself_refuses_illegal_states_of_an_effect(self, store: Store) -> None:
        _, (only,) = self._effects(store, False)
        for state in ("done", "unknown", "nonsense"):
            with refused(IllegalTransitionError):
                store.write(execute("UPDATE effects SET state = ? WHERE id = ?", state, only))


class InboxRules:
    """What platforms delivered."""

    def test_a_delivery_is_received_once_and_settled_once(self, store: Store) -> None:
        delivery = Delivery("telegram", "room", "1", '{"text": "hi"}')
        assert store.inbox.receive(delivery) is True
        assert store.inbox.receive(delivery) is False
        assert [row["message_id"] for row in store.inbox.unsettled()] == ["1"]
        store.inbox.settle(delivery, "ignored")
        row = store.inbox.get(delivery)
        assert row is not None
        assert (row["outcome"], row["payload"]) == ("ignored", '{"text": "hi"}')
        assert store.inbox.unsettled() == []
        with refused(IllegalTransitionError):
            store.inbox.settle(delivery, "command")
        assert store.inbox.get(delivery._replace(message_id="2")) is None

    def test_accepting_a_turn_settles_its_delivery(self, store: Store) -> None:
        store.create_session("s", "cli")
        delivery = Delivery("telegram", "room", "1")
        store.inbox.receive(delivery)
        turn_id = accepted(store, delivery=delivery)
        row = store.inbox.get(delivery)
        assert row is not None
        assert (row["outcome"], row["turn_id"]) == ("turn", turn_id)

    def test_the_database_itself_refuses_an_unknown_outcome(self, store: Store) -> None:
        store.inbox.receive(Delivery("telegram", "room", "1"))
        for outcome in ("nonsense", "turn"):
            with refused(IllegalTransitionError):
                store.write(execute("UPDATE inbox SET outcome = ?", outcome))


class PartialRules:
    """What was streamed of a reply whose turn still runs."""

    def test_it_is_seen_as_a_partial_message_until_its_step_is_stored(self, store: Store) -> None:
        turn_id = running(store)
        store.partials.keep(turn_id, "Once")
        store.partials.keep(turn_id, "Once upon")
        (seen,) = store.partials.of_session("s")
        turn = store.turns.get(turn_id)
        assert turn is not None
        assert (seen["content"], seen["kind"], seen["answers"]) == (
            "Once upon", "partial", turn["user_message_id"]
        )  # fmt: skip
        store.turns.step(turn_id, {"role": "assistant", "content": "Once upon a time"})
        assert store.partials.of_session("s") == []
        store.turns.finish(turn_id, "interrupted", reason="stopped")
        assert contents(store, "s")[-1] == "Once upon a time"

    def test_a_turn_that_ends_without_a_last_message_keeps_it_as_such(self, store: Store) -> None:
        turn_id = running(store)
        store.partials.keep(turn_id, "Once upon\n")
        message_id = store.turns.finish(turn_id, "failed", reason="no model")
        last = store.get_messages("s")[-1]
        assert (last["id"], last["content"], last["kind"]) == (message_id, "Once upon", "partial")
        assert store.partials.of_session("s") == []

    def test_a_whole_answer_takes_its_place(self, store: Store) -> None:
        turn_id = running(store)
        store.partials.keep(turn_id, "Once upon")
        store.turns.finish(turn_id, "answered", message={"role": "assistant", "content": "Yes."})
        assert contents(store, "s")[-1] == "Yes."
        assert store.partials.of_session("s") == []

    def test_who_lost_the_conversation_keeps_nothing(self, store: Store) -> None:
        turn_id = running(store)
        root = store.get_conversation_root("s")
        with still_clock() as time:
            lease = store.leases.acquire(root, "one")
            time.now += 3600
            store.leases.acquire(root, "two")
        with refused(LeaseLostError):
            store.partials.keep(turn_id, "late", lease)
        assert store.partials.of_session("s") == []

    def test_it_goes_with_its_session(self, store: Store) -> None:
        store.partials.keep(running(store), "Once upon")
        store.delete_session("s")
        assert store.partials.of_session("s") == []


class OutboxRules:
    """What must be sent."""

    def test_pieces_are_sent_in_order(self, store: Store) -> None:
        turn_id = running(store)
        pieces = [Piece("telegram", "room", text, "thread") for text in ("one", "two")]
        one, two = store.outbox.put(pieces, turn_id=turn_id)
        assert [piece["id"] for piece in store.outbox.due()] == [one]
        assert store.outbox.begin(one)["attempts"] == 1
        assert store.outbox.due() == []
        assert [piece["id"] for piece in store.outbox.unsure()] == [one]
        store.outbox.sent(one, "p1")
        assert [piece["content"] for piece in store.outbox.due()] == ["two"]
        store.outbox.begin(two)
        store.outbox.fail(two, "blocked")
        first, second = store.outbox.of_turn(turn_id)
        assert (first["state"], first["platform_message_id"]) == ("sent", "p1")
        assert (second["state"], second["error"], second["thread_id"]) == (
            "failed", "blocked", "thread"
        )  # fmt: skip

    def test_a_piece_that_did_not_get_through_is_due_again_later(self, store: Store) -> None:
        with still_clock() as time:
            (only,) = store.outbox.put([Piece("telegram", "room", "hi")])
            store.outbox.begin(only)
            store.outbox.retry(only, "timeout", due_at=time.now + 30)
            assert store.outbox.due() == []
            assert [(piece["id"], piece["error"]) for piece in store.outbox.waiting()] == [
                (only, "timeout")
            ]
            time.now += 30
            assert [piece["attempts"] for piece in store.outbox.due()] == [1]
            assert store.outbox.begin(only)["attempts"] == 2

    def test_pieces_of_one_chat_wait_for_each_other_and_for_no_other_chat(
        self, store: Store
    ) -> None:
        first, _ = store.outbox.put([Piece("telegram", "room", text) for text in "ab"])
        (other,) = store.outbox.put([Piece("telegram", "hall", "c")])
        (same_name,) = store.outbox.put([Piece("matrix", "room", "d")])
        assert [piece["id"] for piece in store.outbox.due()] == [first, other, same_name]
        assert len(store.outbox.due(limit=1)) == 1

    def test_a_chat_is_open_until_its_last_piece_has_ended(self, store: Store) -> None:
        first, second = store.outbox.put([Piece("telegram", "room", text) for text in "ab"])
        for piece in (first, second):
            assert store.outbox.is_open("telegram", "room")
            store.outbox.begin(piece)
            assert store.outbox.is_open("telegram", "room")
            assert store.outbox.sent(piece, "m") is (piece == first)
        assert not store.outbox.is_open("telegram", "room")
        store.outbox.put([Piece("telegram", "hall", "c"), Piece("matrix", "room", "d")])
        assert not store.outbox.is_open("telegram", "room")

    def test_who_ends_a_piece_is_told_whether_its_chat_waits_for_more(self, store: Store) -> None:
        first, second, third = store.outbox.put([Piece("telegram", "room", x) for x in "abc"])
        store.outbox.put([Piece("telegram", "hall", "d"), Piece("matrix", "room", "e")])
        store.outbox.begin(first)
        assert store.outbox.fail(first, "blocked")
        store.outbox.begin(second)
        store.outbox.retry(second, "timeout", due_at=0.0)
        store.outbox.begin(second)
        assert store.outbox.sent(second)
        store.outbox.begin(third)
        assert not store.outbox.sent(third)
        (again,) = store.outbox.put([Piece("telegram", "room", "f")])
        assert not store.outbox.fail(again, "blocked")

    def test_a_piece_is_put_once_under_its_name(self, store: Store) -> None:
        piece = Piece("telegram", "room", "a", key="notice:1", extra='{"reply_to":"7"}')
        (only,) = store.outbox.put([piece])
        assert store.outbox.put([piece]) == []
        (row,) = store.outbox.due()
        assert (row["id"], row["key"], row["extra"]) == (only, "notice:1", '{"reply_to":"7"}')
        assert store.outbox.next_due_at() == row["due_at"]

    def test_what_was_said_on_the_request_itself_is_kept_and_not_sent(self, store: Store) -> None:
        piece = Piece("api_server", "notes", "Done.", key="command:1:0", is_said=True)
        assert len(store.outbox.put([piece, piece])) == 1
        row = store.outbox.get("command:1:0")
        assert row is not None and (row["content"], row["state"]) == ("Done.", "sent")
        assert store.outbox.get("command:2:0") is None
        assert store.outbox.due() == [] == store.outbox.unsure()

    def test_what_was_given_up_is_listed(self, store: Store) -> None:
        (only,) = store.outbox.put([Piece("telegram", "room", "hi")])
        assert store.outbox.failed() == []
        store.outbox.fail(only, "blocked")
        (row,) = store.outbox.failed()
        assert row["error"] == "blocked"
        assert store.outbox.failed(since=row["ended_at"] + 1) == []
        assert store.outbox.next_due_at() is None

    def test_a_piece_that_is_not_to_be_sent_is_on_record_and_holds_up_no_other(
        self, store: Store
    ) -> None:
        pieces = [Piece("telegram", "room", "a", failure="dropped"), Piece("telegram", "room", "b")]
        store.outbox.put(pieces)
        assert [piece["content"] for piece in store.outbox.due()] == ["b"]
        (row,) = store.outbox.failed()
        assert (row["content"], row["error"]) == ("a", "dropped")

    def test_a_turn_has_one_draft(self, store: Store) -> None:
        turn_id = running(store)
        assert store.drafts.get(turn_id) is None
        assert store.drafts.begin(turn_id, "telegram", "room")
        assert not store.drafts.begin(turn_id, "telegram", "room")
        assert (store.drafts.get(turn_id) or {})["message_id"] is None
        store.drafts.named(turn_id, "m1")
        assert (store.drafts.get(turn_id) or {})["message_id"] == "m1"
        store.drafts.drop(turn_id)
        assert store.drafts.get(turn_id) is None

    def test_the_first_piece_of_a_reply_is_begun_with_the_draft_that_shows_it(
        self, store: Store
    ) -> None:
        turn_id, other = running(store, "s1"), running(store, "s2")
        first, second = store.outbox.put([Piece("t", "room", x) for x in "ab"], turn_id=turn_id)
        (plain,) = store.outbox.put([Piece("t", "hall", "c")], turn_id=other)
        (notice,) = store.outbox.put([Piece("t", "attic", "d")])
        store.drafts.begin(turn_id, "t", "room")
        store.drafts.named(turn_id, "m1")
        begun = store.outbox.begin(first)
        assert (begun["content"], begun["state"], begun["draft"]["message_id"]) == (
            "a", "sending", "m1"
        )  # fmt: skip
        assert [store.outbox.begin(one)["draft"] for one in (plain, notice)] == [None, None]
        store.outbox.sent(plain)
        assert store.drafts.get(turn_id) is not None
        store.outbox.sent(first)
        assert store.drafts.get(turn_id) is None
        assert store.outbox.begin(second)["draft"] is None

    def test_a_piece_may_be_claimed_with_the_note_of_what_became_of_it(self, store: Store) -> None:
        first, second = store.outbox.put([Piece("matrix", "room", text) for text in "ab"])
        seen = store.outbox.look(first)
        assert seen is not None
        assert (seen["state"], seen["attempts"], seen["draft"]) == ("pending", 1, None)
        assert store.outbox.unsure() == []
        store.outbox.retry(first, "timeout", due_at=0.0, is_claimed=False)
        again = store.outbox.look(first)
        assert again is not None and (again["attempts"], again["error"]) == (2, "timeout")
        assert store.outbox.sent(first, "m1", is_claimed=False)
        assert store.outbox.look(first) is None
        assert [piece["id"] for piece in store.outbox.due()] == [second]
        with refused(IllegalTransitionError):
            store.outbox.sent(first, "m2", is_claimed=False)
        assert store.outbox.look(10_000) is None

    def test_a_piece_is_looked_up_with_the_draft_that_shows_it(self, store: Store) -> None:
        turn_id = running(store)
        (only,) = store.outbox.put([Piece("t", "room", "a")], turn_id=turn_id)
        store.drafts.begin(turn_id, "t", "room")
        seen = store.outbox.look(only)
        assert seen is not None and seen["draft"]["message_id"] is None
        store.outbox.sent(only, "m1", is_claimed=False)
        assert store.drafts.get(turn_id) is None

    def test_an_illegal_move_of_a_piece_is_refused(self, store: Store) -> None:
        (only,) = store.outbox.put([Piece("telegram", "room", "hi")])
        with refused(IllegalTransitionError):
            store.outbox.sent(only)
        store.outbox.begin(only)
        with refused(IllegalTransitionError):
            store.outbox.begin(only)
        store.outbox.sent(only)
        for move in (lambda: store.outbox.fail(only, "x"), lambda: store.outbox.begin(only)):
            with refused(IllegalTransitionError):
                move()
        with refused(IllegalTransitionError):
            store.write(execute("UPDATE outbox SET state = 'pending', ended_at = NULL"))
        with refused(StoreError):
            store.outbox.begin(10_000)


class RouteRules:
    """Where a chat's conversation is."""

    def test_a_route_is_saved_found_and_forgotten(self, store: Store) -> None:
        store.routes.save("key", "a", '{"x": 1}')
        store.routes.save("key", "b", '{"x": 2}')
        store.routes.save("key", "c", scope="other")
        row = store.routes.get("key")
        assert row is not None
        assert (row["session_id"], row["entry"]) == ("b", '{"x": 2}')
        assert store.routes.get("none") is None
        assert list(store.routes.load()) == ["key"]
        assert store.routes.delete(["key", "none"]) == 1
        assert store.routes.load() == {}
        assert list(store.routes.load("other")) == ["key"]

    def test_all_routes_of_a_scope_can_be_replaced(self, store: Store) -> None:
        store.routes.save("old", "a")
        store.routes.save("kept", "a")
        store.routes.save("elsewhere", "a", scope="other")
        store.routes.replace({"kept": ("b", "{}"), "new": ("c", "{}")})
        assert {k: row["session_id"] for k, row in store.routes.load().items()} == {
            "kept": "b", "new": "c"
        }  # fmt: skip
        assert list(store.routes.load("other")) == ["elsewhere"]

    def test_a_chat_whose_route_was_forgotten_has_the_conversation_it_had_last(
        self, store: Store
    ) -> None:
        for name in ("first", "last", "left", "away"):
            store.create_session(name, "cli", session_key="key")
        store.create_session("elsewhere", "cli", session_key="other")
        store.end_session("last", "agent_close")
        store.end_session("left", "reset")
        store.set_session_archived("away", archived=True)
        found = store.routes.lost("key", ["reset"])
        assert found is not None
        assert found["id"] == "last"
        assert store.routes.lost("nobody", ["reset"]) is None

    def test_a_chat_that_goes_on_elsewhere_takes_along_what_waits(self, store: Store) -> None:
        store.create_session("s", "cli")
        runs = accepted(store, delivery=Delivery("p", "c", "1", '{"session_key": "key"}'))
        waits = accepted(store, delivery=Delivery("p", "c", "2", '{"session_key": "key"}'))
        other = accepted(store, delivery=Delivery("p", "d", "3", '{"session_key": "d"}'))
        typed = accepted(store)
        store.turns.start(runs)
        moved = store.succeed(
            Route("key", '{"x": 1}'), "new", former="s", reason="why", opening=Opening("p")
        )
        assert moved == 1
        turns = {one: store.turns.get(one) or {} for one in (runs, waits, other, typed)}
        assert [turns[one]["session_id"] for one in turns] == ["s", "new", "s", "s"]
        assert contents(store, "new") == [store.turns.user_text(waits)]
        assert len(contents(store, "s")) == 3
        assert (session(store, "s")["end_reason"], session(store, "new")["source"]) == ("why", "p")
        route = store.routes.get("key")
        assert route is not None
        assert (route["session_id"], route["entry"]) == ("new", '{"x": 1}')

    def test_a_conversation_that_a_chat_leaves_goes_on_for_others(self, store: Store) -> None:
        chat(store, "s", "hello")
        store.routes.save("others", "s")
        opening = Opening("p")
        store.succeed(Route("key"), "new", former="s", reason="why", opening=opening)
        assert session(store, "s")["ended_at"] is None
        assert store.get_session("new") is None, "its first message makes it"


class LeaseRules:
    """Who may run a conversation."""

    def test_a_lease_has_one_holder_and_a_token_that_grows(self, store: Store) -> None:
        with still_clock() as time:
            first = store.leases.acquire("c", "me", ttl_s=10)
            assert first == Lease("c", "me", 1)
            assert store.leases.acquire("c", "you", ttl_s=10) is None
            assert store.leases.holder_of("c") == "me"
            time.now += 10
            assert store.leases.holder_of("c") is None
            second = store.leases.acquire("c", "you", ttl_s=10)
            assert second == Lease("c", "you", 2)

    def test_a_lease_is_renewed_by_its_holder_only(self, store: Store) -> None:
        with still_clock() as time:
            first = store.leases.acquire("c", "me", ttl_s=10)
            assert first is not None
            time.now += 5
            store.leases.renew(first, ttl_s=10)
            time.now += 9
            assert store.leases.holder_of("c") == "me"
            time.now += 1
            store.leases.acquire("c", "you", ttl_s=10)
            with refused(LeaseLostError):
                store.leases.renew(first)
            store.leases.release(first)
            assert store.leases.holder_of("c") == "you"

    def test_a_released_lease_is_free_and_its_next_token_is_higher(self, store: Store) -> None:
        first = store.leases.acquire("c", "me")
        assert first is not None
        store.leases.release(first)
        assert store.leases.holder_of("c") is None
        assert store.leases.acquire("c", "you") == Lease("c", "you", 2)

    def test_a_holder_who_asks_again_outdates_its_own_first_lease(self, store: Store) -> None:
        first = store.leases.acquire("c", "me")
        second = store.leases.acquire("c", "me")
        assert first is not None
        assert second == Lease("c", "me", 2)
        with refused(LeaseLostError):
            store.leases.renew(first)

    def test_the_database_itself_refuses_a_smaller_token(self, store: Store) -> None:
        store.leases.acquire("c", "me")
        with refused(IllegalTransitionError):
            store.write(execute("UPDATE leases SET token = 0"))


class UsageRules:
    """What model calls cost."""

    def test_calls_are_summed_up_by_model_over_a_conversation(self, store: Store) -> None:
        with still_clock() as time:
            store.create_session("a", "cli")
            store.usage.record("a", Spent("m", "p", 10, 20, 1, 2, 3, 0.25))
            store.rotate_session("a", [], child_id="b")
            time.now += 100
            store.usage.record("b", Spent("m", "p", 1, 1, cost_usd=0.25))
            store.usage.record("b", Spent("other", input_tokens=5), task="title")
            sums = {row["model"]: row for row in store.usage.of_conversation("a")}
            assert (sums["m"]["calls"], sums["m"]["input_tokens"]) == (2, 11)
            assert (sums["m"]["cost_usd"], sums["m"]["reasoning_tokens"]) == (0.5, 3)
            assert sums["other"]["calls"] == 1
            total = store.usage.so_far("b")
            assert (total["calls"], total["input_tokens"]) == (3, 16)
            assert (total["cost_usd"], total["compactions"]) == (0.5, 1)
            assert store.usage.so_far("nobody")["calls"] == 0
            since = store.usage.since(time.now)
            assert (since["calls"], since["input_tokens"]) == (2, 6)
        row = session(store, "b")
        assert (row["api_call_count"], row["input_tokens"], row["model"]) == (2, 6, "m")
        with refused(SessionNotFoundError):
            store.usage.record("nobody", Spent("m"))


class BudgetRules:
    """Limits: set aside before a call, and still holding after a crash."""

    def test_a_step_is_set_aside_and_settled_with_what_it_cost(self, store: Store) -> None:
        turn_id = running(store)
        limits = Limits(steps=3, tokens=1000, cost_usd=1.0)
        first = store.budgets.reserve(turn_id, limits, Estimate(400, 0.4, 1.0))
        assert store.budgets.of_turn(turn_id) == {
            "steps": 1, "tokens": 400, "cost_usd": 0.4, "seconds": 1.0
        }  # fmt: skip
        spent = Spent("m", "p", input_tokens=50, output_tokens=10, cost_usd=0.1)
        store.turns.step(
            turn_id, {"role": "assistant", "content": "a"}, receipt=Receipt(first, spent)
        )
        assert store.budgets.of_turn(turn_id)["tokens"] == 60
        assert session(store, "s")["cost_usd"] == 0.1, "it is booked with the step"

    def test_a_reservation_that_nobody_settled_counts_in_full(self, store: Store) -> None:
        turn_id = running(store)
        limits = Limits(cost_usd=1.0)
        store.budgets.reserve(turn_id, limits, Estimate(1, 0.7, 0.0))
        with refused(BudgetSpent):
            store.budgets.reserve(turn_id, limits, Estimate(1, 0.4, 0.0))
        store.budgets.reserve(turn_id, limits, Estimate(1, 0.3, 0.0))

    def test_each_limit_holds(self, store: Store) -> None:
        turn_id = running(store)
        none_left = [
            (Limits(steps=1), Estimate(1, 0.0, 0.0)),
            (Limits(tokens=10), Estimate(10, 0.0, 0.0)),
            (Limits(cost_usd=0.5), Estimate(1, 0.5, 0.0)),
            (Limits(seconds=5.0), Estimate(1, 0.0, 5.1)),
            (Limits(cost_per_day_usd=0.5), Estimate(1, 0.5, 0.0)),
        ]
        store.budgets.reserve(turn_id, Limits(), Estimate(1, 0.1, 0.0))
        for limits, estimate in none_left:
            with refused(BudgetSpent):
                store.budgets.reserve(turn_id, limits, estimate)
        store.budgets.reserve(turn_id, Limits(steps=1), Estimate(1, 0.0, 0.0), task="summary")

    def test_a_day_is_shared_by_all_turns_and_ends_at_midnight(self, store: Store) -> None:
        with still_clock() as moved:
            limits = Limits(cost_per_day_usd=1.0)
            store.budgets.reserve(running(store, "a"), limits, Estimate(1, 0.8, 0.0))
            other = running(store, "b")
            with refused(BudgetSpent):
                store.budgets.reserve(other, limits, Estimate(1, 0.3, 0.0))
            store.delete_session("a")
            assert store.budgets.today_usd() == 0.8, "deleting a session is no refund"
            moved.now += DAY_S
            store.budgets.reserve(other, limits, Estimate(1, 0.9, 0.0))

    def test_a_turn_pays_for_those_it_sent(self, store: Store) -> None:
        parent, child = running(store, "a"), running(store, "b")
        limits = Limits(steps=1, cost_usd=1.0)
        store.budgets.reserve(parent, limits, Estimate(10, 0.4, 9.0))
        store.budgets.reserve(child, limits, Estimate(10, 0.5, 1.0), account=parent)
        assert store.budgets.of_turn(child, parent) == {
            "steps": 1, "tokens": 20, "cost_usd": 0.9, "seconds": 1.0
        }  # fmt: skip
        with refused(BudgetSpent):
            store.budgets.reserve(running(store, "c"), limits, Estimate(1, 0.2, 0), account=parent)

    def test_somebodys_day_is_limited_and_others_do_not_pay_for_it(self, store: Store) -> None:
        with still_clock() as moved:
            ann = Limits(person="telegram:1", person_cost_per_day_usd=1.0)
            bob = ann._replace(person="telegram:2")
            turn_id = running(store)
            store.budgets.reserve(turn_id, ann, Estimate(1, 0.8, 0.0))
            with refused(BudgetSpent):
                store.budgets.reserve(running(store, "b"), ann, Estimate(1, 0.3, 0.0))
            store.budgets.reserve(turn_id, bob, Estimate(1, 0.9, 0.0))
            store.budgets.reserve(turn_id, Limits(), Estimate(1, 5.0, 0.0))
            store.delete_session("s")
            assert store.budgets.today_usd("telegram:1") == 0.8, "deleting a session is no refund"
            assert store.budgets.today_usd("telegram:3") == 0.0
            assert round(store.budgets.today_usd(), 6) == 6.7
            moved.now += DAY_S
            store.budgets.reserve("b", ann, Estimate(1, 0.9, 0.0))

    def test_what_was_not_set_aside_is_noted_when_it_is_spent(self, store: Store) -> None:
        turn_id = running(store)
        spent = Spent("m", "p", input_tokens=50, output_tokens=10, cost_usd=0.25)
        aside = Reservation(None, 2.0, person="telegram:1")
        store.budgets.settle(turn_id, "s", Receipt(aside, spent))
        store.budgets.settle(turn_id, "s", Receipt(Reservation(None), spent, "title"))
        assert store.budgets.of_turn(turn_id) == {
            "steps": 1, "tokens": 120, "cost_usd": 0.5, "seconds": 2.0
        }  # fmt: skip
        assert store.budgets.today_usd("telegram:1") == 0.25
        assert session(store, "s")["cost_usd"] == 0.5, "it is booked all the same"

    def test_a_reservation_is_settled_once(self, store: Store) -> None:
        turn_id = running(store)
        receipt = Receipt(store.budgets.reserve(turn_id, Limits(), Estimate(1, 0, 0)), Spent("m"))
        store.budgets.settle(turn_id, "s", receipt)
        with refused(IllegalTransitionError):
            store.budgets.settle(turn_id, "s", receipt)


class QuestionRules:
    """What a person is asked while a turn waits."""

    def _question(self, turn_id: str) -> Question:
        return Question(
            turn_id, "call", "approval", "terminal", "Run it?", "rm -r x", ["yes", "no"]
        )

    def test_a_call_that_asks_again_finds_its_question_and_the_answer(self, store: Store) -> None:
        question = self._question(running(store))
        first = store.questions.ask(question)
        assert first["state"] == "pending"
        assert first["choices"] == ["yes", "no"]
        assert store.questions.ask(question)["id"] == first["id"]
        assert [row["session_id"] for row in store.questions.pending("s")] == ["s"]
        assert store.questions.pending("somebody else") == []
        store.questions.answer(first["id"], "yes", by="cli")
        again = store.questions.ask(question)
        assert (again["state"], again["answer"], again["answered_by"]) == ("answered", "yes", "cli")
        assert store.questions.pending() == []

    def test_the_first_answer_counts(self, store: Store) -> None:
        row = store.questions.ask(self._question(running(store)))
        store.questions.answer(row["id"], "no")
        with refused(IllegalTransitionError):
            store.questions.answer(row["id"], "yes")
        store.questions.withdraw(row["id"])
        assert store.questions.get(row["id"])["answer"] == "no"

    def test_a_question_can_be_withdrawn(self, store: Store) -> None:
        row = store.questions.ask(self._question(running(store)))
        store.questions.withdraw(row["id"])
        with refused(IllegalTransitionError):
            store.questions.answer(row["id"], "yes")
        with refused(StoreError):
            store.questions.answer("nothing", "yes")

    def test_a_turn_that_is_over_asks_nothing_any_more(self, store: Store) -> None:
        turn_id = running(store)
        row = store.questions.ask(self._question(turn_id))
        store.turns.finish(turn_id, "interrupted")
        assert store.questions.get(row["id"])["state"] == "withdrawn"
        assert store.questions.pending() == []

    def test_buttons_are_told_of_until_they_are_off(self, store: Store) -> None:
        row = store.questions.ask(self._question(running(store)))
        extra = f'{{"question": "{row["id"]}", "buttons": [["Yes", "yes"]]}}'
        key = f"question:{row['id']}:0"
        store.outbox.put([Piece("p", "c", "Run it?", key=key, extra=extra)])
        assert store.questions.still_shown() == []
        store.questions.answer(row["id"], "yes")
        (shown,) = store.questions.still_shown()
        told = (shown["key"], shown["question_state"], shown["answer"], shown["is_turn_over"])
        assert told == (key, "answered", "yes", 0)
        assert store.questions.still_shown(since=clock.now() + 1) == []
        store.outbox.without_buttons(shown["id"])
        assert store.questions.still_shown() == []

    def test_a_lasting_yes_holds_where_it_was_given(self, store: Store) -> None:
        store.questions.grant(["rm"], "here")
        store.questions.grant(["curl"])
        assert store.questions.granted("here") == {"rm", "curl"}
        assert store.questions.granted("there") == {"curl"}
        assert store.questions.granted("here", everywhere=False) == {"rm"}
        assert store.questions.revoke("curl")
        assert not store.questions.revoke("curl")
        assert store.questions.granted("there") == set()

    def test_a_stopped_turn_leaves_no_call_without_a_result(self, store: Store) -> None:
        turn_id = running(store)
        calls = [Call("a", "t", "{}", False), Call("b", "t", "{}", False)]
        store.turns.step(turn_id, {"role": "assistant", "content": None}, calls)
        first, second = (row["id"] for row in store.effects.of_turn(turn_id))
        store.effects.start(first)
        result = {"role": "tool", "content": "stopped", "tool_call_id": "a"}
        settled = [
            Settled(first, "unknown", result),
            Settled(second, "cancelled", result | {"tool_call_id": "b"}),
        ]
        store.turns.finish(turn_id, "interrupted", settled=settled)
        states = [row["state"] for row in store.effects.of_turn(turn_id)]
        assert states == ["unknown", "cancelled"]
        assert contents(store, "s")[-2:] == ["stopped", "stopped"]

    def test_a_lease_can_be_taken_from_a_holder_that_is_gone(self, store: Store) -> None:
        store.create_session("s", "cli")
        assert store.leases.acquire("s", "dead") is not None
        assert store.leases.take_over("s", "somebody else", "me") is None
        taken = store.leases.take_over("s", "dead", "me")
        assert taken is not None
        assert store.leases.holder_of("s") == "me"

    def test_secrets_do_not_reach_the_store(self, store: Store) -> None:
        secrets.register({"API_KEY": 'hunter"22'})
        try:
            turn_id = running(store)
            calls = [Call("a", "t", '{"k": "hunter\\"22"}', False)]
            store.turns.step(turn_id, {"role": "assistant", "content": 'x hunter"22 y'}, calls)
            assert contents(store, "s")[-1] == "x [secret API_KEY] y"
            assert "hunter" not in store.effects.of_turn(turn_id)[0]["arguments"]
            row = store.questions.ask(self._question(turn_id)._replace(detail='echo hunter"22'))
            assert row["detail"] == "echo [secret API_KEY]"
        finally:
            secrets.forget()


class ScopeRules:
    """Whose conversations may be seen."""

    def _chats(self, store: Store) -> None:
        """The terminal's, two people's, one in a group of each, and one that the group shares."""
        rows: list[tuple[str, str, dict[str, str]]] = [
            ("local", "cli", {}),
            ("ann", "telegram", {"user_id": "1", "chat_id": "1"}),
            ("bob", "telegram", {"user_id": "2", "chat_id": "2"}),
            ("bob elsewhere", "matrix", {"user_id": "2", "chat_id": "2"}),
            ("ann in group", "telegram", {"user_id": "1", "chat_id": "-9"}),
            ("bob in group", "telegram", {"user_id": "2", "chat_id": "-9"}),
            ("group", "telegram", {"chat_id": "-9"}),
            ("thread", "telegram", {"chat_id": "-9", "thread_id": "t"}),
            ("helper", "delegate", {}),
        ]
        for id_, source, fields in rows:
            store.create_session(id_, source, **fields)
            store.append_message(id_, "user", f"a needle of {id_}")

    def _seen(self, store: Store, scope: Scope) -> set[str]:
        """What every way to look shows, which must be the same on all of them."""
        seen = set(listed(store, scope=scope))
        assert store.session_count(scope=scope) == len(seen)
        assert set(found(store, "needle", scope=scope)) == seen
        assert {row["id"] for row in store.list_sessions_rich(limit=None) if
                store.is_visible(row["id"], scope)} == seen  # fmt: skip
        return seen

    def test_one_person_sees_nothing_of_another(self, store: Store) -> None:
        self._chats(store)
        assert self._seen(store, Scope("telegram", "1")) == {"ann", "ann in group"}
        assert self._seen(store, Scope("telegram", "2")) == {"bob", "bob in group"}
        assert self._seen(store, Scope("matrix", "2")) == {"bob elsewhere"}
        assert self._seen(store, Scope("matrix", "1")) == set()

    def test_who_may_sees_the_terminal_and_no_sub_agents(self, store: Store) -> None:
        self._chats(store)
        owner = Scope("telegram", "1", with_local=True)
        assert self._seen(store, owner) == {"ann", "ann in group", "local"}

    def test_in_a_group_the_place_is_seen_and_nothing_private(self, store: Store) -> None:
        self._chats(store)
        assert self._seen(store, Scope("telegram", "1", "-9")) == {"ann in group"}
        assert self._seen(store, Scope("telegram", None, "-9")) == {"group"}
        assert self._seen(store, Scope("telegram", None, "-9", "t")) == {"thread"}

    def test_a_chat_that_became_a_group_does_not_see_what_was_said_in_it_before(
        self, store: Store
    ) -> None:
        whose = {"user_id": "1", "chat_id": "-9"}
        for id_, more in (("alone", {"chat_type": "dm"}), ("with others", {"chat_type": "group"})):
            store.create_session(id_, "telegram", **whose, **more)
            store.append_message(id_, "user", f"a needle of {id_}")
        assert self._seen(store, Scope("telegram", "1", "-9", in_group=True)) == {"with others"}
        assert self._seen(store, Scope("telegram", "1")) == {"alone", "with others"}

    def test_a_copy_belongs_where_it_is_said_to(self, store: Store) -> None:
        self._chats(store)
        place = {"user_id": "1", "chat_id": "1", "chat_type": "dm", "session_key": "k"}
        copy = store.get_session(store.branch_session("thread", place=place)) or {}
        assert {name: copy[name] for name in (*place, "thread_id")} == {**place, "thread_id": None}
        assert self._seen(store, Scope("telegram", None, "-9", "t")) == {"thread"}

    def test_a_guessed_id_or_title_of_another_finds_nothing(self, store: Store) -> None:
        ann, bob = Scope("telegram", "1"), Scope("telegram", "2")
        store.create_session("2026_a", "telegram", user_id="1")
        store.create_session("2026_b", "telegram", user_id="2")
        store.set_session_title("2026_a", "secret plan")
        for way in ("2026_a", "2026_"):
            assert store.resolve_session_id(way, ann) == "2026_a"
        assert store.resolve_session_id("2026_a", bob) is None
        assert store.resolve_session_id("2026_", bob) == "2026_b", "as if it were the only one"
        assert store.resolve_session_by_title("secret plan", ann) == "2026_a"
        assert store.resolve_session_by_title("secret plan", bob) is None
        for way, found in (("2026_a", None), ("secret plan", None), ("2026_", "2026_b")):
            assert store.resolve_session(way, bob) == found
        assert not store.is_visible("2026_a", bob)

    def test_whether_a_title_is_taken_tells_nothing_of_others(self, store: Store) -> None:
        for id_, fields in (("a", {"user_id": "1"}), ("b", {"user_id": "2"}), ("c", {})):
            store.create_session(id_, "telegram", **fields)
            store.append_message(id_, "user", "hello")
            assert store.set_session_title(id_, "plan")
        store.create_session("d", "telegram", user_id="2")
        with refused(TitleError):
            store.set_session_title("d", "plan")
        assert store.get_session_title(store.branch_session("b", child_id="e")) == "plan #2"
        assert store.get_session_title(store.branch_session("a", child_id="f")) == "plan #2"
        assert store.resolve_session_by_title("plan", Scope("telegram", "2")) == "e"
        holder = store.get_session_by_title("plan")
        assert holder is not None
        assert holder["id"] == "c", "the terminal's comes first"

    def test_a_conversation_keeps_its_owner_when_it_moves(self, store: Store) -> None:
        self._chats(store)
        store.rotate_session("bob", [summary("a needle in short")], child_id="bob 2")
        assert "bob 2" in listed(store, scope=Scope("telegram", "2"))
        assert self._seen(store, Scope("telegram", "1")) == {"ann", "ann in group"}


class PeopleRules:
    """Who was let in, and the codes of strangers."""

    def _ask(self, store: Store, user_id: str, code: str, platform: str = "telegram") -> bool:
        return store.people.ask(Stranger(platform, user_id, f"chat {user_id}", "Ann"), code)

    def test_who_gives_the_code_back_lets_the_stranger_in(self, store: Store) -> None:
        with still_clock():
            assert self._ask(store, "1", "CODE")
            assert [row["user_id"] for row in store.people.pending()] == ["1"]
            redeemed = store.people.redeem("CODE", "terminal")
            ann = Person("telegram", "1", "owner", "Ann", "chat 1", NOON, "terminal")
            assert redeemed == (ann, 0.0)
            assert store.people.get("telegram", "1") == ann
            assert store.people.pending() == []
            assert store.people.redeem("CODE", "terminal").person is None, "it is good for once"

    def test_the_first_one_is_the_owner_and_no_other_unless_it_is_said(self, store: Store) -> None:
        roles: list[Any] = [None, None, "guest", "owner"]
        for number, role in enumerate(roles):
            platform = ("telegram", "matrix")[number % 2]
            self._ask(store, str(number), f"CODE {number}", platform)
            store.people.redeem(f"CODE {number}", "terminal", role=role)
        assert store.people.has_owner()
        assert [one.role for one in store.people.everybody()] == [
            "owner", "member", "guest", "owner"
        ]  # fmt: skip

    def test_a_role_changes_for_those_who_are_in(self, store: Store) -> None:
        ann = Person("telegram", "1", "owner", "Ann", "chat 1", NOON, "terminal")
        store.people.save(ann)
        changed = store.people.change_role("telegram", "1", "guest")
        assert changed == store.people.get("telegram", "1") == ann._replace(role="guest")
        assert not store.people.has_owner()
        assert store.people.change_role("matrix", "1", "owner") is None
        assert store.people.everybody() == [changed]

    def test_nobody_is_shown_a_second_code_soon_and_few_at_the_same_time(
        self, store: Store
    ) -> None:
        with still_clock() as time:
            assert [self._ask(store, str(n), f"CODE {n}") for n in range(4)] == [True] * 3 + [False]
            assert self._ask(store, "3", "OTHER", "matrix"), "each platform counts for itself"
            time.now += 599
            assert not self._ask(store, "0", "NEW")
            time.now += 1
            assert self._ask(store, "0", "NEW")
            assert store.people.redeem("CODE 0", "me").person is None, "the newest counts"
            time.now += 3000
            assert [row["user_id"] for row in store.people.pending("telegram")] == ["0"]
            assert store.people.redeem("CODE 1", "me").person is None, "an hour is over"
            assert store.people.redeem("NEW", "me").person is not None

    def test_a_code_is_good_on_its_platform(self, store: Store) -> None:
        self._ask(store, "1", "CODE")
        assert store.people.redeem("CODE", "me", platform="matrix").person is None
        assert store.people.redeem("CODE", "me", platform="telegram").person is not None

    def test_wrong_codes_lock_a_platform_for_an_hour(self, store: Store) -> None:
        with still_clock() as time:
            self._ask(store, "1", "CODE")
            for _ in range(4):
                assert store.people.redeem("WRONG", "me") == (None, 0.0)
            assert store.people.redeem("WRONG", "me") == (None, NOON + 3600)
            assert store.people.redeem("CODE", "me") == (None, NOON + 3600), "also the right one"
            assert not self._ask(store, "2", "CODE 2"), "there is no use in a code now"
            assert self._ask(store, "2", "CODE 2", "matrix")
            assert store.people.redeem("CODE 2", "me").person is not None, "others are not locked"
            time.now += 3600
            self._ask(store, "1", "AGAIN")
            for _ in range(4):
                assert store.people.redeem("WRONG", "me") == (None, 0.0)
            assert store.people.redeem("AGAIN", "me").person is not None
            self._ask(store, "3", "THIRD")
            assert store.people.redeem("WRONG", "me") == (None, 0.0), (
                "counted anew after a right one"
            )

    def test_the_code_itself_is_not_kept(self, store: Store) -> None:
        self._ask(store, "1", "CODE")
        rows = store.read(lambda c: c.execute("SELECT * FROM pairings").fetchall())
        assert len(rows) == 1
        assert not any("CODE" in str(value) for row in rows for value in row)

    def test_who_was_let_in_can_be_changed_and_put_out(self, store: Store) -> None:
        ann = Person("telegram", "1", "guest", None, None, NOON, "me")
        store.people.save(ann)
        store.people.save(ann._replace(role="member"))
        assert [one.role for one in store.people.everybody()] == ["member"]
        assert store.people.get("matrix", "1") is None
        assert store.people.remove("telegram", "1")
        assert not store.people.remove("telegram", "1")
        assert store.people.get("telegram", "1") is None

    def test_a_code_that_was_not_shown_can_be_forgotten(self, store: Store) -> None:
        self._ask(store, "1", "CODE")
        assert store.people.drop("telegram", "1")
        assert self._ask(store, "1", "OTHER")
        assert store.people.redeem("CODE", "me").person is None


class StoreConformance(
    SessionRules,
    MessageRules,
    TitleRules,
    LineageRules,
    SearchRules,
    TransferRules,
    UpkeepRules,
    TurnRules,
    EffectRules,
    InboxRules,
    PartialRules,
    OutboxRules,
    RouteRules,
    LeaseRules,
    UsageRules,
    BudgetRules,
    QuestionRules,
    ScopeRules,
    PeopleRules,
):
    """All of it."""
