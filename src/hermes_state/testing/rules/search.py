"""Rules for search."""

from hermes_state.db import SessionDB
from hermes_state.ledger import lineage, messages, sessions
from hermes_state.testing.rules.setup import chat, found, summary
from hermes_state.values import Sort


class SearchRules:
    """Test that any text is a valid search."""

    def test_words_are_found_in_any_case_and_form_of_accent(self, store: SessionDB) -> None:
        chat(store, "a", "The quick brown Fox", "a café in Paris")
        chat(store, "b", "a slow snail")
        assert found(store, "FOX quick") == ["a"]
        assert found(store, "cafe") == ["a"]
        assert found(store, "fox snail") == []
        assert found(store, "") == found(store, "   ") == []

    def test_unspaced_scripts_are_found_by_any_part(self, store: SessionDB) -> None:
        chat(store, "a", "我们明天去北京旅游")
        chat(store, "b", "東京タワーに行きます")
        chat(store, "c", "안녕하세요 세계")
        for query, where in (
            ("京", ["a", "b"]), ("游", ["a"]), ("北京", ["a"]), ("明天去", ["a"]),
            ("北京旅游", ["a"]), ("東京", ["b"]), ("タワー", ["b"]), ("안녕", ["c"]), ("上海", []),
        ):  # fmt: skip
            assert found(store, query) == where, query

    def test_fragments_are_found_when_no_word_is(self, store: SessionDB) -> None:
        chat(store, "a", "call parse_config(path) first")
        assert found(store, "rse_conf") == ["a"]
        assert found(store, "config(pa") == ["a"]

    def test_phrases_prefixes_negations_and_alternatives_work(self, store: SessionDB) -> None:
        chat(store, "a", "red apple pie")
        chat(store, "b", "apple red pie")
        chat(store, "c", "green applause")
        assert found(store, '"red apple"') == ["a"]
        assert found(store, "appl*") == ["a", "b", "c"]
        assert found(store, "pie -apple") == []
        assert found(store, 'pie -"red apple"') == ["b"]
        assert found(store, "green OR pie") == ["a", "b", "c"]

    def test_bad_syntax_is_searched_as_plain_words(self, store: SessionDB) -> None:
        chat(store, "a", 'it\'s a (test) of "things"')
        for query in ('"', '("', "AND OR", "test AND", "NEAR(", "*", "-", "a:b", "'", "\x00", "^test",
                      "{x}", "\ud800", "x" * 5000, "OR OR", "--", '""', "test)", "-test"):  # fmt: skip
            store.search_messages(query)
        assert found(store, "test)") == ["a"]
        assert found(store, '"things') == ["a"]

    def test_results_can_be_filtered(self, store: SessionDB) -> None:
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

    def test_what_was_imported_is_found_by_when_it_was_said(self, store: SessionDB) -> None:
        store.create_session("old", "cli")
        store.append_message("old", "user", "needle", timestamp=100.0)
        exported = list(store.export_lines(["old"]))
        store.write(sessions.delete, ["old"])
        store.create_session("new", "cli")
        store.append_message("new", "user", "needle", timestamp=200.0)
        store.import_lines(exported)
        orders: dict[Sort, list[str]] = {"newest": ["new", "old"], "oldest": ["old", "new"]}
        for sort, order in orders.items():
            assert [
                hit["session_id"] for hit in store.search_messages("needle", sort=sort)
            ] == order
            assert store.search_messages("eedl", sort=sort, limit=1)[0]["session_id"] == order[0]

    def test_a_conversation_is_searched_through_any_of_its_sessions(self, store: SessionDB) -> None:
        chat(store, "a", "needle one")
        chat(store, "other", "needle two")
        store.write(lineage.rotate, "a", [summary()], child_id="b")
        store.append_message("b", "user", "needle three")
        for id_ in ("a", "b"):
            assert found(store, "needle", session_id=id_) == ["a", "b"]

    def test_copies_are_found_once_and_summaries_not_at_all(self, store: SessionDB) -> None:
        ids = chat(store, "a", "a needle", "fine")
        store.write(lineage.rotate, "a", [summary("needle in short"), ids[0]], child_id="b")
        store.write(lineage.branch, "b", child_id="c")
        assert len(store.search_messages("needle")) == 1

    def test_what_an_undone_rotation_carried_is_found_where_it_was_said(
        self, store: SessionDB
    ) -> None:
        ids = chat(store, "a", "a needle", "fine")
        store.write(lineage.rotate, "a", [summary(), ids[0]], child_id="b")
        store.write(lineage.undo_rotation, "b")
        assert [hit["id"] for hit in store.search_messages("needle")] == [ids[0]]

    def test_a_find_has_the_title_of_its_conversation(self, store: SessionDB) -> None:
        chat(store, "a", "a needle")
        store.set_session_title("a", "Hay")
        store.write(lineage.rotate, "a", [summary()], child_id="b")
        assert [hit["title"] for hit in store.search_messages("needle")] == ["Hay"]

    def test_what_is_deleted_or_taken_back_is_not_found(self, store: SessionDB) -> None:
        ids = chat(store, "a", "a needle")
        chat(store, "b", "a needle")
        assert found(store, "needle") == ["a", "b"]
        store.write(sessions.delete, ["b"])
        store.write(messages.rewind, "a", ids[0])
        assert found(store, "needle") == []
        assert found(store, "needle", include_inactive=True) == ["a"]

    def test_tool_calls_and_parts_are_searched(self, store: SessionDB) -> None:
        store.create_session("a", "cli")
        calls = [{"function": {"name": "read_file", "arguments": '{"path": "needle.txt"}'}}]
        store.append_message("a", "assistant", None, tool_calls=calls)
        store.append_message("a", "user", [{"type": "text", "text": "haystack"}])
        assert found(store, "needle") == ["a"]
        assert found(store, "haystack") == ["a"]
