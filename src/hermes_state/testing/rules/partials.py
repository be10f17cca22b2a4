"""Rules for partials."""

from hermes_core.errors import LeaseLostError
from hermes_state.protocol import Store
from hermes_state.testing.rules.given import contents, refused, running, still_clock


class PartialRules:
    """What was streamed of a reply whose turn still runs."""

    def test_it_is_seen_as_a_partial_message_until_its_step_is_stored(self, store: Store) -> None:
        turn_id = running(store)
        store.partials.keep(turn_id, "Once")
        store.partials.keep(turn_id, "Once upon")
        (seen,) = store.partials.of_session("s")
        turn = store.turns.get(turn_id)
        assert turn is not None
        assert (seen["content"], seen["kind"], seen["answers"]) == (
            "Once upon", "partial", turn["user_message_id"]
        )  # fmt: skip
        store.turns.step(turn_id, {"role": "assistant", "content": "Once upon a time"})
        assert store.partials.of_session("s") == []
        store.turns.finish(turn_id, "interrupted", reason="stopped")
        assert contents(store, "s")[-1] == "Once upon a time"

    def test_a_turn_that_ends_without_a_last_message_keeps_it_as_such(self, store: Store) -> None:
        turn_id = running(store)
        store.partials.keep(turn_id, "Once upon\n")
        message_id = store.turns.finish(turn_id, "failed", reason="no model")
        last = store.get_messages("s")[-1]
        assert (last["id"], last["content"], last["kind"]) == (message_id, "Once upon", "partial")
        assert store.partials.of_session("s") == []

    def test_a_whole_answer_takes_its_place(self, store: Store) -> None:
        turn_id = running(store)
        store.partials.keep(turn_id, "Once upon")
        store.turns.finish(turn_id, "answered", message={"role": "assistant", "content": "Yes."})
        assert contents(store, "s")[-1] == "Yes."
        assert store.partials.of_session("s") == []

    def test_who_lost_the_conversation_keeps_nothing(self, store: Store) -> None:
        turn_id = running(store)
        root = store.get_conversation_root("s")
        with still_clock() as time:
            lease = store.leases.acquire(root, "one")
            time.now += 3600
            store.leases.acquire(root, "two")
        with refused(LeaseLostError):
            store.partials.keep(turn_id, "late", lease)
        assert store.partials.of_session("s") == []

    def test_it_goes_with_its_session(self, store: Store) -> None:
        store.partials.keep(running(store), "Once upon")
        store.delete_session("s")
        assert store.partials.of_session("s") == []
