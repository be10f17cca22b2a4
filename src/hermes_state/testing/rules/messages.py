"""Rules for messages."""

from typing import Any

from hermes_core.errors import ConversationBusyError, IllegalTransitionError, SessionNotFoundError
from hermes_state.db import SessionDB
from hermes_state.ledger import lineage, messages
from hermes_state.ledger import turns as turn_ledger
from hermes_state.testing.rules.setup import chat, contents, execute, refused, session, summary


class MessageRules:
    """Test that messages come out as they went in, in order."""

    def test_a_message_comes_back_as_it_went_in(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        calls = [{"id": "1", "function": {"name": "look", "arguments": '{"at": "ü"}'}}]
        fields: dict[str, Any] = {
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
        id_ = store.append_message("s", "assistant", "text", platform_message_id="p1", **fields)
        (message,) = store.get_messages_as_conversation("s")
        assert message == {
            "role": "assistant", "content": "text", "id": id_, "message_id": "p1", **fields
        }  # fmt: skip
        (row,) = store.read(messages.of_session, "s")
        assert row["platform_message_id"] == "p1"
        assert row["tool_calls"] == calls
        assert store.read(messages.has_platform_id, "s", "p1") is True
        assert store.read(messages.has_platform_id, "s", "p2") is False

    def test_parts_come_back_as_parts(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        parts = [{"type": "text", "text": "see"}, {"type": "image", "url": "data:…"}]
        store.append_message("s", "user", parts)
        store.append_message("s", "user", {"type": "text", "text": "one"})
        store.append_message("s", "user", [])
        assert contents(store, "s") == [parts, {"type": "text", "text": "one"}, []]
        assert store.read(messages.of_session, "s")[0]["content"] == parts

    def test_empty_and_missing_content_are_told_apart(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        store.append_message("s", "assistant", "")
        store.append_message("s", "assistant", None, tool_calls=[{"id": "1"}])
        assert contents(store, "s") == ["", None]

    def test_half_characters_are_replaced_wherever_they_are(self, store: SessionDB) -> None:
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

    def test_any_text_is_kept(self, store: SessionDB) -> None:
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

    def test_order_is_the_order_of_writing_whatever_the_clock_says(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        for at in (3.0, 1.0, 2.0):
            store.append_message("s", "user", str(at), timestamp=at)
        assert contents(store, "s") == ["3.0", "1.0", "2.0"]
        assert [
            row["content"] for row in store.read(messages.of_session, "s", limit=1, offset=1)
        ] == ["1.0"]

    def test_a_batch_is_stored_whole_or_not_at_all(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        ids = store.append_messages(
            "s", [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
        )
        assert ids == sorted(ids)
        with refused(Exception):
            store.append_messages("s", [{"role": "user", "content": "c"}, {"role": None}])
        assert contents(store, "s") == ["a", "b"]
        assert session(store, "s")["message_count"] == 2

    def test_a_message_for_nobody_is_refused(self, store: SessionDB) -> None:
        with refused(SessionNotFoundError):
            store.append_message("nobody", "user", "hello")
        assert store.read(messages.count) == 0

    def test_messages_are_counted(self, store: SessionDB) -> None:
        chat(store, "a", "1", "2", "3")
        chat(store, "b", "4")
        store.append_message("b", "assistant", None, tool_calls=[{"id": "1"}, {"id": "2"}])
        assert store.read(messages.count) == 5
        assert store.read(messages.count, "a") == 3
        row = session(store, "b")
        assert (row["message_count"], row["tool_call_count"]) == (2, 2)

    def test_the_preview_is_the_first_thing_the_user_said(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        store.append_message("s", "system", "be kind")
        store.append_message("s", "user", "first\nline")
        store.append_message("s", "user", "second")
        assert session(store, "s")["preview"] == "first line"

    def test_a_message_has_neighbours(self, store: SessionDB) -> None:
        ids = chat(store, "s", *"abcde")
        around = store.read(messages.around, "s", ids[2], window=1)
        assert [message["content"] for message in around["window"]] == ["b", "c", "d"]
        assert (around["messages_before"], around["messages_after"]) == (2, 2)
        edge = store.read(messages.around, "s", ids[0], window=1)
        assert [message["content"] for message in edge["window"]] == ["a", "b"]
        with refused(SessionNotFoundError):
            store.read(messages.around, "s", ids[-1] + 1)

    def test_a_conversation_is_read_backwards_page_by_page(self, store: SessionDB) -> None:
        ids = chat(store, "s", *"abcde")
        child = store.write(
            lineage.rotate, "s", [{"role": "user", "content": "a summary"}, ids[-1]]
        )
        store.append_message(child, "user", "f")
        page = store.read(messages.page, child, limit=3)
        assert [message["content"] for message in page] == ["d", "e", "f"], "originals, not copies"
        page = store.read(messages.page, child, before_id=page[0]["id"], limit=2)
        assert [message["content"] for message in page] == ["b", "c"]
        page = store.read(messages.page, child, before_id=page[0]["id"], limit=2)
        assert [message["content"] for message in page] == ["a"]
        assert store.read(messages.page, child, before_id=page[0]["id"]) == []
        assert store.read(messages.page, "nobody") == []

    def test_the_last_things_the_user_said_are_listed(self, store: SessionDB) -> None:
        chat(store, "s", "one", "two", "three\nlines", "four")
        recent = store.read(messages.recent_user_messages, "s", limit=2)
        assert [message["preview"] for message in recent] == ["three lines", "one"]

    def test_a_rewind_takes_back_and_a_restore_brings_back(self, store: SessionDB) -> None:
        ids = chat(store, "s", "a", "b", "c", "d")
        result = store.write(messages.rewind, "s", ids[2])
        assert (result["rewound_count"], result["new_head_id"]) == (2, ids[1])
        assert result["target_message"]["content"] == "c"
        assert contents(store, "s") == ["a", "b"]
        assert contents(store, "s", include_inactive=True) == ["a", "b", "c", "d"]
        row = session(store, "s")
        assert (row["message_count"], row["rewind_count"]) == (2, 1)
        assert len(store.read(messages.recent_user_messages, "s", include_inactive=True)) == 2
        assert store.write(messages.restore, "s", ids[2]) == 2
        assert contents(store, "s") == ["a", "b", "c", "d"]
        assert store.check() == []

    def test_a_rewind_takes_whole_exchanges_and_leaves_what_is_still_to_be_answered(
        self, store: SessionDB
    ) -> None:
        store.create_session("s", "p")
        turns = [
            store.write(turn_ledger.accept, "s", {"role": "user", "content": text}).turn_id
            for text in "abc"
        ]
        for turn_id, text in zip(turns[:2], "AB", strict=True):
            store.write(turn_ledger.start, turn_id)
            message = {"role": "assistant", "content": text}
            store.write(turn_ledger.finish, turn_id, "answered", message=message)
        assert contents(store, "s") == ["a", "A", "b", "B", "c"]
        (second,) = [
            row["id"] for row in store.read(messages.of_session, "s") if row["content"] == "b"
        ]
        assert store.write(messages.rewind, "s", second)["rewound_count"] == 2
        assert contents(store, "s") == ["a", "A", "c"]
        assert store.write(messages.restore, "s", second) == 2
        assert contents(store, "s") == ["a", "A", "b", "B", "c"]
        with refused(ConversationBusyError):
            store.write(messages.rewind, "s", store.read(messages.of_session, "s")[2]["id"])

    def test_what_is_taken_back_after_a_compaction_is_taken_back_from_the_whole_conversation(
        self, store: SessionDB
    ) -> None:
        ids = chat(store, "s", "a", "b", "c", "d")
        child = store.write(lineage.rotate, "s", [summary(), *ids[2:]])
        (copied,) = [
            row["id"] for row in store.read(messages.of_session, child) if row["content"] == "c"
        ]
        store.write(messages.rewind, child, copied)
        whole = store.get_messages_as_conversation(child, include_ancestors=True)
        assert [row["content"] for row in whole] == ["a", "b"]
        assert [row["content"] for row in store.read(messages.page, child)] == ["a", "b"]
        store.write(messages.restore, child, copied)
        whole = store.get_messages_as_conversation(child, include_ancestors=True)
        assert [row["content"] for row in whole] == ["a", "b", "c", "d"]
        assert store.check() == []

    def test_only_a_user_message_of_the_session_can_be_rewound_to(self, store: SessionDB) -> None:
        ids = chat(store, "s", "a", "b")
        chat(store, "other", "x")
        for session_id, message_id in (("s", ids[1]), ("other", ids[0]), ("s", 10_000)):
            with refused(ValueError):
                store.write(messages.rewind, session_id, message_id)
        assert store.read(messages.count) == 3

    def test_a_stored_message_does_not_change(self, store: SessionDB) -> None:
        chat(store, "s", "said")
        for column in ("role", "content", "reasoning", "timestamp", "tool_calls"):
            with refused(IllegalTransitionError):
                store.write(execute(f"UPDATE messages SET {column} = '12'"))
        assert contents(store, "s") == ["said"]
