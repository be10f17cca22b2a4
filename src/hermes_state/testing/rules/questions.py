"""Rules for questions."""

from hermes_core import clock, secrets
from hermes_core.errors import IllegalTransitionError, StoreError
from hermes_state.protocol import Store
from hermes_state.testing.rules.given import contents, refused, running
from hermes_state.values import Call, OutboundPart, Question, Settled


class QuestionRules:
    """What a person is asked while a turn waits."""

    def _question(self, turn_id: str) -> Question:
        return Question(
            turn_id, "call", "approval", "terminal", "Run it?", "rm -r x", ["yes", "no"]
        )

    def test_a_call_that_asks_again_finds_its_question_and_the_answer(self, store: Store) -> None:
        question = self._question(running(store))
        first = store.questions.ask(question)
        assert first["state"] == "pending"
        assert first["choices"] == ["yes", "no"]
        assert store.questions.ask(question)["id"] == first["id"]
        assert [row["session_id"] for row in store.questions.pending("s")] == ["s"]
        assert store.questions.pending("somebody else") == []
        store.questions.answer(first["id"], "yes", by="cli")
        again = store.questions.ask(question)
        assert (again["state"], again["answer"], again["answered_by"]) == ("answered", "yes", "cli")
        assert store.questions.pending() == []

    def test_the_first_answer_counts(self, store: Store) -> None:
        row = store.questions.ask(self._question(running(store)))
        store.questions.answer(row["id"], "no")
        with refused(IllegalTransitionError):
            store.questions.answer(row["id"], "yes")
        store.questions.withdraw(row["id"])
        assert store.questions.get(row["id"])["answer"] == "no"

    def test_a_question_can_be_withdrawn(self, store: Store) -> None:
        row = store.questions.ask(self._question(running(store)))
        store.questions.withdraw(row["id"])
        with refused(IllegalTransitionError):
            store.questions.answer(row["id"], "yes")
        with refused(StoreError):
            store.questions.answer("nothing", "yes")

    def test_a_turn_that_is_over_asks_nothing_any_more(self, store: Store) -> None:
        turn_id = running(store)
        row = store.questions.ask(self._question(turn_id))
        store.turns.finish(turn_id, "interrupted")
        assert store.questions.get(row["id"])["state"] == "withdrawn"
        assert store.questions.pending() == []

    def test_buttons_are_told_of_until_they_are_off(self, store: Store) -> None:
        row = store.questions.ask(self._question(running(store)))
        extra = f'{{"question": "{row["id"]}", "buttons": [["Yes", "yes"]]}}'
        key = f"question:{row['id']}:0"
        store.outbox.put([OutboundPart("p", "c", "Run it?", key=key, extra=extra)])
        assert store.questions.still_shown() == []
        store.questions.answer(row["id"], "yes")
        (shown,) = store.questions.still_shown()
        told = (shown["key"], shown["question_state"], shown["answer"], shown["is_turn_over"])
        assert told == (key, "answered", "yes", 0)
        assert store.questions.still_shown(since=clock.now() + 1) == []
        store.outbox.without_buttons(shown["id"])
        assert store.questions.still_shown() == []

    def test_a_lasting_yes_holds_where_it_was_given(self, store: Store) -> None:
        store.questions.grant(["rm"], "here")
        store.questions.grant(["curl"])
        assert store.questions.granted("here") == {"rm", "curl"}
        assert store.questions.granted("there") == {"curl"}
        assert store.questions.granted("here", everywhere=False) == {"rm"}
        assert store.questions.revoke("curl")
        assert not store.questions.revoke("curl")
        assert store.questions.granted("there") == set()

    def test_a_stopped_turn_leaves_no_call_without_a_result(self, store: Store) -> None:
        turn_id = running(store)
        calls = [Call("a", "t", "{}", False), Call("b", "t", "{}", False)]
        store.turns.step(turn_id, {"role": "assistant", "content": None}, calls)
        first, second = (row["id"] for row in store.effects.of_turn(turn_id))
        store.effects.start(first)
        result = {"role": "tool", "content": "stopped", "tool_call_id": "a"}
        settled = [
            Settled(first, "unknown", result),
            Settled(second, "cancelled", result | {"tool_call_id": "b"}),
        ]
        store.turns.finish(turn_id, "interrupted", settled=settled)
        states = [row["state"] for row in store.effects.of_turn(turn_id)]
        assert states == ["unknown", "cancelled"]
        assert contents(store, "s")[-2:] == ["stopped", "stopped"]

    def test_a_lease_can_be_taken_from_a_holder_that_is_gone(self, store: Store) -> None:
        store.create_session("s", "cli")
        assert store.leases.acquire("s", "dead") is not None
        assert store.leases.take_over("s", "somebody else", "me") is None
        taken = store.leases.take_over("s", "dead", "me")
        assert taken is not None
        assert store.leases.holder_of("s") == "me"

    def test_secrets_do_not_reach_the_store(self, store: Store) -> None:
        secrets.register({"API_KEY": 'hunter"22'})
        try:
            turn_id = running(store)
            calls = [Call("a", "t", '{"k": "hunter\\"22"}', False)]
            store.turns.step(turn_id, {"role": "assistant", "content": 'x hunter"22 y'}, calls)
            assert contents(store, "s")[-1] == "x [secret API_KEY] y"
            assert "hunter" not in store.effects.of_turn(turn_id)[0]["arguments"]
            row = store.questions.ask(self._question(turn_id)._replace(detail='echo hunter"22'))
            assert row["detail"] == "echo [secret API_KEY]"
            put_off, lost = store.outbox.put([OutboundPart("p", c, 'is hunter"22') for c in "ab"])
            store.outbox.begin(put_off)
            store.outbox.retry(put_off, 'no to hunter"22', 0.0)
            store.outbox.fail(lost, 'no to hunter"22')
            store.turns.finish(turn_id, "failed", reason='no to hunter"22')
            for piece in (*store.outbox.due(), *store.outbox.failed()):
                assert (piece["content"], piece["error"]) == (
                    "is [secret API_KEY]", "no to [secret API_KEY]"
                )  # fmt: skip
            assert (store.turns.get(turn_id) or {})["reason"] == "no to [secret API_KEY]"
        finally:
            secrets.forget()
