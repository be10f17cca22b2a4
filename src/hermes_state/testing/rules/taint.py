"""Rules for taint."""

from hermes_state.db import SessionDB
from hermes_state.ledger import chat_moves, effects, lineage, messages, sessions, taint, turns
from hermes_state.testing.rules.setup import running
from hermes_state.values import Call, InboundMessage, NewSession, Route, TaintSource

PAGE = TaintSource("outside", "web page https://example.com/")
KEY = TaintSource("private", "file ~/.ssh/id_ed25519")


class TaintRules:
    """Test what conversations have read."""

    def test_it_comes_with_a_message(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        bob = TaintSource("outside", "message of Bob")
        accepted = store.write(
            turns.accept, "s", {"role": "user", "content": "hi"}, brings=[bob, bob]
        )
        (row,) = store.read(taint.of, "s")
        assert (row["kind"], row["source"]) == bob
        assert row["turn_id"] == accepted.turn_id

    def test_a_call_that_starts_records_what_it_reads(self, store: SessionDB) -> None:
        turn_id = running(store)
        step = {"role": "assistant", "content": None}
        store.write(turns.step, turn_id, step, [Call("a", "web_fetch", "{}", True)])
        (effect,) = store.read(effects.of_turn, turn_id)
        for _ in range(2):  # as after a crash
            store.write(effects.start, effect["id"], reads=[PAGE])
        assert _sources(store, "s") == [PAGE]

    def test_it_stays_over_rotation_its_undo_and_a_rewind(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        first = store.append_message("s", "user", "hello")
        store.write(taint.note, "s", [PAGE])
        store.write(lineage.rotate, "s", [{"role": "user", "content": "summary"}], child_id="c")
        store.write(taint.note, "c", [PAGE, KEY])
        assert _sources(store, "c") == _sources(store, "s") == [PAGE, KEY]
        store.write(lineage.undo_rotation, "c")
        store.write(messages.rewind, "s", first)
        assert _sources(store, "s") == [PAGE, KEY]

    def test_a_branch_has_a_copy(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        store.append_message("s", "user", "hello")
        store.write(taint.note, "s", [PAGE])
        store.write(lineage.branch, "s", child_id="b")
        store.write(taint.note, "b", [KEY])
        assert _sources(store, "b") == [PAGE, KEY]
        assert _sources(store, "s") == [PAGE]
        store.write(sessions.delete, ["s"])
        assert _sources(store, "b") == [PAGE, KEY]
        store.write(sessions.delete, ["b"])
        assert store.read(lambda tx: tx.value("SELECT count(*) FROM taint")) == 0

    def test_it_goes_both_ways_between_an_agent_and_its_sub_agent(self, store: SessionDB) -> None:
        store.create_session("parent", "cli")
        store.write(taint.note, "parent", [PAGE])
        opening = NewSession("delegate", {}, "parent")
        message = {"role": "user", "content": "do this"}
        store.write(turns.accept, "child", message, new_session=opening)
        store.write(taint.note, "child", [KEY])
        assert set(_sources(store, "child")) == {PAGE, KEY}
        store.write(taint.copy, "child", "parent")
        assert set(_sources(store, "parent")) == {PAGE, KEY}

    def test_it_moves_with_a_queued_turn(self, store: SessionDB) -> None:
        opening = NewSession("telegram", {}, route=Route("key", "{}"))
        inbound = InboundMessage("telegram", "room", "1", session_key="key")
        store.write(
            turns.accept,
            "s",
            {"role": "user", "content": "hi"},
            inbound=inbound,
            new_session=opening,
            brings=[PAGE],
        )
        store.write(
            chat_moves.move_chat, Route("key"), "new", former="s", reason="why", new_session=opening
        )
        assert _sources(store, "new") == [PAGE]

    def test_texts_from_elsewhere_are_found_and_those_of_models_are_not(
        self, store: SessionDB
    ) -> None:
        store.create_session("s", "cli")
        tool = {"role": "tool", "tool_call_id": "1"}
        store.append_messages(
            "s",
            [
                {"role": "user", "content": "open example.com/a"},
                {"role": "assistant", "content": "example.com/b"},
                {**tool, "tool_name": "web_search", "content": "1. example.com/c"},
                {**tool, "tool_name": "terminal", "content": "example.com/d"},
                {
                    **tool,
                    "tool_name": "web_fetch",
                    "content": "no: example.com/e",
                    "is_error": True,
                },
            ],
        )
        summary = {"role": "user", "content": "example.com/f"}
        store.write(lineage.rotate, "s", [summary], child_id="c")

        def found(people: bool) -> list[str]:
            return store.read(
                taint.texts_with, "c", "example.com/", ["web_search", "web_fetch"], people=people
            )

        assert found(people=True) == ["open example.com/a", "1. example.com/c"]
        assert found(people=False) == ["1. example.com/c"]

    def test_what_was_imported_counts_as_outside_text(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        tool = {"role": "tool", "tool_call_id": "1", "content": "x"}
        store.append_messages("s", [{**tool, "tool_name": "session_search"}])
        store.write(taint.note_import, "s")
        assert [source.kind for source in _sources(store, "s")] == ["outside", "private"]

    def test_results_in_a_history_that_is_brought_are_outside_text(self, store: SessionDB) -> None:
        spoken = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        result = {"role": "tool", "tool_call_id": "1", "content": "c"}
        for name, history in (("s", spoken), ("t", [*spoken, result])):
            opening = NewSession("api", {}, messages=history)
            message = {"role": "user", "content": "d"}
            store.write(turns.accept, name, message, new_session=opening)
        assert _sources(store, "s") == []
        assert [source.kind for source in _sources(store, "t")] == ["outside"]


def _sources(store: SessionDB, session_id: str) -> list[TaintSource]:
    found = store.read(taint.of, session_id)
    return [TaintSource(row["kind"], row["source"]) for row in found]
