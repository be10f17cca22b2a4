"""Rules for checkpoints."""

from hermes_core.errors import LeaseLostError
from hermes_state.db import SessionDB
from hermes_state.ledger import checkpoints, leases, lineage, sessions, turns
from hermes_state.testing.rules.setup import refused, running, still_clock


class CheckpointRules:
    """Test checkpoints and lasting effects."""

    def test_it_is_found_by_its_conversation_until_it_is_restored(self, store: SessionDB) -> None:
        turn_id = running(store)
        turn = store.read(turns.find, turn_id)
        assert turn is not None
        root, first = store.read(lineage.root, "s"), turn["user_message_id"]
        first_id = store.write(checkpoints.begin, turn_id, "/w", "tree 1")
        store.write(checkpoints.end, first_id, "tree 2", ["big.bin is too large"])
        second_id = store.write(checkpoints.begin, turn_id, "/w", None, ["no git"])
        rows = store.read(checkpoints.since, root, first)
        assert [(row["before"], row["after"], row["notes"]) for row in rows] == [
            (None, None, ["no git"]),
            ("tree 1", "tree 2", ["big.bin is too large"]),
        ]
        assert store.read(checkpoints.since, root, first + 1) == []
        store.write(checkpoints.mark_restored, [first_id, second_id])
        assert store.read(checkpoints.since, root, first) == []
        assert len(store.read(checkpoints.of_conversation, root)) == 2

    def test_its_end_is_recorded_once(self, store: SessionDB) -> None:
        turn_id = running(store)
        first_id = store.write(checkpoints.begin, turn_id, "/w", "tree 1")
        store.write(checkpoints.amend, first_id, "tree 1b")
        store.write(checkpoints.end, first_id, "tree 2")
        store.write(checkpoints.end, first_id, "tree 3")
        assert store.read(checkpoints.trees, "/w") == {"tree 1b", "tree 2"}

    def test_it_stays_with_the_conversation_through_a_rotation(self, store: SessionDB) -> None:
        turn_id = running(store)
        root = store.read(lineage.root, "s")
        store.write(checkpoints.begin, turn_id, "/w", "tree 1")
        store.write(lineage.rotate, "s", [{"role": "user", "content": "summary"}], child_id="t")
        (row,) = store.read(checkpoints.of_conversation, root)
        assert row["before"] == "tree 1"

    def test_those_of_other_conversations_at_the_same_time_are_found(
        self, store: SessionDB
    ) -> None:
        with still_clock() as time:
            mine, other, later = (running(store, name) for name in ("a", "b", "c"))
            own = store.write(checkpoints.begin, mine, "/w", "tree 1")
            time.now += 1
            store.write(checkpoints.begin, other, "/w", "tree 2")
            time.now += 1
            store.write(checkpoints.end, own, "tree 3")
            time.now += 1
            store.write(checkpoints.begin, later, "/w", "tree 4")
            store.write(checkpoints.begin, later, "/elsewhere", "tree 5")
        (row,) = store.read(checkpoints.of_conversation, store.read(lineage.root, "a"))
        assert [found["before"] for found in store.read(checkpoints.beside, row)] == ["tree 2"]

    def test_an_effect_that_lasts_is_noted_once(self, store: SessionDB) -> None:
        turn_id = running(store)
        root = store.read(lineage.root, "s")
        for detail in ("example.org", "example.org", "example.com"):
            store.write(checkpoints.note_effect, turn_id, "c1", "terminal", "host", detail)
        found = store.read(checkpoints.effects_since, root, 0)
        assert {row["detail"] for row in found} == {"example.org", "example.com"}
        assert len(found) == 2
        (latest,) = store.read(checkpoints.latest_effects, 1)
        assert (latest["detail"], latest["conversation_id"]) == ("example.com", root)

    def test_it_expires_and_goes_with_its_conversation(self, store: SessionDB) -> None:
        turn_id = running(store)
        with still_clock() as time:
            store.write(checkpoints.begin, turn_id, "/w", "tree 1")
            time.now += 100
            store.write(checkpoints.begin, turn_id, "/w", "tree 2")
            assert store.write(checkpoints.expire, time.now - 50) == 1
        assert store.read(checkpoints.trees, "/w") == {"tree 2"}
        store.write(sessions.delete, ["s"])
        assert store.read(checkpoints.trees, "/w") == set()

    def test_who_lost_the_conversation_begins_none(self, store: SessionDB) -> None:
        turn_id = running(store)
        root = store.read(lineage.root, "s")
        with still_clock() as time:
            lease = store.write(leases.acquire, root, "one")
            time.now += 3600
            store.write(leases.acquire, root, "two")
        with refused(LeaseLostError):
            store.write(checkpoints.begin, turn_id, "/w", "tree 1", (), lease)
        assert store.read(checkpoints.trees, "/w") == set()
