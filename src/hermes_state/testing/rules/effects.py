"""Rules for effects."""

from hermes_core.errors import IllegalTransitionError, StoreError
from hermes_state.protocol import Store
from hermes_state.testing.rules.given import contents, execute, refused, running
from hermes_state.values import Call


class EffectRules:
    """The ledger of tool calls."""

    def _effects(self, store: Store, *read_only: bool) -> tuple[str, list[int]]:
        turn_id = running(store)
        calls = [Call(str(n), "tool", "{}", flag) for n, flag in enumerate(read_only)]
        store.turns.step(turn_id, {"role": "assistant", "content": "calling"}, calls)
        return turn_id, [effect["id"] for effect in store.effects.of_turn(turn_id)]

    def test_calls_are_intended_with_their_step_and_done_with_their_result(
        self, store: Store
    ) -> None:
        turn_id, (first, second) = self._effects(store, True, False)
        assert [e["state"] for e in store.effects.of_turn(turn_id)] == ["intended"] * 2
        store.effects.start(first)
        message_id = store.effects.done(first, {"role": "tool", "content": "result"})
        store.effects.start(second)
        assert store.effects.unknown(second) is None
        done, unknown = store.effects.of_turn(turn_id)
        assert (done["state"], done["result_message_id"]) == ("done", message_id)
        assert (unknown["state"], bool(unknown["read_only"])) == ("unknown", False)
        assert contents(store, "s")[-1] == "result"

    def test_a_call_that_was_not_begun_can_be_cancelled(self, store: Store) -> None:
        turn_id, (only,) = self._effects(store, False)
        assert store.effects.cancel(only, {"role": "tool", "content": "not done"}) is not None
        assert store.effects.of_turn(turn_id)[0]["state"] == "cancelled"

    def test_only_a_read_only_call_may_be_started_again(self, store: Store) -> None:
        _, (harmless, other) = self._effects(store, True, False)
        for effect in (harmless, other):
            store.effects.start(effect)
        store.effects.start(harmless)
        with refused(IllegalTransitionError):
            store.effects.start(other)

    def test_an_illegal_move_stores_no_result(self, store: Store) -> None:
        _, (only,) = self._effects(store, False)
        result = {"role": "tool", "content": "too late"}
        with refused(IllegalTransitionError):
            store.effects.done(only, result)
        store.effects.start(only)
        store.effects.done(only, {"role": "tool", "content": "in time"})
        for move in (store.effects.done, store.effects.unknown, store.effects.cancel):
            with refused(IllegalTransitionError):
                move(only, result)
        assert "too late" not in contents(store, "s")
        with refused(StoreError):
            store.effects.start(10_000)

    def test_the_same_call_is_intended_once(self, store: Store) -> None:
        turn_id = running(store)
        call = Call("1", "tool", "{}", False)
        with refused(StoreError):
            store.turns.step(turn_id, {"role": "assistant", "content": "x"}, [call, call])
        assert store.effects.of_turn(turn_id) == []
        assert contents(store, "s") == ["a question"]

    def test_the_database_itself_refuses_illegal_states_of_an_effect(self, store: Store) -> None:
        _, (only,) = self._effects(store, False)
        for state in ("done", "unknown", "nonsense"):
            with refused(IllegalTransitionError):
                store.write(execute("UPDATE effects SET state = ? WHERE id = ?", state, only))
