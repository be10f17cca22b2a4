"""Rules for transfer."""

from hermes_core.errors import SessionNotFoundError, UsageError
from hermes_state.protocol import Store
from hermes_state.testing.rules.given import accepted, chat, refused, session, still_clock, summary
from hermes_state.values import Call, Spent


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
