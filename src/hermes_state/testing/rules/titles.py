"""Rules for titles."""

from hermes_core.errors import TitleError
from hermes_state.db import SessionDB
from hermes_state.ledger import lineage, sessions, titles
from hermes_state.testing.rules.setup import refused, session, still_clock


class TitleRules:
    """Test that titles are unique."""

    def test_a_title_is_cleaned(self, store: SessionDB) -> None:
        assert store.sanitize_title("  two\n words\u200b\x07 ") == "two words"
        assert store.sanitize_title(" \u200b ") is None
        assert store.sanitize_title(None) is None
        store.create_session("s", "cli")
        assert store.set_session_title("s", "  My\t plan ") is True
        assert store.read(titles.title_of, "s") == "My plan"
        assert store.set_session_title("s", "") is True
        assert store.read(titles.title_of, "s") is None

    def test_a_title_has_a_longest_length(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        assert store.set_session_title("s", "x" * 100)
        with refused(TitleError):
            store.set_session_title("s", "x" * 101)
        assert store.read(titles.title_of, "s") == "x" * 100

    def test_a_title_belongs_to_one_conversation(self, store: SessionDB) -> None:
        store.create_session("a", "cli")
        store.create_session("b", "cli")
        store.set_session_title("a", "plan")
        with refused(TitleError):
            store.set_session_title("b", "plan")
        assert store.read(titles.title_of, "b") is None
        assert store.set_session_title("a", "plan") is True
        store.write(sessions.delete, ["a"])
        assert store.set_session_title("b", "plan") is True

    def test_a_title_moves_within_its_conversation(self, store: SessionDB) -> None:
        store.create_session("a", "cli")
        store.set_session_title("a", "plan")
        store.write(lineage.rotate, "a", [], child_id="b")
        assert store.read(titles.title_of, "a") == store.read(titles.title_of, "b") == "plan"
        assert session(store, "a")["title"] is None
        assert store.set_session_title("a", "plan") is True
        holder = store.read(titles.by_title, "plan")
        assert holder is not None
        assert holder["id"] == "a"

    def test_a_title_for_nobody_is_not_set(self, store: SessionDB) -> None:
        assert store.set_session_title("nobody", "plan") is False
        assert store.read(titles.by_title, "plan") is None

    def test_an_automatic_title_never_replaces_one(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        assert store.write(titles.set_if_empty, "s", "guess") is True
        assert store.write(titles.set_if_empty, "s", "better guess") is False
        assert store.read(titles.title_of, "s") == "guess"

    def test_a_taken_title_gets_the_next_number(self, store: SessionDB) -> None:
        assert store.read(titles.next_in_lineage, "plan") == "plan"
        for id_, title in (("a", "plan"), ("b", "plan #2"), ("c", "plan #7"), ("d", "plan #x")):
            store.create_session(id_, "cli")
            store.set_session_title(id_, title)
        assert store.read(titles.next_in_lineage, "plan") == "plan #8"
        assert store.read(titles.next_in_lineage, "plan #2") == "plan #8"
        assert store.read(titles.next_in_lineage, "other") == "other"

    def test_a_numbered_title_keeps_to_the_longest_length(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        store.set_session_title("s", "x" * 100)
        title = store.read(titles.next_in_lineage, "x" * 100)
        assert len(title) <= 100
        assert title.endswith(" #2")

    def test_a_title_means_the_newest_of_its_numbered_heirs(self, store: SessionDB) -> None:
        with still_clock() as time:
            for id_, title in (("a", "plan"), ("b", "plan #2"), ("c", "plan #3")):
                time.now += 1
                store.create_session(id_, "cli")
                store.set_session_title(id_, title)
        assert store.read(titles.resolve, "plan") == "c"
        assert store.read(titles.resolve, "plan #2") == "b"
        assert store.read(titles.resolve, "none") is None

    def test_a_name_is_an_id_before_a_title_before_the_beginning_of_an_id(
        self, store: SessionDB
    ) -> None:
        for id_ in ("20250101_a", "20250102_b", "20250103_c", "20250104"):
            store.create_session(id_, "cli")
        assert store.read(titles.resolve_name, "20250101") == "20250101_a"
        store.set_session_title("20250102_b", "20250101")
        store.set_session_title("20250103_c", "20250104")
        assert store.read(titles.resolve_name, "20250101") == "20250102_b"
        assert store.read(titles.resolve_name, "20250101_") == "20250101_a"
        assert store.read(titles.resolve_name, "20250104") == "20250104"
        for name in ("2025", "none", ""):
            assert store.read(titles.resolve_name, name) is None
