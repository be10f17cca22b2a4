"""Rules for transfer."""

from hermes_core.errors import SessionNotFoundError, UsageError
from hermes_state import transfer
from hermes_state.db import SessionDB
from hermes_state.ledger import (
    effects,
    lineage,
    listing,
    messages,
    partials,
    sessions,
    titles,
    turns,
    usage,
)
from hermes_state.testing.rules.setup import (
    accepted,
    chat,
    refused,
    session,
    still_clock,
    summary,
)
from hermes_state.values import Call, Spent


class TransferRules:
    """Test that export and import lose nothing."""

    def _fill(self, store: SessionDB) -> None:
        ids = chat(store, "a", "hello", "hi")
        store.set_session_title("a", "plan")
        turn_id = accepted(store, "a", idempotency_key="k")
        store.write(turns.start, turn_id)
        calls = [Call("1", "look", "{}", True), Call("2", "send", "{}", False)]
        store.write(turns.step, turn_id, {"role": "assistant", "tool_calls": [{"id": "1"}]}, calls)
        first, second = (effect["id"] for effect in store.read(effects.of_turn, turn_id))
        store.write(effects.start, first)
        store.write(effects.done, first, {"role": "tool", "content": "seen"})
        store.write(effects.cancel, second)
        store.write(
            turns.finish,
            turn_id,
            "answered",
            message={"role": "assistant", "content": [{"text": "done"}]},
        )
        store.write(usage.record, "a", Spent("m", "p", 1, 2, 3, 4, 5, 0.5), turn_id=turn_id)
        store.write(lineage.rotate, "a", [summary(), ids[1]], child_id="b")
        accepted(store, "b")
        store.write(lineage.branch, "b", child_id="c")
        store.write(turns.finish, store.read(turns.of_session, "b")[-1]["id"], "interrupted")
        ids = chat(store, "d", "x", "y", "z")
        store.write(messages.rewind, "d", ids[2])
        store.end_session("d", "user")
        store.write(sessions.set_archived, "d", True)

    def test_an_import_of_an_export_is_the_same_store(self, store: SessionDB) -> None:
        self._fill(store)
        lines = list(store.export_lines())
        store.write(sessions.delete, ["a", "c", "d"])
        assert store.read(listing.stats)["sessions"] == 0
        report = store.import_lines(lines)
        assert sorted(report.imported) == ["a", "b", "c", "d"]
        assert (report.skipped, report.detached, report.retitled) == ([], [], {})
        assert list(store.export_lines()) == lines
        assert report.messages == len([line for line in lines if line["type"] == "message"])
        assert store.check() == []

    def test_parents_come_before_branches_also_when_the_clock_stands_still(
        self, store: SessionDB
    ) -> None:
        with still_clock():
            chat(store, "z", "hello")
            store.write(lineage.branch, "z", child_id="a")
            lines = list(store.export_lines())
        store.write(sessions.delete, ["z", "a"])
        report = store.import_lines(lines)
        assert report.detached == []
        assert session(store, "a")["parent_session_id"] == "z"

    def test_what_is_here_already_is_left_alone(self, store: SessionDB) -> None:
        self._fill(store)
        lines = list(store.export_lines())
        report = store.import_lines(lines)
        assert (report.imported, report.messages) == ([], 0)
        assert sorted(report.skipped) == ["a", "b", "c", "d"]
        assert list(store.export_lines()) == lines

    def test_some_conversations_can_be_exported(self, store: SessionDB) -> None:
        self._fill(store)
        lines = list(store.export_lines(["b"]))
        assert [line["id"] for line in lines if line["type"] == "session"] == ["a", "b"]
        with refused(SessionNotFoundError):
            list(store.export_lines(["nobody"]))

    def test_a_branch_without_its_parent_stands_alone(self, store: SessionDB) -> None:
        self._fill(store)
        lines = list(store.export_lines(["c"]))
        store.write(sessions.delete, ["a", "c"])
        report = store.import_lines(lines)
        assert (report.imported, report.detached) == (["c"], ["c"])
        assert session(store, "c")["parent_session_id"] is None
        assert store.check() == []

    def test_a_taken_title_is_numbered(self, store: SessionDB) -> None:
        chat(store, "a", "hello")
        store.set_session_title("a", "plan")
        lines = list(store.export_lines())
        store.write(sessions.delete, ["a"])
        store.create_session("other", "cli")
        store.set_session_title("other", "plan")
        assert store.import_lines(lines).retitled == {"a": "plan #2"}
        assert store.read(titles.title_of, "a") == "plan #2"

    def test_two_people_keep_the_same_title(self, store: SessionDB) -> None:
        store.create_session("mine", "cli")
        store.create_session("hers", "telegram", user_id="7", chat_id="7")
        store.set_session_title("mine", "Chat")
        store.set_session_title("hers", "Chat")
        lines = list(store.export_lines())
        store.write(sessions.delete, ["mine", "hers"])
        assert store.import_lines(lines).retitled == {}
        assert list(store.export_lines()) == lines

    def test_a_turn_that_was_not_over_is_over_here_and_keeps_what_was_streamed(
        self, store: SessionDB
    ) -> None:
        store.create_session("a", "cli")
        running, waiting = accepted(store, "a"), accepted(store, "a")
        store.write(turns.start, running)
        calls = [Call("1", "look", "{}", True), Call("2", "send", "{}", False)]
        store.write(turns.step, running, {"role": "assistant", "content": "so"}, calls)
        store.write(effects.start, store.read(effects.of_turn, running)[0]["id"])
        store.write(partials.save, running, "half an ans")
        lines = list(store.export_lines())
        store.write(sessions.delete, ["a"])
        report = store.import_lines(lines)
        assert (report.interrupted, report.recounted) == (["a"], [])
        assert store.read(turns.unfinished) == []
        assert [t["state"] for t in store.read(turns.of_session, "a")] == ["interrupted"] * 2
        assert [e["state"] for e in store.read(effects.of_turn, running)] == [
            "unknown",
            "cancelled",
        ]
        last = store.read(messages.of_session, "a")[-1]
        assert (last["content"], last["kind"]) == ("half an ans", "partial")
        assert waiting and store.check() == []

    def test_copies_of_a_message_stay_copies_of_it_when_it_is_deleted(
        self, store: SessionDB
    ) -> None:
        chat(store, "a", "hello", "hi")
        store.write(lineage.branch, "a", child_id="b")
        store.write(
            lineage.rotate,
            "b",
            [m["id"] for m in store.read(messages.of_session, "b")],
            child_id="c",
        )
        store.write(sessions.delete, ["a"])
        lines = list(store.export_lines())
        store.write(sessions.delete, ["b"])
        store.import_lines(lines)
        assert list(store.export_lines()) == lines
        for first, second in zip(
            store.read(messages.of_session, "b"), store.read(messages.of_session, "c"), strict=True
        ):
            assert first["origin_id"] == second["origin_id"] is not None
        taken_back = store.read(messages.of_session, "c")[0]["id"]
        store.write(messages.rewind, "c", taken_back)
        assert store.read(messages.of_session, "b") == []
        fresh = store.append_message("c", "user", "new")
        assert fresh not in {line.get("origin_id") for line in store.read(messages.of_session, "c")}

    def test_something_else_is_not_imported(self, store: SessionDB) -> None:
        for lines in ([{"type": "other"}], [{"type": "hermes-export", "version": 99}]):
            with refused(UsageError):
                store.import_lines(lines)
        header = {"type": "hermes-export", "version": 1}
        with refused(UsageError):
            store.import_lines([header, {"type": "novel"}])
        assert store.read(listing.stats)["sessions"] == 0

    def test_one_session_is_exported_with_its_messages(self, store: SessionDB) -> None:
        chat(store, "a", "hello", "hi")
        exported = store.read(transfer.export_session, "a")
        assert exported is not None
        assert exported["id"] == "a"
        assert [message["content"] for message in exported["messages"]] == ["hello", "hi"]
