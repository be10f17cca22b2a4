"""Rules for budgets."""

from hermes_core.errors import BudgetSpent, IllegalTransitionError
from hermes_state.db import SessionDB
from hermes_state.ledger import budgets, sessions, turns
from hermes_state.testing.rules.setup import DAY_S, refused, running, session, still_clock
from hermes_state.values import Estimate, Limit, Limits, Receipt, Reservation, Spent


class BudgetRules:
    """Test that limits reserve before a call and hold after a crash."""

    def test_a_step_is_set_aside_and_settled_with_what_it_cost(self, store: SessionDB) -> None:
        turn_id = running(store)
        limits = Limits.of(
            Limit("steps", "turn", 3), Limit("tokens", "turn", 1000), Limit("usd", "turn", 1.0)
        )
        first = store.write(budgets.reserve, turn_id, limits, Estimate(400, 0.4, 1.0))
        assert store.read(budgets.of_turn, turn_id) == {
            "steps": 1, "tokens": 400, "cost_usd": 0.4, "seconds": 1.0
        }  # fmt: skip
        spent = Spent("m", "p", input_tokens=50, output_tokens=10, cost_usd=0.1)
        store.write(
            turns.step,
            turn_id,
            {"role": "assistant", "content": "a"},
            receipt=Receipt(first, spent),
        )
        assert store.read(budgets.of_turn, turn_id)["tokens"] == 60
        assert session(store, "s")["cost_usd"] == 0.1, "it is booked with the step"

    def test_a_reservation_that_nobody_settled_counts_in_full(self, store: SessionDB) -> None:
        turn_id = running(store)
        limits = Limits.of(Limit("usd", "turn", 1.0))
        store.write(budgets.reserve, turn_id, limits, Estimate(1, 0.7, 0.0))
        with refused(BudgetSpent):
            store.write(budgets.reserve, turn_id, limits, Estimate(1, 0.4, 0.0))
        store.write(budgets.reserve, turn_id, limits, Estimate(1, 0.3, 0.0))

    def test_each_limit_holds(self, store: SessionDB) -> None:
        turn_id = running(store)
        none_left = [
            (Limits.of(Limit("steps", "turn", 1)), Estimate(1, 0.0, 0.0)),
            (Limits.of(Limit("tokens", "turn", 10)), Estimate(10, 0.0, 0.0)),
            (Limits.of(Limit("usd", "turn", 0.5)), Estimate(1, 0.5, 0.0)),
            (Limits.of(Limit("seconds", "turn", 5.0)), Estimate(1, 0.0, 5.1)),
            (Limits.of(Limit("usd", "day", 0.5)), Estimate(1, 0.5, 0.0)),
        ]
        store.write(budgets.reserve, turn_id, Limits(), Estimate(1, 0.1, 0.0))
        for limits, estimate in none_left:
            with refused(BudgetSpent):
                store.write(budgets.reserve, turn_id, limits, estimate)
        store.write(
            budgets.reserve,
            turn_id,
            Limits.of(Limit("steps", "turn", 1)),
            Estimate(1, 0.0, 0.0),
            task="summary",
        )

    def test_a_day_is_shared_by_all_turns_and_ends_at_midnight(self, store: SessionDB) -> None:
        with still_clock() as moved:
            limits = Limits.of(Limit("usd", "day", 1.0))
            store.write(budgets.reserve, running(store, "a"), limits, Estimate(1, 0.8, 0.0))
            other = running(store, "b")
            with refused(BudgetSpent):
                store.write(budgets.reserve, other, limits, Estimate(1, 0.3, 0.0))
            store.write(sessions.delete, ["a"])
            assert store.read(budgets.today_usd) == 0.8, "deleting a session refunds nothing"
            moved.now += DAY_S
            store.write(budgets.reserve, other, limits, Estimate(1, 0.9, 0.0))

    def test_a_turn_pays_for_those_it_sent(self, store: SessionDB) -> None:
        parent, child = running(store, "a"), running(store, "b")
        limits = Limits.of(Limit("steps", "turn", 1), Limit("usd", "turn", 1.0))
        store.write(budgets.reserve, parent, limits, Estimate(10, 0.4, 9.0))
        store.write(budgets.reserve, child, limits, Estimate(10, 0.5, 1.0), account=parent)
        assert store.read(budgets.of_turn, child, parent) == {
            "steps": 1, "tokens": 20, "cost_usd": 0.9, "seconds": 1.0
        }  # fmt: skip
        with refused(BudgetSpent):
            store.write(
                budgets.reserve, running(store, "c"), limits, Estimate(1, 0.2, 0), account=parent
            )

    def test_somebodys_day_is_limited_and_others_do_not_pay_for_it(self, store: SessionDB) -> None:
        with still_clock() as moved:
            ann = Limits.of(Limit("usd", "person", 1.0), person="telegram:1")
            bob = ann._replace(person="telegram:2")
            turn_id = running(store)
            store.write(budgets.reserve, turn_id, ann, Estimate(1, 0.8, 0.0))
            with refused(BudgetSpent):
                store.write(budgets.reserve, running(store, "b"), ann, Estimate(1, 0.3, 0.0))
            store.write(budgets.reserve, turn_id, bob, Estimate(1, 0.9, 0.0))
            store.write(budgets.reserve, turn_id, Limits(), Estimate(1, 5.0, 0.0))
            store.write(sessions.delete, ["s"])
            assert store.read(budgets.today_usd, "telegram:1") == 0.8, (
                "deleting a session refunds nothing"
            )
            assert store.read(budgets.today_usd, "telegram:3") == 0.0
            assert round(store.read(budgets.today_usd), 6) == 6.7
            moved.now += DAY_S
            store.write(budgets.reserve, "b", ann, Estimate(1, 0.9, 0.0))

    def test_what_was_not_set_aside_is_noted_when_it_is_spent(self, store: SessionDB) -> None:
        turn_id = running(store)
        spent = Spent("m", "p", input_tokens=50, output_tokens=10, cost_usd=0.25)
        aside = Reservation(None, 2.0, person="telegram:1")
        store.write(budgets.settle, turn_id, "s", Receipt(aside, spent))
        store.write(budgets.settle, turn_id, "s", Receipt(Reservation(None), spent, "title"))
        assert store.read(budgets.of_turn, turn_id) == {
            "steps": 1, "tokens": 120, "cost_usd": 0.5, "seconds": 2.0
        }  # fmt: skip
        assert store.read(budgets.today_usd, "telegram:1") == 0.25
        assert session(store, "s")["cost_usd"] == 0.5, "it is booked all the same"

    def test_a_reservation_is_settled_once(self, store: SessionDB) -> None:
        turn_id = running(store)
        receipt = Receipt(
            store.write(budgets.reserve, turn_id, Limits(), Estimate(1, 0, 0)), Spent("m")
        )
        store.write(budgets.settle, turn_id, "s", receipt)
        with refused(IllegalTransitionError):
            store.write(budgets.settle, turn_id, "s", receipt)
