"""Rules for usage."""

from hermes_core.errors import SessionNotFoundError
from hermes_state.db import SessionDB
from hermes_state.ledger import lineage, usage
from hermes_state.testing.rules.setup import refused, session, still_clock
from hermes_state.values import Spent


class UsageRules:
    """Test sums of usage."""

    def test_calls_are_summed_up_by_model_over_a_conversation(self, store: SessionDB) -> None:
        with still_clock() as time:
            store.create_session("a", "cli")
            store.write(usage.record, "a", Spent("m", "p", 10, 20, 1, 2, 3, 0.25))
            store.write(lineage.rotate, "a", [], child_id="b")
            time.now += 100
            store.write(usage.record, "b", Spent("m", "p", 1, 1, cost_usd=0.25))
            store.write(usage.record, "b", Spent("other", input_tokens=5), task="title")
            sums = {row["model"]: row for row in store.read(usage.of_conversation, "a")}
            assert (sums["m"]["calls"], sums["m"]["input_tokens"]) == (2, 11)
            assert (sums["m"]["cost_usd"], sums["m"]["reasoning_tokens"]) == (0.5, 3)
            assert sums["other"]["calls"] == 1
            total = store.read(usage.totals, "b")
            assert (total["calls"], total["input_tokens"]) == (3, 16)
            assert (total["cost_usd"], total["compactions"]) == (0.5, 1)
            assert store.read(usage.totals, "nobody")["calls"] == 0
            since = store.read(usage.since, time.now)
            assert (since["calls"], since["input_tokens"]) == (2, 6)
        row = session(store, "b")
        assert (row["api_call_count"], row["input_tokens"], row["model"]) == (2, 6, "m")
        with refused(SessionNotFoundError):
            store.write(usage.record, "nobody", Spent("m"))
