"""Rules for effects."""

from functools import partial

from hermes_core.errors import IllegalTransitionError, StoreError
from hermes_state.db import SessionDB
from hermes_state.ledger import effects, turns
from hermes_state.testing.rules.setup import contents, execute, refused, running
from hermes_state.values import Call


class EffectRules:
    """Test the ledger of tool calls."""

    def _effects(self, store: SessionDB, *read_only: bool) -> tuple[str, list[int]]:
        turn_id = running(store)
        calls = [Call(str(n), "tool", "{}", flag) for n, flag in enumerate(read_only)]
        store.write(turns.step, turn_id, {"role": "assistant", "content": "calling"}, calls)
        return turn_id, [effect["id"] for effect in store.read(effects.of_turn, turn_id)]

    def test_calls_are_intended_with_their_step_and_done_with_their_result(
        self, store: SessionDB
    ) -> None:
        turn_id, (first, second) = self._effects(store, True, False)
        assert [e["state"] for e in store.read(effects.of_turn, turn_id)] == ["intended"] * 2
        store.write(effects.start, first)
        message_id = store.write(effects.done, first, {"role": "tool", "content": "result"})
        store.write(effects.start, second)
        assert store.write(effects.unknown, second) is None
        done, unknown = store.read(effects.of_turn, turn_id)
        assert (done["state"], done["result_message_id"]) == ("done", message_id)
        assert (unknown["state"], bool(unknown["read_only"])) == ("unknown", False)
        assert contents(store, "s")[-1] == "result"

    def test_a_call_that_was_not_begun_can_be_cancelled(self, store: SessionDB) -> None:
        turn_id, (only,) = self._effects(store, False)
        assert (
            store.write(effects.cancel, only, {"role": "tool", "content": "not done"}) is not None
        )
        assert store.read(effects.of_turn, turn_id)[0]["state"] == "cancelled"

    def test_only_a_read_only_call_may_be_started_again(self, store: SessionDB) -> None:
        _, (harmless, other) = self._effects(store, True, False)
        for effect in (harmless, other):
            store.write(effects.start, effect)
        store.write(effects.start, harmless)
        with refused(IllegalTransitionError):
            store.write(effects.start, other)

    def test_an_illegal_move_stores_no_result(self, store: SessionDB) -> None:
        _, (only,) = self._effects(store, False)
        result = {"role": "tool", "content": "too late"}
        with refused(IllegalTransitionError):
            store.write(effects.done, only, result)
        store.write(effects.start, only)
        store.write(effects.done, only, {"role": "tool", "content": "in time"})
        for move in (
            partial(store.write, effects.done),
            partial(store.write, effects.unknown),
            partial(store.write, effects.cancel),
        ):
            with refused(IllegalTransitionError):
                move(only, result)
        assert "too late" not in contents(store, "s")
        with refused(StoreError):
            store.write(effects.start, 10_000)

    def test_the_same_call_is_intended_once(self, store: SessionDB) -> None:
        turn_id = running(store)
        call = Call("1", "tool", "{}", False)
        with refused(StoreError):
            store.write(turns.step, turn_id, {"role": "assistant", "content": "x"}, [call, call])
        assert store.read(effects.of_turn, turn_id) == []
        assert contents(store, "s") == ["a question"]

    def test_the_database_itself_refuses_illegal_states_of_an_effect(
        self, store: SessionDB
    ) -> None:
        _, (only,) = self._effects(store, False)
        for state in ("done", "unknown", "nonsense"):
            with refused(IllegalTransitionError):
                store.write(execute("UPDATE effects SET state = ? WHERE id = ?", state, only))
