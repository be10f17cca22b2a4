"""Rules for scope."""

from hermes_core.errors import TitleError
from hermes_state.db import SessionDB
from hermes_state.ledger import lineage, sessions, titles
from hermes_state.ledger import scope as scope_ledger
from hermes_state.testing.rules.setup import found, listed, refused, summary
from hermes_state.values import Scope


class ScopeRules:
    """Test that scopes hide conversations of others."""

    def _chats(self, store: SessionDB) -> None:
        """Create conversations of the terminal, of two people and of a group."""
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

    def _seen(self, store: SessionDB, scope: Scope) -> set[str]:
        """Return the visible sessions, which every query must agree on."""
        seen = set(listed(store, scope=scope))
        assert store.session_count(scope=scope) == len(seen)
        assert set(found(store, "needle", scope=scope)) == seen
        assert {row["id"] for row in store.list_sessions_rich(limit=None) if
                store.read(scope_ledger.is_visible, row["id"], scope)} == seen  # fmt: skip
        return seen

    def test_one_person_sees_nothing_of_another(self, store: SessionDB) -> None:
        self._chats(store)
        assert self._seen(store, Scope("telegram", "1")) == {"ann", "ann in group"}
        assert self._seen(store, Scope("telegram", "2")) == {"bob", "bob in group"}
        assert self._seen(store, Scope("matrix", "2")) == {"bob elsewhere"}
        assert self._seen(store, Scope("matrix", "1")) == set()

    def test_who_may_sees_the_terminal_and_no_sub_agents(self, store: SessionDB) -> None:
        self._chats(store)
        owner = Scope("telegram", "1", with_local=True)
        assert self._seen(store, owner) == {"ann", "ann in group", "local"}

    def test_in_a_group_the_place_is_seen_and_nothing_private(self, store: SessionDB) -> None:
        self._chats(store)
        assert self._seen(store, Scope("telegram", "1", "-9")) == {"ann in group"}
        assert self._seen(store, Scope("telegram", None, "-9")) == {"group"}
        assert self._seen(store, Scope("telegram", None, "-9", "t")) == {"thread"}

    def test_a_chat_that_became_a_group_does_not_see_what_was_said_in_it_before(
        self, store: SessionDB
    ) -> None:
        whose = {"user_id": "1", "chat_id": "-9"}
        for id_, more in (("alone", {"chat_type": "dm"}), ("with others", {"chat_type": "group"})):
            store.create_session(id_, "telegram", **whose, **more)
            store.append_message(id_, "user", f"a needle of {id_}")
        assert self._seen(store, Scope("telegram", "1", "-9", in_group=True)) == {"with others"}
        assert self._seen(store, Scope("telegram", "1")) == {"alone", "with others"}

    def test_a_copy_belongs_where_it_is_said_to(self, store: SessionDB) -> None:
        self._chats(store)
        place = {"user_id": "1", "chat_id": "1", "chat_type": "dm", "session_key": "k"}
        copy = store.get_session(store.write(lineage.branch, "thread", place=place)) or {}
        assert {name: copy[name] for name in (*place, "thread_id")} == {**place, "thread_id": None}
        assert self._seen(store, Scope("telegram", None, "-9", "t")) == {"thread"}

    def test_a_guessed_id_or_title_of_another_finds_nothing(self, store: SessionDB) -> None:
        ann, bob = Scope("telegram", "1"), Scope("telegram", "2")
        store.create_session("2026_a", "telegram", user_id="1")
        store.create_session("2026_b", "telegram", user_id="2")
        store.set_session_title("2026_a", "secret plan")
        for way in ("2026_a", "2026_"):
            assert store.read(sessions.by_prefix, way, ann) == "2026_a"
        assert store.read(sessions.by_prefix, "2026_a", bob) is None
        assert store.read(sessions.by_prefix, "2026_", bob) == "2026_b", (
            "as if it were the only one"
        )
        assert store.read(titles.resolve, "secret plan", ann) == "2026_a"
        assert store.read(titles.resolve, "secret plan", bob) is None
        for way, expected in (("2026_a", None), ("secret plan", None), ("2026_", "2026_b")):
            assert store.read(titles.resolve_name, way, bob) == expected
        assert not store.read(scope_ledger.is_visible, "2026_a", bob)

    def test_whether_a_title_is_taken_tells_nothing_of_others(self, store: SessionDB) -> None:
        for id_, fields in (("a", {"user_id": "1"}), ("b", {"user_id": "2"}), ("c", {})):
            store.create_session(id_, "telegram", **fields)
            store.append_message(id_, "user", "hello")
            assert store.set_session_title(id_, "plan")
        store.create_session("d", "telegram", user_id="2")
        with refused(TitleError):
            store.set_session_title("d", "plan")
        assert (
            store.read(titles.title_of, store.write(lineage.branch, "b", child_id="e")) == "plan #2"
        )
        assert (
            store.read(titles.title_of, store.write(lineage.branch, "a", child_id="f")) == "plan #2"
        )
        assert store.read(titles.resolve, "plan", Scope("telegram", "2")) == "e"
        holder = store.read(titles.by_title, "plan")
        assert holder is not None
        assert holder["id"] == "c", "the terminal's comes first"

    def test_a_conversation_keeps_its_owner_when_it_moves(self, store: SessionDB) -> None:
        self._chats(store)
        store.write(lineage.rotate, "bob", [summary("a needle in short")], child_id="bob 2")
        assert "bob 2" in listed(store, scope=Scope("telegram", "2"))
        assert self._seen(store, Scope("telegram", "1")) == {"ann", "ann in group"}
