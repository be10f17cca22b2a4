"""Rules for questions."""

from hermes_core import clock, secrets
from hermes_core.errors import IllegalTransitionError, StoreError
from hermes_state.db import SessionDB
from hermes_state.ledger import effects, leases, outbox, questions, turns
from hermes_state.testing.rules.setup import contents, refused, running
from hermes_state.values import Call, Grant, OutboundPart, Question, Settled


class QuestionRules:
    """Test questions and grants."""

    def _question(self, turn_id: str) -> Question:
        return Question(
            turn_id, "call", "approval", "terminal", "Run it?", "rm -r x", ["yes", "no"]
        )

    def test_a_call_that_asks_again_finds_its_question_and_the_answer(
        self, store: SessionDB
    ) -> None:
        question = self._question(running(store))
        first = store.write(questions.ask, question)
        assert first["state"] == "pending"
        assert first["choices"] == ["yes", "no"]
        assert store.write(questions.ask, question)["id"] == first["id"]
        assert [row["session_id"] for row in store.read(questions.pending, "s")] == ["s"]
        assert store.read(questions.pending, "somebody else") == []
        store.write(questions.answer, first["id"], "yes", by="cli")
        again = store.write(questions.ask, question)
        assert (again["state"], again["answer"], again["answered_by"]) == ("answered", "yes", "cli")
        assert store.read(questions.pending) == []

    def test_the_first_answer_counts(self, store: SessionDB) -> None:
        row = store.write(questions.ask, self._question(running(store)))
        store.write(questions.answer, row["id"], "no")
        with refused(IllegalTransitionError):
            store.write(questions.answer, row["id"], "yes")
        store.write(questions.cancel, row["id"])
        assert store.read(questions.fetch, row["id"])["answer"] == "no"

    def test_a_question_can_be_withdrawn(self, store: SessionDB) -> None:
        row = store.write(questions.ask, self._question(running(store)))
        store.write(questions.cancel, row["id"])
        with refused(IllegalTransitionError):
            store.write(questions.answer, row["id"], "yes")
        with refused(StoreError):
            store.write(questions.answer, "nothing", "yes")

    def test_a_turn_that_is_over_asks_nothing_any_more(self, store: SessionDB) -> None:
        turn_id = running(store)
        row = store.write(questions.ask, self._question(turn_id))
        store.write(turns.finish, turn_id, "interrupted")
        assert store.read(questions.fetch, row["id"])["state"] == "withdrawn"
        assert store.read(questions.pending) == []

    def test_buttons_are_told_of_until_they_are_off(self, store: SessionDB) -> None:
        row = store.write(questions.ask, self._question(running(store)))
        key = f"question:{row['id']}:0"
        part = OutboundPart("p", "c", "Run it?", key=key, question_id=row["id"], buttons="[]")
        store.write(outbox.add, [part])
        assert store.read(questions.with_stale_buttons) == []
        store.write(questions.answer, row["id"], "yes")
        (part,) = store.read(questions.with_stale_buttons)
        found = (part["key"], part["question_state"], part["answer"], part["is_turn_over"])
        assert found == (key, "answered", "yes", 0)
        assert store.read(questions.with_stale_buttons, since=clock.now() + 1) == []
        store.write(outbox.without_buttons, part["id"])
        assert store.read(questions.with_stale_buttons) == []

    def test_a_question_is_delivered_when_all_its_parts_are(self, store: SessionDB) -> None:
        row = store.write(questions.ask, self._question(running(store)))
        assert store.read(questions.is_delivered, row["id"]), "it was shown here"
        name = questions.part_name(row["id"])
        parts = [OutboundPart("p", "c", "Run it?", key=f"{name}:{number}") for number in range(2)]
        for part in store.write(outbox.add, parts):
            assert not store.read(questions.is_delivered, row["id"])
            store.write(outbox.begin, part)
            store.write(outbox.sent, part)
        assert store.read(questions.is_delivered, row["id"])

    def test_a_question_that_cannot_be_shown_is_settled(self, store: SessionDB) -> None:
        row = store.write(questions.ask, self._question(running(store)))
        name = questions.part_name(row["id"])
        parts = [OutboundPart("p", "c", "Run it?", key=f"{name}:{number}") for number in range(2)]
        first, _ = store.write(outbox.add, parts)
        store.write(outbox.begin, first)
        store.write(outbox.fail, first, "chat is closed")
        assert questions.id_of_part(f"{name}:0") == row["id"]
        store.write(questions.fail, row["id"], "chat is closed")
        settled = store.read(questions.fetch, row["id"])
        assert (settled["state"], settled["answer"]) == ("answered", "unshown:chat is closed")
        assert store.read(outbox.due) == []
        store.write(questions.fail, row["id"], "once more")
        assert store.read(questions.fetch, row["id"])["answer"] == "unshown:chat is closed"

    def test_a_lasting_yes_holds_where_it_was_given(self, store: SessionDB) -> None:
        store.write(questions.grant, Grant("rm"), "here")
        store.write(questions.grant, Grant("curl"))
        assert store.read(questions.granted, "here") == {"rm", "curl"}
        assert store.read(questions.granted, "there") == {"curl"}
        assert store.read(questions.granted, "here", everywhere=False) == {"rm"}
        assert store.write(questions.revoke, "curl")
        assert not store.write(questions.revoke, "curl")
        assert store.read(questions.granted, "there") == set()

    def test_a_lasting_yes_can_be_shown_to_people(self, store: SessionDB) -> None:
        grant = Grant("call:1", "terminal", "rm -r x", "/src", "Removes files", "telegram:1")
        for _ in range(2):  # a second yes is the same grant
            store.write(questions.grant, grant, "here")
        (row,) = store.read(questions.grants)
        assert row["granted_at"] <= clock.now()
        assert row["scope"] == "here"
        assert Grant(*(row[field] for field in Grant._fields)) == grant

    def test_a_stopped_turn_leaves_no_call_without_a_result(self, store: SessionDB) -> None:
        turn_id = running(store)
        calls = [Call("a", "t", "{}", False), Call("b", "t", "{}", False)]
        store.write(turns.step, turn_id, {"role": "assistant", "content": None}, calls)
        first, second = (row["id"] for row in store.read(effects.of_turn, turn_id))
        store.write(effects.start, first)
        result = {"role": "tool", "content": "stopped", "tool_call_id": "a"}
        settled = [
            Settled(first, "unknown", result),
            Settled(second, "cancelled", result | {"tool_call_id": "b"}),
        ]
        store.write(turns.finish, turn_id, "interrupted", settled=settled)
        states = [row["state"] for row in store.read(effects.of_turn, turn_id)]
        assert states == ["unknown", "cancelled"]
        assert contents(store, "s")[-2:] == ["stopped", "stopped"]

    def test_a_lease_can_be_taken_from_a_holder_that_is_gone(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        assert store.write(leases.acquire, "s", "dead") is not None
        assert store.write(leases.take_over, "s", "somebody else", "me") is None
        lease = store.write(leases.take_over, "s", "dead", "me")
        assert lease is not None
        assert store.read(leases.holder_of, "s") == "me"

    def test_secrets_do_not_reach_the_store(self, store: SessionDB) -> None:
        secrets.register({"API_KEY": 'hunter"22'})
        try:
            turn_id = running(store)
            calls = [Call("a", "t", '{"k": "hunter\\"22"}', False)]
            store.write(
                turns.step, turn_id, {"role": "assistant", "content": 'x hunter"22 y'}, calls
            )
            assert contents(store, "s")[-1] == "x [secret API_KEY] y"
            assert "hunter" not in store.read(effects.of_turn, turn_id)[0]["arguments"]
            row = store.write(
                questions.ask, self._question(turn_id)._replace(detail='echo hunter"22')
            )
            assert row["detail"] == "echo [secret API_KEY]"
            store.write(questions.grant, Grant("k", "terminal", 'echo hunter"22'))
            assert store.read(questions.grants)[0]["subject"] == "echo [secret API_KEY]"
            put_off, lost = store.write(
                outbox.add, [OutboundPart("p", c, 'is hunter"22') for c in "ab"]
            )
            store.write(outbox.begin, put_off)
            store.write(outbox.retry, put_off, 'no to hunter"22', 0.0)
            store.write(outbox.fail, lost, 'no to hunter"22')
            store.write(turns.finish, turn_id, "failed", reason='no to hunter"22')
            for piece in (*store.read(outbox.due), *store.read(outbox.failed)):
                assert (piece["content"], piece["error"]) == (
                    "is [secret API_KEY]", "no to [secret API_KEY]"
                )  # fmt: skip
            assert (store.read(turns.find, turn_id) or {})["reason"] == "no to [secret API_KEY]"
        finally:
            secrets.clear()
