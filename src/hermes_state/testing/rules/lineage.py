"""Rules for lineage."""

from hermes_core.errors import (
    LeaseLostError,
    NothingSaidError,
    SessionNotFoundError,
    StoreError,
    TitleError,
)
from hermes_state.db import SessionDB
from hermes_state.ledger import leases, lineage, messages, routes, sessions, titles, turns
from hermes_state.testing.rules.setup import (
    accepted,
    chat,
    contents,
    listed,
    refused,
    running,
    session,
    summary,
)
from hermes_state.values import Route


class LineageRules:
    """Test that a conversation keeps its identity through rotations, their undo and branches."""

    def test_a_rotation_moves_everything_in_one_change(self, store: SessionDB) -> None:
        ids = chat(store, "a", "one", "two", "three")
        store.set_session_title("a", "plan")
        store.write(routes.save, Route("key", '{"kept": 1}'), "a")
        lease = store.write(leases.acquire, "a", "me")
        open_turn, ended = accepted(store, "a"), accepted(store, "a")
        store.write(turns.finish, ended, "failed", reason="no model")
        child = store.write(
            lineage.rotate,
            "a",
            [summary(), ids[1], ids[2]],
            child_id="b",
            system_prompt="new",
            lease=lease,
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
        route = store.read(routes.find, "key")
        assert route is not None
        assert (route["session_id"], route["entry"]) == ("b", '{"kept": 1}')
        assert [turn["id"] for turn in store.read(turns.of_session, "b")] == [open_turn]
        assert store.read(leases.holder_of, "a") == "me"
        assert store.check() == []

    def test_a_session_is_rotated_once(self, store: SessionDB) -> None:
        chat(store, "a", "one")
        store.write(lineage.rotate, "a", [summary()], child_id="b")
        with refused(StoreError):
            store.write(lineage.rotate, "a", [summary()], child_id="c")
        assert store.get_session("c") is None
        assert store.write(lineage.rotate, "b", [summary()], child_id="c") == "c"
        assert store.check() == []

    def test_a_rotation_that_cannot_be_made_changes_nothing(self, store: SessionDB) -> None:
        chat(store, "a", "one")
        before = session(store, "a")
        with refused(StoreError):
            store.write(lineage.rotate, "a", [summary(), 10_000], child_id="b")
        with refused(SessionNotFoundError):
            store.write(lineage.rotate, "nobody", [], child_id="b")
        assert store.get_session("b") is None
        assert session(store, "a") == before

    def test_a_rotation_needs_the_newest_lease(self, store: SessionDB) -> None:
        chat(store, "a", "one")
        old = store.write(leases.acquire, "a", "me")
        assert old is not None
        store.write(leases.release, old)
        store.write(leases.acquire, "a", "you")
        with refused(LeaseLostError):
            store.write(lineage.rotate, "a", [summary()], child_id="b", lease=old)
        assert store.get_session("b") is None
        assert session(store, "a")["ended_at"] is None

    def test_a_rotation_makes_up_an_id_when_none_is_given(self, store: SessionDB) -> None:
        chat(store, "a", "one")
        child = store.write(lineage.rotate, "a", [summary()])
        assert store.read(lineage.tip, "a") == child

    def test_any_id_of_a_conversation_leads_to_its_tip(self, store: SessionDB) -> None:
        chat(store, "a", "one")
        store.write(lineage.rotate, "a", [summary()], child_id="b")
        store.write(lineage.rotate, "b", [summary()], child_id="c")
        for id_ in ("a", "b", "c"):
            assert store.read(lineage.tip, id_) == store.read(lineage.tip, id_) == "c"
            assert store.read(lineage.root, id_) == "a"
            assert store.read(lineage.members, id_) == ["a", "b", "c"]
        assert store.read(lineage.tip, "nobody") == "nobody"
        tree = store.read(lineage.tree, "b")
        assert [(row["id"], row["level"]) for row in tree] == [("a", 0), ("b", 1), ("c", 2)]

    def test_the_whole_conversation_is_its_originals(self, store: SessionDB) -> None:
        ids = chat(store, "a", "one", "two")
        store.write(lineage.rotate, "a", [summary(), ids[1]], child_id="b")
        store.append_message("b", "user", "three")
        assert contents(store, "b") == ["in short", "two", "three"]
        assert contents(store, "b", include_ancestors=True) == ["one", "two", "three"]
        assert contents(store, "a", include_ancestors=True) == ["one", "two"]

    def test_a_title_made_before_a_rotation_is_that_of_the_conversation(
        self, store: SessionDB
    ) -> None:
        chat(store, "a", "one")
        store.write(lineage.rotate, "a", [summary()], child_id="b")
        assert store.write(titles.set_if_empty, "a", "Made for a") is True
        assert [row["title"] for row in store.list_sessions_rich()] == ["Made for a"]
        store.set_session_title("b", "Chosen")
        assert store.write(titles.set_if_empty, "a", "Made again") is False
        assert (session(store, "a")["title"], session(store, "b")["title"]) == (None, "Chosen")

    def test_an_undo_goes_back_and_keeps_what_was_said_since(self, store: SessionDB) -> None:
        ids = chat(store, "a", "one", "two")
        store.set_session_title("a", "plan")
        store.write(routes.save, Route("key"), "a")
        store.write(lineage.rotate, "a", [summary(), ids[1]], child_id="b")
        store.append_message("b", "user", "three")
        ended, turn_id = accepted(store, "b"), accepted(store, "b")
        store.write(turns.finish, ended, "interrupted")
        assert store.write(lineage.undo_rotation, "b") == "a"
        assert contents(store, "a") == ["one", "two", "three", "a question", "a question"]
        assert [turn["id"] for turn in store.read(turns.of_session, "a")] == [ended, turn_id]
        row = session(store, "a")
        assert (row["is_tip"], row["ended_at"], row["title"]) == (1, None, "plan")
        route, turn = store.read(routes.find, "key"), store.read(turns.find, turn_id)
        assert route is not None
        assert turn is not None
        assert (route["session_id"], turn["session_id"]) == ("a", "a")
        assert session(store, "b")["relation"] == "undone"
        assert listed(store) == ["a"]
        assert store.read(lineage.tip, "b") == "a"
        assert store.check() == []
        assert store.write(lineage.rotate, "a", [summary()], child_id="c") == "c"
        assert store.check() == []

    def test_an_undo_keeps_what_was_chosen_since(self, store: SessionDB) -> None:
        chat(store, "a", "one")
        store.write(sessions.change_model, "a", "first", chosen_as="local/first")
        store.write(sessions.change, "a", system_prompt="be kind")
        store.write(lineage.rotate, "a", [summary()], child_id="b")
        store.write(sessions.change_model, "b", "second", chosen_as="local/second")
        store.write(sessions.change, "b", cwd="/srv")
        store.write(lineage.undo_rotation, "b")
        row = session(store, "a")
        assert (row["model"], sessions.chosen_model(row)) == ("second", "local/second")
        assert (row["cwd"], row["system_prompt"]) == ("/srv", "be kind")
        store.write(lineage.rotate, "a", [summary()], child_id="c")
        store.write(sessions.instruct, "c", "in verse")
        store.write(lineage.undo_rotation, "c")
        row = session(store, "a")
        assert (sessions.instructions_of(row), row["system_prompt"]) == ("in verse", None)

    def test_only_a_rotation_can_be_undone(self, store: SessionDB) -> None:
        chat(store, "a", "one")
        store.write(lineage.branch, "a", child_id="b")
        for id_ in ("a", "b"):
            with refused(StoreError):
                store.write(lineage.undo_rotation, id_)
        with refused(SessionNotFoundError):
            store.write(lineage.undo_rotation, "nobody")

    def test_a_branch_is_a_conversation_of_its_own(self, store: SessionDB) -> None:
        ids = chat(store, "a", "one", "two", "three")
        store.set_session_title("a", "plan")
        assert store.write(lineage.branch, "a", child_id="b", until_message_id=ids[1]) == "b"
        assert contents(store, "b") == ["one", "two"]
        assert store.read(titles.title_of, "b") == "plan #2"
        store.append_message("b", "user", "elsewhere")
        assert contents(store, "a") == ["one", "two", "three"]
        assert session(store, "b")["conversation_id"] == "b"
        assert sorted(listed(store)) == ["a", "b"]
        assert [(r["id"], r["level"]) for r in store.read(lineage.tree, "b")] == [
            ("a", 0),
            ("b", 1),
        ]
        with refused(SessionNotFoundError):
            store.write(lineage.branch, "nobody")
        assert store.check() == []

    def test_a_branch_is_made_with_its_title_or_not_at_all(self, store: SessionDB) -> None:
        chat(store, "a", "one")
        store.set_session_title("a", "plan")
        store.write(lineage.branch, "a", child_id="b", title=" other  plan ")
        assert store.read(titles.title_of, "b") == "other plan"
        with refused(TitleError):
            store.write(lineage.branch, "a", child_id="c", title="plan")
        assert sorted(listed(store)) == ["a", "b"]
        assert store.check() == []

    def test_where_nothing_is_said_there_is_nothing_to_branch(self, store: SessionDB) -> None:
        [first] = chat(store, "a", "one")
        store.write(messages.rewind, "a", first)
        running(store, "b")
        for id_ in ("a", "b"):
            with refused(NothingSaidError):
                store.write(lineage.branch, id_, child_id="c")
        assert sorted(listed(store)) == ["a", "b"]

    def test_a_branch_holds_only_what_is_over(self, store: SessionDB) -> None:
        chat(store, "a", "one", "two")
        turn_id = accepted(store, "a")
        accepted(store, "a")
        store.write(turns.start, turn_id)
        store.write(turns.step, turn_id, {"role": "assistant", "content": "I look."})
        store.write(lineage.branch, "a", child_id="b")
        assert contents(store, "b") == ["one", "two"]
        since = store.get_messages_as_conversation("a")[1]["id"]
        store.write(lineage.rotate, "a", [summary()], child_id="a2", since=since)
        assert contents(store, "a2") == ["in short", "a question", "I look.", "a question"]
        store.write(lineage.branch, "a2", child_id="c")
        assert contents(store, "c") == ["in short"]
        assert store.check() == []

    def test_a_child_of_a_compacted_session_continues_it(self, store: SessionDB) -> None:
        store.create_session("a", "cli")
        store.end_session("a", "compression")
        store.create_session("b", "cli", parent_session_id="a")
        store.create_session("c", "cli", parent_session_id="a")
        assert session(store, "b")["relation"] == "continuation"
        assert session(store, "c")["relation"] == "branch"
        assert store.read(lineage.tip, "a") == "b"
        assert store.check() == []

    def test_a_session_with_a_past_of_its_own_continues_nobody(self, store: SessionDB) -> None:
        store.create_session("a", "cli")
        store.end_session("a", "compression")
        for undone in (False, True):
            name = f"b{undone}"
            chat(store, name, "hello")
            store.write(lineage.rotate, name, [summary()], child_id=f"{name}2")
            if undone:
                store.write(lineage.undo_rotation, name)
            store.create_session(name, "cli", parent_session_id="a")
            assert session(store, name)["relation"] == "branch"
        assert store.check() == []

    def test_nobody_becomes_the_child_of_its_own_descendant(self, store: SessionDB) -> None:
        chat(store, "a", "hello")
        store.write(lineage.branch, "a", child_id="b")
        store.write(lineage.branch, "b", child_id="c")
        for id_ in ("a", "b", "c"):
            store.create_session("a", "cli", parent_session_id=id_)
        assert session(store, "a")["parent_session_id"] is None
        assert [row["id"] for row in store.read(lineage.tree, "c")] == ["a", "b", "c"]

    def test_a_session_keeps_its_first_parent(self, store: SessionDB) -> None:
        for id_ in ("a", "b"):
            store.create_session(id_, "cli")
        store.create_session("child", "cli", parent_session_id="a")
        store.create_session("child", "cli", parent_session_id="b")
        store.create_session("a", "cli", parent_session_id="a")
        assert session(store, "child")["parent_session_id"] == "a"
        assert session(store, "a")["parent_session_id"] is None
