"""Rules for partials."""

from hermes_core.errors import LeaseLostError
from hermes_state.db import SessionDB
from hermes_state.ledger import leases, lineage, messages, partials, sessions, turns
from hermes_state.testing.rules.setup import contents, refused, running, still_clock


class PartialRules:
    """Test partial replies."""

    def test_it_is_seen_as_a_partial_message_until_its_step_is_stored(
        self, store: SessionDB
    ) -> None:
        turn_id = running(store)
        store.write(partials.save, turn_id, "Once")
        store.write(partials.save, turn_id, "Once upon")
        (seen,) = store.read(partials.of_session, "s")
        turn = store.read(turns.find, turn_id)
        assert turn is not None
        assert (seen["content"], seen["kind"], seen["answers"]) == (
            "Once upon", "partial", turn["user_message_id"]
        )  # fmt: skip
        store.write(turns.step, turn_id, {"role": "assistant", "content": "Once upon a time"})
        assert store.read(partials.of_session, "s") == []
        store.write(turns.finish, turn_id, "interrupted", reason="stopped")
        assert contents(store, "s")[-1] == "Once upon a time"

    def test_a_turn_that_ends_without_a_last_message_keeps_it_as_such(
        self, store: SessionDB
    ) -> None:
        turn_id = running(store)
        store.write(partials.save, turn_id, "Once upon\n")
        message_id = store.write(turns.finish, turn_id, "failed", reason="no model")
        last = store.read(messages.of_session, "s")[-1]
        assert (last["id"], last["content"], last["kind"]) == (message_id, "Once upon", "partial")
        assert store.read(partials.of_session, "s") == []

    def test_a_whole_answer_takes_its_place(self, store: SessionDB) -> None:
        turn_id = running(store)
        store.write(partials.save, turn_id, "Once upon")
        store.write(
            turns.finish, turn_id, "answered", message={"role": "assistant", "content": "Yes."}
        )
        assert contents(store, "s")[-1] == "Yes."
        assert store.read(partials.of_session, "s") == []

    def test_who_lost_the_conversation_keeps_nothing(self, store: SessionDB) -> None:
        turn_id = running(store)
        root = store.read(lineage.root, "s")
        with still_clock() as time:
            lease = store.write(leases.acquire, root, "one")
            time.now += 3600
            store.write(leases.acquire, root, "two")
        with refused(LeaseLostError):
            store.write(partials.save, turn_id, "late", lease)
        assert store.read(partials.of_session, "s") == []

    def test_it_goes_with_its_session(self, store: SessionDB) -> None:
        store.write(partials.save, running(store), "Once upon")
        store.write(sessions.delete, ["s"])
        assert store.read(partials.of_session, "s") == []
