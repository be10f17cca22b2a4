"""Rules for sessions."""

from hermes_core.errors import SessionNotFoundError
from hermes_state import transfer
from hermes_state.db import SessionDB
from hermes_state.ledger import (
    leases,
    lineage,
    listing,
    messages,
    meta,
    routes,
    sessions,
    titles,
    usage,
)
from hermes_state.testing.rules.setup import (
    accepted,
    chat,
    contents,
    listed,
    refused,
    session,
    still_clock,
    summary,
)
from hermes_state.values import Route, Spent


class SessionRules:
    """Test creating, finding, listing, ending, archiving and deleting sessions."""

    def test_create_fills_gaps_and_never_overwrites(self, store: SessionDB) -> None:
        assert store.create_session("s", "cli", model="first") == "s"
        store.create_session("s", "telegram", model="second", chat_id="42", user_id=None)
        row = session(store, "s")
        assert (row["source"], row["model"], row["chat_id"]) == ("cli", "first", "42")
        assert row["user_id"] is None

    def test_create_refuses_what_a_session_does_not_have(self, store: SessionDB) -> None:
        with refused(TypeError):
            store.create_session("s", "cli", colour="blue")
        assert store.get_session("s") is None

    def test_create_under_a_missing_parent_makes_nothing(self, store: SessionDB) -> None:
        with refused(SessionNotFoundError):
            store.create_session("s", "cli", parent_session_id="nobody")
        assert store.get_session("s") is None

    def test_a_missing_session_is_none(self, store: SessionDB) -> None:
        assert store.get_session("nobody") is None
        assert store.read(titles.title_of, "nobody") is None
        assert store.read(messages.of_session, "nobody") == []
        assert store.get_messages_as_conversation("nobody") == []
        assert store.read(transfer.export_session, "nobody") is None

    def test_a_prefix_finds_the_one_session_that_has_it(self, store: SessionDB) -> None:
        for id_ in ("20250101_a", "20250102_b", "20250102_c", "2025"):
            store.create_session(id_, "cli")
        assert store.read(sessions.by_prefix, "20250101") == "20250101_a"
        assert store.read(sessions.by_prefix, "20250102") is None
        assert store.read(sessions.by_prefix, "2025") == "2025"
        assert store.read(sessions.by_prefix, "none") is None
        assert store.read(sessions.by_prefix, "") is None
        assert store.read(sessions.by_prefix, "20250101%") is None

    def test_the_first_end_wins(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        store.end_session("s", "user")
        ended_at = session(store, "s")["ended_at"]
        store.end_session("s", "timeout")
        row = session(store, "s")
        assert (row["end_reason"], row["ended_at"]) == ("user", ended_at)

    def test_reopening_takes_an_end_back(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        store.end_session("s", "user")
        store.write(sessions.reopen, "s")
        row = session(store, "s")
        assert (row["ended_at"], row["end_reason"]) == (None, None)
        store.end_session("s", "again")
        assert session(store, "s")["end_reason"] == "again"

    def test_a_reset_replaces_only_an_accidental_end(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        store.end_session("s", "agent_close")
        assert store.write(sessions.end_for_reset, "s") is True
        assert session(store, "s")["end_reason"] == "session_reset"
        assert store.write(sessions.end_for_reset, "s", "other") is False
        store.create_session("open", "cli")
        assert store.write(sessions.end_for_reset, "open", "idle") is True
        assert session(store, "open")["end_reason"] == "idle"
        assert store.write(sessions.end_for_reset, "nobody") is False

    def test_what_may_change_during_a_life_changes(self, store: SessionDB) -> None:
        store.create_session("s", "cli", model="a")
        store.write(sessions.change_model, "s", "b")
        store.write(sessions.change, "s", system_prompt="be kind")
        store.write(sessions.change, "s", cwd="/srv")
        row = session(store, "s")
        assert (row["model"], row["system_prompt"], row["cwd"]) == ("b", "be kind", "/srv")

    def test_a_model_that_was_chosen_for_a_conversation_goes_with_it(
        self, store: SessionDB
    ) -> None:
        chat(store, "a", "one")
        store.create_session("a", "cli", model_config={"instructions": "be kind"})
        assert sessions.chosen_model(session(store, "a")) == ""
        store.write(sessions.change_model, "a", "b", chosen_as="local/b")
        store.write(lineage.rotate, "a", [summary()], child_id="a2")
        store.write(lineage.branch, "a2", child_id="c")
        for id_ in ("a", "a2", "c"):
            row = session(store, id_)
            assert (row["model"], sessions.chosen_model(row)) == ("b", "local/b")
            assert "be kind" in row["model_config"]

    def test_notes_about_the_store_are_kept(self, store: SessionDB) -> None:
        assert store.read(meta.get, "color") is None
        store.write(meta.put, "color", "blue")
        store.write(meta.put, "color", "red")
        assert store.read(meta.get, "color") == "red"

    def test_a_list_has_one_row_a_conversation_the_latest_first(self, store: SessionDB) -> None:
        with still_clock() as time:
            for id_ in ("a", "b", "c"):
                time.now += 1
                chat(store, id_, f"hello from {id_}")
            time.now += 1
            store.append_message("a", "assistant", "late")
            time.now += 1
            store.write(lineage.rotate, "b", [summary()], child_id="b2")
        assert listed(store) == ["b2", "a", "c"]
        row = store.list_sessions_rich(limit=1)[0]
        assert row["preview"] == "hello from b"
        assert (row["conversation_id"], row["message_count"]) == ("b", 1)
        assert listed(store, limit=1, offset=1) == ["a"]
        assert listed(store, limit=None, include_children=True).count("b") == 1

    def test_a_list_can_be_filtered(self, store: SessionDB) -> None:
        chat(store, "one", "about apples")
        chat(store, "two", "about pears", "yes", source="telegram")
        store.create_session("three", "tui", cwd="/srv/project/deep")
        store.create_session("four", "tui", cwd="/srv/projects")
        assert listed(store, source="telegram") == ["two"]
        assert sorted(listed(store, exclude_sources=("tui", "telegram"))) == ["one"]
        assert len(listed(store, exclude_sources=None)) == 4
        assert listed(store, cwd_prefix="/srv/project/") == ["three"]
        assert listed(store, min_message_count=2) == ["two"]
        assert listed(store, search_query="APPLES") == ["one"]
        assert store.session_count() == 4
        assert store.session_count(source="tui") == 2

    def test_a_list_is_narrowed_by_text_in_any_alphabet_and_case(self, store: SessionDB) -> None:
        chat(store, "Plan_A", "Größe und Gewicht")
        store.set_session_title("Plan_A", "Übersicht")
        chat(store, "b", "ПРИВЕТ, мир")
        for text in ("Übersicht", "ÜBER", "größe", "GRÖSSE", "Plan_A", "plan_a"):
            assert listed(store, search_query=text) == ["Plan_A"]
            assert store.session_count(search_query=text) == 1
        assert listed(store, search_query="Привет") == ["b"]

    def test_files_are_known_by_the_messages_that_name_them(self, store: SessionDB) -> None:
        chat(store, "a", "look: /x/attachments/one.png", "fine")
        store.append_message("a", "user", [{"type": "text", "text": "[/x/attachments/two-2.pdf]"}])
        chat(store, "b", "see /x/attachments/three.ogg", "fine", "an attachment that is none")
        assert store.read(messages.named_files, ["a"]) == {"one.png", "two-2.pdf"}
        assert store.read(messages.named_files) == {"one.png", "two-2.pdf", "three.ogg"}
        assert store.read(messages.named_files, []) == set()

    def test_a_file_is_named_also_by_the_end_of_a_sentence_and_by_a_tool_call(
        self, store: SessionDB
    ) -> None:
        chat(store, "a", "It is /x/attachments/one.png.", "fine")
        calls = [{"id": "c", "name": "read_file", "arguments": {"path": "/x/attachments/two.pdf"}}]
        store.append_message("a", "assistant", "", tool_calls=calls)
        assert {"one.png", "two.pdf"} <= store.read(messages.named_files)

    def test_delegates_are_not_listed(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        store.create_session(
            "d", "cli", parent_session_id="s", model_config={"_delegate_from": "s"}
        )
        assert session(store, "d")["relation"] == "delegate"
        assert listed(store) == ["s"]

    def test_an_archived_conversation_is_out_of_the_list_until_it_is_brought_back(
        self, store: SessionDB
    ) -> None:
        chat(store, "a", "hello")
        store.write(lineage.rotate, "a", [summary()], child_id="b")
        assert store.write(sessions.set_archived, "a", True) is True
        assert listed(store) == []
        assert listed(store, archived_only=True) == ["b"]
        assert listed(store, include_archived=True) == ["b"]
        assert store.write(sessions.set_archived, "b", False) is True
        assert listed(store) == ["b"]
        assert store.write(sessions.set_archived, "nobody", True) is False

    def test_deleting_takes_the_whole_conversation_and_its_delegates(
        self, store: SessionDB
    ) -> None:
        chat(store, "a", "hello")
        store.create_session(
            "helper", "cli", parent_session_id="a", model_config={"_delegate_from": "a"}
        )
        store.append_message("helper", "user", "do this")
        store.write(routes.save, Route("key"), "a")
        store.write(leases.acquire, "a", "me")
        store.write(lineage.rotate, "a", [summary()], child_id="undone")
        store.write(lineage.undo_rotation, "a")
        store.write(lineage.rotate, "a", [summary()], child_id="b")
        every = ["a", "b", "helper", "undone"]
        assert sorted(store.read(sessions.with_delegates, ["b"])) == every
        assert store.read(sessions.with_delegates, ["nobody"]) == []
        assert store.write(sessions.delete, ["a"]) == len(every)
        assert [store.get_session(id_) for id_ in every] == [None] * 4
        assert store.read(messages.count) == 0
        assert store.read(routes.find, "key") is None
        assert store.write(sessions.delete, ["a"]) == 0
        assert store.check() == []

    def test_branches_of_a_deleted_conversation_live_on(self, store: SessionDB) -> None:
        chat(store, "a", "hello", "hi")
        store.write(lineage.branch, "a", child_id="branch")
        assert store.write(sessions.delete, ["a"]) == 1
        assert contents(store, "branch") == ["hello", "hi"]
        row = session(store, "branch")
        assert (row["parent_session_id"], row["relation"]) == (None, None)
        assert listed(store) == ["branch"]
        assert store.check() == []

    def test_the_numbers_add_up(self, store: SessionDB) -> None:
        chat(store, "a", "hello", "hi")
        chat(store, "b", "hey", source="telegram")
        store.write(lineage.rotate, "a", [summary()], child_id="a2")
        store.end_session("b", "user")
        accepted(store, "a2")
        store.write(usage.record, "a2", Spent("m", input_tokens=7, cost_usd=0.5))
        stats = store.read(listing.stats)
        assert (stats["sessions"], stats["conversations"]) == (3, 2)
        assert stats["open_conversations"] == 1
        assert stats["messages"] == 5
        assert stats["by_source"] == {"cli": 1, "telegram": 1}
        assert stats["turns"] == {"accepted": 1}
        assert (stats["model_calls"], stats["input_tokens"], stats["cost_usd"]) == (1, 7, 0.5)
